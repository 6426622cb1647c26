"""The rehearsal: which step of its script is played, what that calls, and what it says of it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nexus.control.agents import wake_kinds
from nexus.control.agents.questions import Decision
from nexus.control.agents.turns import Closing, Ended
from nexus.control.agents.wake_kinds import Item
from nexus.control.models import Entry, PoolAgent, Role, Turn
from nexus.control.runners import rehearsal
from nexus.control.runners.base import RunnerFailed, Scene
from nexus.control.runners_file import Rehearsal, read_runners
from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.replies import Outcome
from tests.control.turns import newest_first

ROOT = Path(__file__).parents[2]
NOON = datetime(2031, 5, 5, 12, tzinfo=UTC)


class Play:
    """An agent that rehearses a script, and what it called and said. Operations named `no_…` are refused."""

    def __init__(self, script: str, **more: Any) -> None:
        steps = tomllib.loads(f"script = {script}")["script"]
        self.runner = Rehearsal.model_validate({"kind": "rehearsal", "script": steps, **more})
        self.history: list[Entry] = []
        self.called: list[tuple[str, Mapping[str, Any]]] = []
        self.said: list[str] = []
        self.read: list[Entry] = []  # of the transcript
        self.agent = PoolAgent(agent_id="ann", cwd="/srv")

    async def hears(self, content: str, woken_by: list[dict[str, str]] | None = None) -> Ended:
        """Take a turn."""
        self.history.append(Entry(role=Role.USER, content=content, meta={"woken_by": woken_by} if woken_by else {}))
        turn = Turn(turn_id="t", content=content, depth=len(woken_by or ()))
        scene = Scene(
            self.agent, turn, partial(newest_first, [*self.history], self.read), self._say, self._ask, self._call
        )
        return await rehearsal.take(self.runner, scene)

    async def wakes(self, *bodies: str) -> Ended:
        """Take a turn that mail began, each from a sender of its own."""
        items = [Item("mail", f"m{n}", "A message.", {"body": body}, f"bob{n}", NOON) for n, body in enumerate(bodies)]
        woken_by = [{"kind": item.kind, "item": item.identifier, "sender": item.sender or ""} for item in items]
        return await self.hears(wake_kinds.message_of(items), woken_by)

    async def _say(self, role: Role, content: str, **more: Any) -> None:
        self.said.append(content)

    async def _ask(self, kind: str, title: str, detail: str, **_: Any) -> Decision:
        return Decision(True, f"{kind}: {title}")

    async def _call(self, toolset: str, name: str, arguments: Mapping[str, Any]) -> Outcome:
        self.called.append((f"{toolset}.{name}", arguments))
        return Outcome(error=NexusError(Code.NOT_FOUND, "Not here.")) if name.startswith("no_") else Outcome(data={})


def assert_refused(directory: Path, lines: str, key: str) -> None:
    """Assert that a rehearsal with these lines is refused, with the key that is wrong."""
    file = directory / "runners.toml"
    file.write_text(f"[runners.stage]\nkind = 'rehearsal'\n{lines}\n")
    with pytest.raises(NexusError, match=rf"wrong at runners\.stage\.{key}: "):
        read_runners(file)


@pytest.mark.parametrize(
    ("said", "place"),
    [
        ("context_tokens = 4000", "reply_tokens"),
        ("context_tokens = 4000\nreply_tokens = 4000", "reply_tokens"),
        ("context_tokens = 'all'", "context_tokens"),
    ],
)
def test_a_runner_without_room_for_a_question_is_refused(said: str, place: str, tmp_path: Path) -> None:
    assert_refused(tmp_path, said, place)


async def test_it_says_in_every_answer_that_it_is_one() -> None:
    play = Play("[{ say = 'Hello.' }]")
    ended = await play.hears("Hi")
    assert ended.answer == "[rehearsal: no model answers] Hello."
    assert ended.closing == Closing(ended.answer) and play.said == [], "it is stored with the turn's end"
    assert (await Play("[]").hears("Hi")).answer == "[rehearsal: no model answers] You said: Hi"


async def test_it_plays_the_first_step_that_fits() -> None:
    play = Play("[{ when = '(?i)hello', say = 'A' }, { when = 'bye', say = 'B' }]")
    answers = [(await play.hears(text)).answer or "" for text in ("HELLO, and bye", "bye", "hm")]
    assert [answer.rpartition("] ")[2] for answer in answers] == ["A", "B", "You said: hm"]


async def test_it_plays_a_step_once_what_comes_before_it_was_heard() -> None:
    play = Play("[{ when = 'done', after = ['x done', 'y done'], say = 'All.' }, { when = 'done', say = 'More.' }]")
    answers = [(await play.hears(text)).answer or "" for text in ("y done", "y done", "x done")]
    assert [answer.rpartition("] ")[2] for answer in answers] == ["More.", "More.", "All."]


async def test_it_reads_of_a_transcript_only_what_its_steps_ask_for() -> None:
    play = Play("[{ say = 'A' }]")
    for _ in range(3):
        await play.hears("Hi")
    assert play.read == []
    await play.wakes("one")
    assert play.read == play.history[-1:]
    play = Play("[{ after = ['x'], say = 'A' }]")
    for _ in range(3):
        await play.hears("Hi")
    assert len(play.read) == 1 + 2 + 3


async def test_it_answers_each_thing_that_woke_it() -> None:
    play = Play(
        "[{ after = ['one', 'two'], say = 'Both, {from}.' }, { say = '{from}, {item}.',"
        " call = [{ operation = 'coordination.message_create', arguments = { to = ['{from}'] } }] }]"
    )
    ended = await play.wakes("one\n\nand more", "two")
    assert (ended.answer or "").endswith("] bob0, m0.\n\nBoth, bob1.")
    assert play.called == [("coordination.message_create", {"to": ["bob0"]})]


async def test_it_fills_in_names_and_what_a_step_found_in_one_go() -> None:
    play = Play(
        r"[{ when = 'take (?P<what>\S+)( now)?', ask = { kind = 'permission', title = 'Sure?' },"
        " say = '{agent_id} in {cwd}: {what}, {decision}, {unknown}',"
        " call = [{ operation = 'topics.sync', arguments = { '{what}' = [{ deep = '{what}' }, 1] } }] }]"
    )
    ended = await play.hears("take {decision}")
    assert (ended.answer or "").endswith("] ann in /srv: {decision}, permission: Sure?, {unknown}")
    assert play.called == [("topics.sync", {"{what}": [{"deep": "{decision}"}, 1]})]


async def test_it_stops_at_a_call_that_is_refused_and_says_so() -> None:
    calls = "[{ operation = 'control.no_way' }, { operation = 'control.never' }]"
    play = Play(f"[{{ call = {calls}, say = 'Done.' }}]")
    ended = await play.hears("Go")
    assert [name for name, _ in play.called] == ["control.no_way"]
    assert (ended.answer or "").endswith("Done.\n\ncontrol.no_way was refused: Not here.")


async def test_it_goes_on_after_a_call_that_may_be_refused() -> None:
    calls = "[{ operation = 'control.no_way', optional = true }, { operation = 'control.then' }]"
    play = Play(f"[{{ call = {calls}, say = 'Done.' }}]")
    assert ((await play.hears("Go")).answer or "").endswith("] Done.")
    assert [name for name, _ in play.called] == ["control.no_way", "control.then"]


async def test_it_writes_files_where_its_agent_may(tmp_path: Path) -> None:
    write = "[{ operation = 'tools.write_file', arguments = { path = '{place}/new.txt', content = '{place}' } }]"
    play = Play(f"[{{ when = 'in (?P<place>.+)', call = {write}, say = 'Written.' }}]")
    play.agent = PoolAgent(agent_id="ann", preset="sandboxed", cwd=str(tmp_path), write_paths=[str(tmp_path / "mine")])
    assert ((await play.hears("in mine")).answer or "").endswith("] Written.")
    assert (tmp_path / "mine" / "new.txt").read_text() == "mine"
    assert "tools.write_file was refused: " in ((await play.hears("in theirs")).answer or "")
    assert not (tmp_path / "theirs").exists()
    play.agent = PoolAgent(agent_id="ann", preset="worker", cwd=str(tmp_path))
    assert "this agent does not have it" in ((await play.hears("in mine")).answer or "")


async def test_it_runs_no_program() -> None:
    with pytest.raises(RunnerFailed, match=r"calls tools\.run, and a rehearsal has edit_file, "):
        await Play("[{ call = [{ operation = 'tools.run', arguments = { command = 'id' } }] }]").hears("Go")


async def test_it_calls_as_often_as_its_limit_allows_in_all() -> None:
    play = Play("[{ call = [{ operation = 'topics.a' }, { operation = 'topics.b' }] }]", max_iterations=3)
    ended = await play.wakes("one", "two")
    assert [name for name, _ in play.called] == ["topics.a", "topics.b", "topics.a"]
    assert (ended.halted, ended.iterations) == (True, 4)
    assert not (await Play("[{ call = [{ operation = 'topics.a' }] }]", max_iterations=1).hears("x")).halted


async def test_the_documented_script_is_played() -> None:
    page = (ROOT / "docs" / "how-to" / "run-a-pool.md").read_text()
    table = page.partition("<!-- A test plays this. -->\n```toml\n")[2].partition("```")[0]
    play = Play("[]")
    play.runner = Rehearsal.model_validate(tomllib.loads(table)["runners"]["stage"])
    assert ((await play.wakes("Please look at cache.py")).answer or "").endswith("bob0, I looked at cache.py.")
    [(name, arguments)] = play.called
    assert (name, arguments["parent_message_id"], arguments["body"]) == (
        "coordination.message_create",
        "m0",
        "cache.py is fine.",
    )


@pytest.mark.parametrize("step", ["{ fail = 'It broke.' }", "{ call = [{ operation = 'nowhere.a' }] }"])
async def test_it_fails_where_its_script_says_so_or_names_no_toolset(step: str) -> None:
    with pytest.raises(RunnerFailed, match=r"It broke\.|no toolset nowhere"):
        await Play(f"[{step}]").hears("Go")


@pytest.mark.parametrize(
    ("step", "where"),
    [
        ("{ when = '(' }", "script.0.when"),
        ("{ after = ['x', '['] }", "script.0.after.1"),
        ("{ say = 1 }", "script.0.say"),
        ("{ wait = -1 }", "script.0.wait"),
        ("{ says = 'x' }", "script.0.says"),
        ("{ call = [{ operation = 'agent_list' }] }", "script.0.call.0.operation"),
        ("{ ask = { kind = 'order', title = 'x' } }", "script.0.ask.kind"),
    ],
)
def test_a_wrong_script_is_refused_with_its_place(step: str, where: str, tmp_path: Path) -> None:
    assert_refused(tmp_path, f"script = [{step}]", where)
