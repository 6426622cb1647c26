"""Agents of several clients that nobody types anything to: what wakes them, how often, and what is left of them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from nexus.hooks.harness import NOTICE
from tests.acceptance.hub import serving
from tests.acceptance.pool import until
from tests.agents.person import NEXUS, STARTED, WAITS, Person, address, new, person, turns
from tests.agents.providers import NOT_YET, Provider, Round, Said, plan, play

__all__ = ["address", "person"]
pytestmark = [pytest.mark.usefixtures("runs_published"), pytest.mark.sqlite, pytest.mark.long]
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "hooks.md"
SETTLES_SECONDS = 30  # the titles of conversations have come, and each session has its waiter again
LAST = 20  # number that two agents tell each other
PAIRS = [("claude-code", "codex"), ("opencode", "qwen")]
WOKEN = ("claude-code", "codex", "qwen", "opencode")
FROM_THE_BEGINNING = ("claude-code", "qwen")  # something waits for the agent before its first turn


@pytest.mark.parametrize("name", WOKEN)
def test_whatever_ends_nothing_is_lost_and_nothing_is_left(person: Person, name: str) -> None:
    ben = person.open(name, does=() if name in FROM_THE_BEGINNING else ["ready"])
    ben.wake("letter zero")
    for waiter in ben.waiters():
        waiter.kill()
    until(lambda: not ben.waiters())
    person.send("ben", "letter one")
    ben.say(play("typed"))
    until(lambda: turns("letter one"))
    until(ben.waiters)
    for text in ("letter two", "letter three"):  # each by a hub that was started anew
        with serving(person.home / ".nexus") as hub:
            ben.wake(text, partial(person.send_by, hub))
    ben.say(STARTED[name].ends)
    until(lambda: not ben.left())
    again = person.open(name, "ben", *STARTED[name].goes_on)
    again.wake("letter four")
    again.terminal.close()
    until(lambda: not again.left())
    person.send("ben", "letter five")
    assert "letter five" in person.run(NEXUS, "inbox", "list", "--agent", "ben")
    assert not turns("letter five")


def test_ten_minutes_of_sleep_cost_no_request_and_a_message_ends_them(person: Person) -> None:
    with serving(person.home / ".nexus") as hub:
        sessions = [person.open(name, name, does=WAITS.get(name, ["ready"])) for name in (*WOKEN, *WAITS)]
        time.sleep(SETTLES_SECONDS)
        before = len(Provider.asked)
        time.sleep(600)
        assert [new(said) for said in Provider.asked[before:]] == []
        for session in sessions:
            text = f"wake up, {session.name}"
            person.send_by(hub, session.agent_id, text)
            began = time.monotonic()
            until(partial(turns, text))
            print(f"{session.title}: after {time.monotonic() - began:.1f} s")  # `pytest -rP` shows it
        time.sleep(SETTLES_SECONDS)
        assert [turns(f"wake up, {name}") for name in WOKEN] == [1] * len(WOKEN)
    page = PAGE.read_text()
    assert [session.title for session in sessions if f"| {session.title} |" not in page] == []


@pytest.mark.parametrize("name", WOKEN)
def test_of_a_session_and_its_fork_one_is_woken(person: Person, name: str) -> None:
    first = person.open(name)
    fork = person.open(name, "ben", *STARTED[name].forks)
    until(lambda: len(fork.waiters()) == 2)
    fork.wake("letter one")
    until(lambda: len(fork.waiters()) == 2)
    first.terminal.close()
    until(lambda: len(fork.waiters()) == 1)
    fork.wake("letter two")


def converse(agents: dict[str, str]) -> Callable[[Sequence[Said]], Round]:
    """A model that pulls what a notice tells of, and sends the next number to the other agent."""

    def answers(said: Sequence[Said]) -> Round:
        notices = re.findall(re.escape(NOTICE) + r'"(\w+)"', "\n".join(text for _, text in said))
        if not notices:
            return plan(said)
        me, here = notices[-1], new(said)
        [other] = agents.keys() - {me}
        tool = STARTED[agents[me]].tool
        if NOTICE in here or NOT_YET in here:
            return [[f"{tool}inbox_pull", {"agent_id": me}]]
        pulled = re.search(r'"message_id": ?"(\w+)".*"body": ?"number (\d+)"', here)
        if pulled is None or int(pulled[2]) == LAST:
            return "ok"
        text = f"number {int(pulled[2]) + 1}"
        target = {"strategy": "direct", "agent_id": other}
        letter = {"from_agent_id": me, "subject": "Count", "body": text, "target": target}
        return [
            [f"{tool}message_create", {**letter, "parent_message_id": pulled[1]}],
            [f"{tool}inbox_ack", {"agent_id": me, "message_ids": pulled[1]}],
        ]

    return answers


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_two_agents_answer_each_other_with_nobody_there(
    person: Person, pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = dict(zip(("ann", "ben"), pair, strict=True))
    for agent_id, name in agents.items():
        person.open(name, agent_id)
    monkeypatch.setattr("tests.agents.providers.plan", converse(agents))
    person.send("ben", "number 1")
    for number in range(1, LAST + 1):
        until(partial(lambda number: number in numbers(), number))
    assert numbers() == list(range(1, LAST + 1)), "each once"


def numbers() -> list[int]:
    """What the notices told the models."""
    told = (re.search(r'body: "number (\d+)"', new(said)) for said in list(Provider.asked))
    return [int(each[1]) for each in told if each]
