"""What an agent process tells of its session: kept, shown, and chosen from."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from acp.schema import AvailableCommand
from django.test import Client as Browser

from coordination.models import Event
from nexus.control.models import Entry, PoolAgent, Role, Turn
from nexus.control.runners import acp_session, sandbox, traffic
from nexus.control.runners.base import RunnerFailed
from nexus.control.worker.scheduling import Worker
from nexus.core.config import CoreSettings
from nexus.core.waiting import READERS, WRITERS, in_thread, waiter
from tests.control.acp_here import played, taken_here
from tests.control.playing import at_hand, pool, refused, say, send, take
from tests.control.pool import Take, acreate, asend, create, ended, said
from tests.control.test_acp import AGENT
from tests.control.test_gone_directory import place
from tests.pages import shown

__all__ = ["at_hand", "place"]

MODES = [{"value": name, "name": name} for name in ("auto", "ask", "free")]
SIZES = [{"value": "small", "name": "Small"}, {"value": "large", "name": "Large"}]
TOLD = {
    "sign_in": [],
    "options": [
        {"id": "mode", "name": "Mode", "value": "auto", "choices": MODES},
        {"id": "model", "name": "Model", "value": "small", "choices": SIZES},
        {"id": "deep", "name": "Deep", "value": False, "choices": []},
    ],
    "commands": [{"name": "plan", "description": "Make a plan", "hint": "goal"}],
    "context": {"used": 10, "size": 100},
}


Plays = Callable[[Take], None]
PLAIN = AGENT.with_name("acp_plain.py")


async def made(place: Path, *flags: str, program: Path = AGENT) -> None:
    command = json.dumps([sys.executable, str(program), *flags])
    text = f'[runners.agent]\nkind = "acp"\ncommand = {command}\nread_paths = ["{AGENT.parents[2]}"]\n'
    (CoreSettings.current().home / "runners.toml").write_text(text)
    more = {"runner": "agent", "cwd": str(place)}
    await in_thread(WRITERS, partial(create, "ann", **more))


async def call(operation: str, **arguments: Any) -> Any:
    return await in_thread(WRITERS, partial(pool, operation, agent_id="ann", **arguments))


async def test_what_it_tells_is_kept_and_chosen_from(worker: Worker, place: Path, plays: Plays) -> None:
    plays(taken_here("--options"))
    await acreate("ann")
    turn = await ended(await asend("ann", "options"))
    assert (turn.status, turn.answer) == ("done", "auto small False"), turn.why
    session = (await call("pool_get_context"))["session"]
    values = {option["id"]: option["value"] for option in session["options"]}
    assert values == {"mode": "ask", "model": "large", "deep": False}, "as it changed them itself"
    assert session["commands"] == TOLD["commands"] and session["chosen"] == {}
    received = [line["text"] for line in traffic.lines_of("ann", turn.pk) if line["what"] == "received"]
    assert any("of_tomorrow" in text for text in received), "what no client knows is in the trace"
    for option, value in {"mode": "free", "model": "large", "deep": True}.items():
        chosen = await call("pool_set_option", option=option, value=value)
    assert chosen["chosen"] == {"mode": "free", "model": "large", "deep": True}
    assert (await ended(await asend("ann", "options"))).answer == "free large True"
    await call("pool_set_option", option="model", value=None)
    assert (await ended(await asend("ann", "options"))).answer == "free small True"


@pytest.mark.usefixtures("starts_processes")
async def test_models_of_an_older_agent_are_chosen_from_too(worker: Worker, place: Path) -> None:
    await made(place, "--older", program=PLAIN)
    assert (await ended(await asend("ann", "hello"))).answer == "Hello from auto"
    choices = [{"value": "auto", "name": "Auto"}, {"value": "pro", "name": "Pro"}]
    session = (await call("pool_get_context"))["session"]
    assert session["options"] == [{"id": "model", "name": "Model", "value": "auto", "choices": choices}]
    await call("pool_set_option", option="model", value="pro")
    assert (await ended(await asend("ann", "hello"))).answer == "Hello from pro"
    assert (await call("pool_get_context"))["session"]["options"][0]["value"] == "pro"


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize(("flag", "cached"), [("--quota", None), ("--usage", 10)])
async def test_tokens_that_it_counts_outside_of_the_protocol_are_the_run_s(
    worker: Worker, place: Path, flag: str, cached: int | None
) -> None:
    await made(place, flag, program=PLAIN)
    turn = await ended(await asend("ann", "hello"))
    assert (turn.answer, turn.input_tokens, turn.output_tokens, turn.cached_tokens) == ("Hello", 80, 40, cached)


@pytest.mark.parametrize(
    "meta",
    [
        None,
        {},
        {"quota": None, "usage": None},
        {"quota": {"token_count": None}},
        {"quota": {"token_count": {"input_tokens": -1, "output_tokens": 2}}},
        {"quota": {"token_count": {"input_tokens": "many", "output_tokens": [3]}}},
        {"usage": [1]},
        {"usage": {"inputTokens": {"a": 1}}},
    ],
)
def test_what_is_no_count_of_tokens_counts_nothing(meta: Any) -> None:
    assert acp_session.tokens_in(meta) is None


async def test_one_that_is_offered_no_more_fails_the_turn_and_says_what_there_is(
    committed: None, at_hand: Path
) -> None:
    agent = await in_thread(WRITERS, partial(create, "ann", cwd=str(at_hand)))
    agent.options = {"model": "huge"}
    with pytest.raises(RunnerFailed, match="no model 'huge', only: none"):
        await played(agent).turn("hello")


async def test_a_login_that_it_wants_is_kept_with_the_ways(worker: Worker, place: Path, plays: Plays) -> None:
    plays(taken_here("--signed-out"))
    await acreate("ann")
    turn_id = await asend("ann", "hello")
    async with waiter().park(lambda event: event.type == "turn.put_back") as parked, asyncio.timeout(180):
        while not (await in_thread(READERS, lambda: Turn.objects.get(pk=turn_id))).put_back:
            await parked.wait(5)  # it waits for somebody to sign in
    session = (await call("pool_get_context"))["session"]
    assert session["signed_out"] is True
    kinds = [(way["id"], way["kind"]) for way in session["sign_in"]][:4]
    assert kinds == [("page", "agent"), ("key", "agent"), ("variable", "variables"), ("terminal", "terminal")]
    assert await said("ann") == ["hello"]


@pytest.mark.usefixtures("starts_processes")
async def test_it_and_people_read_that_what_it_wrote_in_private_memory_is_gone(worker: Worker, place: Path) -> None:
    if not sandbox.state().works:
        pytest.skip(f"no sandbox on this machine: {sandbox.state().why}")
    await made(place)
    await ended(await asend("ann", "lose /tmp/some/file"))
    assert not Path("/tmp/some/file").exists()
    told = await in_thread(WRITERS, lambda: (Entry.objects.get(role="tool").meta or {})["lost"])
    assert told.startswith("What was written at /tmp/some/file is gone")
    assert (await call("pool_get_context"))["session"]["lost"] == ["/tmp/some/file"]
    answers = [(await ended(await asend("ann", "repeat"))).answer or "" for _ in range(2)]
    assert [answer.startswith(f"[Nexus: {told}]\n\nNow:\n\n") for answer in answers] == [True, False]


@pytest.fixture
def told(at_hand: Path) -> PoolAgent:
    pool("pool_create_agent", agent_id="ann", cwd=str(at_hand))
    PoolAgent.objects.update(session=TOLD)
    return PoolAgent.objects.get()


@pytest.mark.parametrize(
    ("given", "field", "part"),
    [
        ({"option": "size", "value": "x"}, "option", "only: mode, model, deep"),
        ({"option": "mode", "value": "wild"}, "value", "auto, ask, free"),
        ({"option": "mode", "value": True}, "value", "auto, ask, free"),
        ({"option": "deep", "value": "true"}, "value", "true, false"),
    ],
)
def test_only_what_is_offered_can_be_chosen(told: PoolAgent, given: dict[str, Any], field: str, part: str) -> None:
    error = refused("pool_set_option", agent_id="ann", **given)
    assert (error["code"], error["details"]["field"]) == ("VALIDATION_ERROR", field) and part in error["message"]
    assert not Event.objects.filter(type="pool.option_set").exists()


def test_its_page_shows_and_sets_it(told: PoolAgent, browser: Browser) -> None:
    page = shown(browser.get(f"/admin/pool/{told.pk}/"))
    for part in ("10 of 100 tokens", "/plan goal", "Make a plan", "Large", "as the agent wants"):
        assert part in page
    assert "wants a login" not in page
    address, form = "/admin/act/", {"do": f"pool_set_option {told.pk}", "asked": "1"}
    for given in ({**form, "option": "model", "value": '"large"'}, {**form, "option": "deep", "value": "true"}):
        assert browser.post(address, given).status_code == 302
    told.refresh_from_db()
    assert told.options == {"model": "large", "deep": True}
    page = shown(browser.get(f"/admin/pool/{told.pk}/"))
    assert "model large" in page and '<option value=""large"" selected' in page, "what holds from the next turn"
    browser.post(address, {**form, "option": "model", "value": ""})
    told.refresh_from_db()
    assert told.options == {"deep": True}


def test_its_page_shows_its_plan_and_the_ways_to_sign_in(told: PoolAgent, browser: Browser) -> None:
    send("ann")
    say(take(), Role.ASSISTANT, "", meta={"plan": [{"content": "<b>look", "status": "in_progress", "priority": "low"}]})
    ways = [{"id": "page", "name": "<b>A page</b>", "kind": "agent"}, {"id": "v", "name": "Key", "kind": "variables"}]
    PoolAgent.objects.update(session={**TOLD, "sign_in": ways, "signed_out": True})
    page = browser.get(f"/admin/pool/{told.pk}/").content.decode()
    assert 'aria-label="Plan"' in page and "&lt;b&gt;look" in page and "in_progress" in page
    assert "nexus runners login rehearsal --method page" in page and "env_from" in page
    assert "<b>A page" not in page


def test_what_is_kept_of_very_much_is_bounded() -> None:
    many = [AvailableCommand(name=f"c{number}" * 99, description="d\0" * 9_999) for number in range(9_999)]
    commands = acp_session.commands(many)
    assert len(commands) == acp_session.MOST and "\0" not in json.dumps(commands)
    whole = {"commands": commands, "options": [{"id": "x" * 100, "choices": ["y" * 100] * 60}] * 60}
    assert len(json.dumps(acp_session.bounded(whole))) <= acp_session.LARGEST
