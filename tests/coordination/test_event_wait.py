"""event_wait: a snapshot by default, else the first page that is not empty, or the timeout."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from coordination.log import selectors
from coordination.services.agents import hash_secret
from coordination.toolset import COORDINATION, arun, run
from nexus.core import waiting
from nexus.core.operations.caller import Caller
from nexus.core.operations.dispatch import aperform
from tests.conftest import LOCAL, Call
from tests.core.waiting import LONG, at_rest, follow, names, page_of, parked, put

pytestmark = pytest.mark.usefixtures("committed")


def hidden(call: Call, project: str) -> int:
    """Commit an event that ann does not see; its id."""
    call("agent_register", agent_id="bob")
    target = {"strategy": "direct", "agent_id": "bob"}
    sent = call("message_create", project_root=project, from_agent_id="eve", subject="s", body="b", target=target)
    return int(sent["event_id"])


@pytest.mark.parametrize("timeout", [{}, {"timeout_seconds": None}, {"timeout_seconds": 0}, {"timeout_seconds": -5}])
def test_it_is_a_snapshot_unless_told_to_wait(call: Call, project: str, timeout: dict[str, Any]) -> None:
    where = {"project_root": project, "agent_id": "ann", "stream": "workspace"}
    unseen = hidden(call, project)
    page = call("event_wait", **where, **timeout)
    assert page == {"events": [], "next_cursor": unseen, "has_more": False, "timed_out": True}
    call("artifact_put", project_root=project, artifact_type="text", content="c")
    assert call("event_wait", **where, **timeout) == call("event_get", **where)


def test_it_answers_at_once_when_there_is_something(call: Call, project: str) -> None:
    where = {"project_root": project, "agent_id": "ann", "stream": "workspace"}
    for _ in range(2):
        call("artifact_put", project_root=project, artifact_type="text", content="c")
    assert call("event_wait", **where, timeout_seconds=30, limit=1) == call("event_get", **where, limit=1)


@pytest.mark.parametrize("cursor", [None, 0, 3, 2**62])
def test_it_gives_the_entry_cursor_back_when_time_runs_out(
    call: Call, project: str, configure: Callable[..., None], cursor: int | None
) -> None:
    hidden(call, project)
    configure(max_wait_timeout_seconds=0)  # the ceiling: whatever is asked for, the wait is over at once
    page = call(
        "event_wait", project_root=project, agent_id="ann", stream="workspace", cursor=cursor, timeout_seconds=10**9
    )
    assert page == {"events": [], "next_cursor": cursor or 0, "has_more": False, "timed_out": True}


async def test_it_times_out_when_all_it_is_woken_for_is_hidden(project: str, call: Call) -> None:
    wait = follow(project, timeout_seconds=1)
    await parked()
    await asyncio.to_thread(hidden, call, project)
    assert await page_of(wait) == {"events": [], "next_cursor": 0, "has_more": False, "timed_out": True}


async def test_it_waits_for_the_first_event_that_matches(project: str, call: Call) -> None:
    wait = follow(project, filters={"type": "artifact.created"})
    await parked()
    await asyncio.to_thread(hidden, call, project)
    await put(project, "wanted")
    page = await page_of(wait)
    assert names(page) == ["wanted"]
    assert (page["timed_out"], page["has_more"]) == (False, False)
    assert page["next_cursor"] == page["events"][-1]["event_id"]


async def test_it_sleeps_through_other_streams_workspaces_and_filters(project: str, tmp_path: Any, call: Call) -> None:
    (tmp_path / "other").mkdir()
    asleep = [follow(project, stream="agent"), follow(str(tmp_path / "other")), follow(project, filters={"type": "x"})]
    awake = follow(project)
    await parked(4)
    await put(project, "here")
    assert names(await page_of(awake)) == ["here"]
    assert not any(wait.done() for wait in asleep)
    await put(str(tmp_path / "other"), "there")
    assert names(await page_of(asleep[1])) == ["there"]
    for wait in (asleep[0], asleep[2]):
        assert not wait.done()
        wait.cancel()


async def test_it_resumes_from_the_cursor_it_was_given(project: str) -> None:
    await put(project, "old")
    first = await page_of(follow(project))
    wait = follow(project, cursor=first["next_cursor"])
    await parked()
    await put(project, "new")
    assert names(await page_of(wait)) == ["new"]


async def test_it_looks_on_by_itself_through_a_log_that_takes_many_looks(
    project: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selectors, "EXAMINED_AT_ONCE", 2)
    assert (await arun(LOCAL, "agent_register", {"agent_id": "bob"}))["ok"]
    letter = {"project_root": project, "from_agent_id": "eve", "subject": "s", "body": "b"}
    for _ in range(7):
        assert (await arun(LOCAL, "message_create", {**letter, "target": {"strategy": "direct", "agent_id": "bob"}}))[
            "ok"
        ]
    await put(project, "for all")
    assert names(await page_of(follow(project))) == ["for all"]


async def test_it_checks_a_call_before_it_parks_it(project: str) -> None:
    bound = Caller("test", agent_id="bob")
    asked = {"project_root": project, "agent_id": "ann", "stream": "workspace", "timeout_seconds": 25}
    assert (await arun(bound, "event_wait", asked))["error"]["code"] == "NOT_OWNER"
    assert (await arun(LOCAL, "event_wait", {**asked, "stream": "x"}))["error"]["code"] == "INVALID_STREAM"
    nowhere = {**asked, "project_root": "/no/such"}
    assert (await arun(LOCAL, "event_wait", nowhere))["error"]["code"] == "WORKSPACE_UNRESOLVED"
    assert not waiting.waiter().parked


async def test_it_answers_a_wait_whose_key_died_with_a_refusal_and_no_later_news(project: str) -> None:
    operator = Caller("test", operator="olga")
    key = (await arun(operator, "agent_create", {"agent_id": "ann"}))["data"]["api_key"]
    bound = Caller("test", agent_id="ann", credential=hash_secret(key))
    asked = {"project_root": project, "agent_id": "ann", "stream": "workspace", "timeout_seconds": LONG}
    wait = asyncio.create_task(arun(bound, "event_wait", asked))
    await parked()
    await arun(operator, "agent_key_set_active", {"agent_id": "ann", "active": False})
    await put(project, "secret")
    assert (await asyncio.wait_for(wait, LONG))["error"]["code"] == "NOT_OWNER"


class Arguments(dict[str, Any]):
    """Arguments that can be looked after."""


async def test_it_holds_no_arguments_while_it_waits(project: str) -> None:
    given = Arguments(project_root=project, agent_id="ann", stream="workspace", timeout_seconds=LONG)
    wait = asyncio.create_task(aperform(COORDINATION, LOCAL, "event_wait", given))
    gone = weakref.ref(given)
    del given
    await at_rest(1)
    assert gone() is None
    await put(project, "x")
    assert (await asyncio.wait_for(wait, LONG)).data


async def test_it_leaves_nothing_behind_when_a_caller_goes_away(project: str) -> None:
    wait = follow(project)
    await parked()
    wait.cancel()
    with pytest.raises(asyncio.CancelledError):
        await wait
    assert not waiting.waiter().parked


async def test_it_waits_from_a_thread_as_from_a_loop(project: str) -> None:
    """As a transport without an event loop calls it."""
    asked = {"project_root": project, "agent_id": "ann", "stream": "workspace", "timeout_seconds": 25}
    wait = asyncio.create_task(asyncio.to_thread(run, LOCAL, "event_wait", asked))
    await put(project, "x")
    assert names(await page_of(wait)) == ["x"]
