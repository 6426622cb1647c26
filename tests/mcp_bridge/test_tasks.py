"""Long calls as MCP's tasks: who gets one, what becomes of it, and who sees it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any, TypeVar

import pytest
import time_machine
from django.db import OperationalError
from django.test import Client as Browser
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp.client.client import Client
from mcp.client.extension import advertise
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    SubscriptionFilter,
    SubscriptionsListenRequest,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)

from coordination.models import Event
from coordination.services.agents import hash_secret
from coordination.toolset import arun, run
from mcp_bridge import maintenance, metrics, tasks
from mcp_bridge.models import Task
from mcp_bridge.server import build_server
from nexus.control.agents import turns
from nexus.control.models import Question, Turn, TurnStatus
from nexus.control.toolset import CONTROL
from nexus.core.operations import deferred
from nexus.core.operations.caller import Caller, of_its_own
from nexus.core.operations.errors import NexusError
from nexus.core.operations.registry import operations
from nexus.core.operations.runner import arun as arun_of
from nexus.core.waiting import READERS, WRITERS, in_thread
from tests.acceptance.hub import START_SECONDS
from tests.conftest import OPERATOR, examples
from tests.control import pool
from tests.mcp_bridge import tasking
from tests.mcp_bridge.conftest import Connect
from tests.mcp_bridge.tasking import Tasks, begun

LOCAL = Caller(transport="test")
MOMENT = datetime(2126, 3, 1, tzinfo=UTC)
HOUR = 3600
T = TypeVar("T")


@pytest.fixture
def browser() -> Browser:
    """A browser on this machine."""
    return Browser(headers={"host": "127.0.0.1:8420"})


@pytest.fixture
def declaring(connect: Connect) -> Connect:
    """Connect a client that declares the extension."""
    return partial(connect, extensions=[Tasks()])


def ok(name: str, **arguments: Any) -> dict[str, Any]:
    envelope = run(LOCAL, name, arguments)
    assert envelope["ok"], envelope
    data: dict[str, Any] = envelope["data"]
    return data


@pytest.fixture
def agents(committed: None) -> None:
    for agent_id in ("ana", "bob"):
        ok("agent_register", agent_id=agent_id)


@pytest.fixture
def asked(project: str, agents: None) -> dict[str, Any]:
    """An event_wait of ana's, for what is not there yet."""
    here = {"project_root": project, "agent_id": "ana", "stream": "workspace"}
    return {**here, "cursor": ok("event_cursor", **here)["cursor"], "timeout_seconds": HOUR}


@pytest.fixture
def looks(project: str, agents: None) -> dict[str, Any]:
    """A handoff_list_available of ana's."""
    return {"project_root": project, "agent_id": "ana", "timeout_seconds": HOUR}


async def stored(look: Callable[[], T]) -> T:
    """What the store holds."""
    return await in_thread(READERS, look)


def ids() -> list[str]:
    return list(Task.objects.order_by("created_at").values_list("pk", flat=True))


async def arun_control(name: str, **arguments: Any) -> None:
    assert (await arun_of(CONTROL, Caller(transport="test", operator="olga"), name, arguments))["ok"]


def replace_row(row: Task, task_id: str) -> Task:
    """The same task once more."""
    fields = {field.attname: getattr(row, field.attname) for field in Task._meta.fields}
    return Task(**{**fields, "task_id": task_id})


async def put(project: str, name: str = "x") -> None:
    arguments = {"project_root": project, "artifact_type": "text", "content": "c", "name": name}
    assert (await arun(LOCAL, "artifact_put", arguments))["ok"]


def test_it_is_for_the_four_calls_that_wait_for_others() -> None:
    deferrable = {each.name for each in operations() if each.wait is not None and each.wait.deferrable}
    assert deferrable == {"event_wait", "handoff_list_available", "ask_operator", "pool_send"}


async def test_it_answers_a_call_that_waits_with_a_task_and_the_task_with_what_came(
    declaring: Connect, asked: dict[str, Any], project: str
) -> None:
    async with declaring() as client:
        task = await begun(client, "event_wait", **asked)
        assert (task.status, task.poll_interval_ms) == ("working", 1_000)
        assert task.ttl_ms == (HOUR + 86_400) * 1_000
        await tasking.update(client.session, task.task_id)  # answers that nobody asked for
        assert (await tasking.get(client.session, task.task_id)).status == "working"
        await put(project)
        ended = await tasking.get(client.session, task.task_id)
        events = ended.envelope()["data"]["events"]
        assert [event["payload"]["name"] for event in events] == ["x"]
        await put(project, "later")
        assert await tasking.get(client.session, task.task_id) == ended


@pytest.mark.parametrize("timeout_seconds", [0, HOUR])
async def test_a_task_honours_the_profile_of_its_call(
    declaring: Connect, asked: dict[str, Any], project: str, timeout_seconds: int
) -> None:
    async with declaring() as client:
        task = await begun(client, "event_wait", **asked, profile="summary")
        await put(project)
        ended = (await tasking.get(client.session, task.task_id)).envelope()["data"]
        now_there = {**asked, "profile": "summary", "timeout_seconds": timeout_seconds}
        there: Any = await client.session.call_tool("event_wait", now_there, allow_claimed=True)
        assert ended["events"] and ended["events"] == there.structured_content["data"]["events"]
        assert ended["payload_bytes"] and "payload" not in ended["events"][0]


async def test_it_is_transparent_to_a_client_that_lets_the_sdk_poll(
    declaring: Connect, connect: Connect, asked: dict[str, Any], project: str
) -> None:
    async with declaring() as client, connect() as plain:
        waiting = asyncio.create_task(client.call_tool("event_wait", asked))
        await asyncio.sleep(0)
        await put(project)
        mine = await waiting
        theirs = await plain.call_tool("event_wait", asked)
        assert mine.structured_content == theirs.structured_content and mine.content == theirs.content


async def test_it_answers_at_once_where_nothing_is_to_be_waited_for(
    declaring: Connect, asked: dict[str, Any], project: str
) -> None:
    async with declaring() as client:
        snapshot = await client.session.call_tool("event_wait", {**asked, "timeout_seconds": 0}, allow_claimed=True)
        refused = await client.session.call_tool("event_wait", {**asked, "stream": "no"}, allow_claimed=True)
        await put(project)
        there = await client.session.call_tool("event_wait", asked, allow_claimed=True)
    told: list[Any] = [getattr(answer, "structured_content", None) for answer in (snapshot, refused, there)]
    assert [each["ok"] for each in told] == [True, False, True]
    assert told[0]["data"]["timed_out"] and told[2]["data"]["events"]
    assert not await stored(ids)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_it_leaves_other_clients_what_they_had(
    connect: Connect, asked: dict[str, Any], mode: str, configure: Callable[..., None]
) -> None:
    configure(max_wait_timeout_seconds=1)
    async with connect(mode=mode, extensions=[] if mode == "auto" else [advertise(Tasks.identifier)]) as client:
        answer = await client.call_tool("event_wait", asked)
        declared = (client.server_capabilities.extensions or {}) if mode == "legacy" else {}
        with pytest.raises(MCPError) as refused:
            await tasking.get(client.session, "any")
    assert answer.structured_content is not None and answer.structured_content["data"]["timed_out"]
    assert not await stored(ids) and Tasks.identifier not in declared
    assert refused.value.code == (METHOD_NOT_FOUND if mode == "legacy" else MISSING_REQUIRED_CLIENT_CAPABILITY)
    if mode == "auto":
        assert refused.value.data == {"requiredCapabilities": {"extensions": {Tasks.identifier: {}}}}


async def test_it_tells_of_itself_and_knows_no_method_of_the_tasks_of_old(declaring: Connect) -> None:
    async with declaring() as client:
        assert (client.server_capabilities.extensions or {}).get(Tasks.identifier) == {}
        for method in ("tasks/list", "tasks/result"):
            about = tasking.AboutTask(method=method, params=tasking.Of(task_id="x"))
            with pytest.raises(MCPError) as unknown:
                await client.session.send_request(about, tasking.Task)
            assert unknown.value.code == METHOD_NOT_FOUND


async def test_it_finds_handoffs_that_are_offered_meanwhile(
    declaring: Connect, looks: dict[str, Any], project: str
) -> None:
    async with declaring("ana") as client:
        task = await begun(client, "handoff_list_available", **looks)
        offer = {"project_root": project, "from_agent_id": "bob", "target": {"strategy": "broadcast"}}
        made = await arun(LOCAL, "handoff_create", {**offer, "visibility": "public", "payload": "scan it"})
        found = (await tasking.get(client.session, task.task_id)).envelope()["data"]["handoffs"]
    assert [handoff["handoff_id"] for handoff in found] == [made["data"]["handoff_id"]]


async def test_it_ends_with_what_the_call_answers_in_vain_when_its_time_is_over(
    declaring: Connect, asked: dict[str, Any]
) -> None:
    with time_machine.travel(MOMENT, tick=False) as clock:
        async with declaring() as client:
            task = await begun(client, "event_wait", **asked)
            clock.shift(timedelta(seconds=HOUR - 1))
            assert (await tasking.get(client.session, task.task_id)).status == "working"
            clock.shift(timedelta(seconds=1))
            assert (await tasking.get(client.session, task.task_id)).envelope()["data"]["timed_out"]


async def test_it_ends_where_the_clock_that_it_began_by_was_a_day_ahead(
    declaring: Connect, asked: dict[str, Any]
) -> None:
    with time_machine.travel(MOMENT, tick=False) as clock:
        async with declaring() as client:
            clock.shift(timedelta(days=1))
            task = await begun(client, "event_wait", **asked)
            assert (await tasking.get(client.session, task.task_id)).status == "working"
            clock.shift(timedelta(days=-1))
            assert (await arun(LOCAL, "agent_list", {}))["ok"]  # any call looks for such times
            assert (await tasking.get(client.session, task.task_id)).envelope()["data"]["timed_out"]


async def test_it_is_gone_a_day_after_its_time(declaring: Connect, asked: dict[str, Any]) -> None:
    with time_machine.travel(MOMENT, tick=False) as clock:
        async with declaring() as client:
            task = await begun(client, "event_wait", **asked)
            clock.shift(timedelta(milliseconds=task.ttl_ms))
            with pytest.raises(MCPError) as gone:
                await tasking.get(client.session, task.task_id)
            assert gone.value.code == INVALID_PARAMS
            await begun(client, "event_wait", **asked)
    assert len(await stored(ids)) == 1  # who begins another pays for those that expired


async def test_it_keeps_a_wait_within_a_day(declaring: Connect, asked: dict[str, Any]) -> None:
    async with declaring() as client:
        task = await begun(client, "event_wait", **{**asked, "timeout_seconds": 10**9})
    assert task.ttl_ms == 2 * 86_400 * 1_000


async def test_it_is_cancelled_once_and_for_all(declaring: Connect, asked: dict[str, Any], project: str) -> None:
    async with declaring() as client:
        task = await begun(client, "event_wait", **asked)
        await tasking.cancel(client.session, task.task_id)
        await put(project)
        await tasking.cancel(client.session, task.task_id)
        cancelled = await tasking.get(client.session, task.task_id)
        here = {name: asked[name] for name in ("project_root", "agent_id", "stream")}
        newest = (await arun(LOCAL, "event_cursor", here))["data"]["cursor"]
        ended = await begun(client, "event_wait", **{**asked, "cursor": newest})
        await arun(LOCAL, "artifact_put", {})
    assert (cancelled.status, cancelled.result) == ("cancelled", None)
    assert ended.status == "working"


@pytest.mark.parametrize("method", [tasking.get, tasking.cancel, tasking.update])
async def test_it_is_no_other_agents(declaring: Connect, asked: dict[str, Any], method: Callable[..., Any]) -> None:
    async with declaring("ana") as ana, declaring("bob") as bob, declaring() as trusted:
        task = await begun(ana, "event_wait", **asked)
        with pytest.raises(MCPError) as foreign:
            await method(bob.session, task.task_id)
        with pytest.raises(MCPError) as unknown:
            await method(bob.session, "x" * len(task.task_id))
        assert foreign.value.code == unknown.value.code == INVALID_PARAMS
        assert str(foreign.value).replace(task.task_id, "x" * len(task.task_id)) == str(unknown.value)
        assert (await tasking.get(ana.session, task.task_id)).status == "working"
        assert (await tasking.get(trusted.session, task.task_id)).status == "working"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(40))
@given(task_id=st.one_of(st.text(), st.sampled_from(["", "\0", "%", "../x", "x" * 100_000, "' OR 1=1 --"])))
def test_it_refuses_any_id_that_it_did_not_give(committed: None, task_id: str) -> None:
    with pytest.raises(NexusError) as unknown:
        tasks.find(task_id, LOCAL)
    assert unknown.value.code == "NOT_FOUND" and len(unknown.value.message) < 200


@pytest.fixture
def session(agents: None, project: str) -> dict[str, Any]:
    """A session of ana's."""
    workspace_id = ok("workspace_resolve", project_root=project)["workspace_id"]
    return ok("session_open", agent_id="ana", workspace_id=workspace_id)


async def test_it_keeps_no_secret(declaring: Connect, session: dict[str, Any]) -> None:
    asked = {"agent_id": "ana", "title": "May I?", **{key: session[key] for key in ("session_id", "session_secret")}}
    async with declaring("ana", chosen=["control"]) as client:
        task = await begun(client, "ask_operator", **asked)
        assert (await tasking.get(client.session, task.task_id)).status == "working"
    row = await stored(Task.objects.get)
    assert session["session_id"] in row.arguments
    assert session["session_secret"] not in row.arguments + row.answered


async def test_it_answers_without_a_task_beyond_an_agents_share(
    declaring: Connect, asked: dict[str, Any], configure: Callable[..., None], monkeypatch: Any
) -> None:
    monkeypatch.setattr(tasks, "MOST_WAITING", 2)
    configure(max_wait_timeout_seconds=1)
    async with declaring("ana") as ana, declaring("bob") as bob:
        for _ in range(2):
            await begun(ana, "event_wait", **asked)
        plain = await ana.session.call_tool("event_wait", asked, allow_claimed=True)
        await begun(bob, "event_wait", **{**asked, "agent_id": "bob"})
    assert plain.structured_content["data"]["timed_out"]  # type: ignore[union-attr]
    assert len(await stored(ids)) == 3


async def test_it_counts_none_that_nobody_came_back_for(
    declaring: Connect, asked: dict[str, Any], monkeypatch: Any
) -> None:
    """A client that never asks again must not cost its agent the tasks of a day."""
    monkeypatch.setattr(tasks, "MOST_WAITING", 1)
    monkeypatch.setattr(tasks, "MOST_OVER", 1)
    with time_machine.travel(MOMENT, tick=False) as clock:
        async with declaring("ana") as client:
            for _ in range(4):
                await begun(client, "event_wait", **asked)
                clock.shift(timedelta(seconds=HOUR))
    assert len(await stored(ids)) == 2


async def test_it_keeps_the_newest_results_of_an_agent(
    declaring: Connect, asked: dict[str, Any], project: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr(tasks, "MOST_OVER", 2)
    async with declaring("ana") as client:
        begun_ids = [(await begun(client, "event_wait", **asked)).task_id for _ in range(4)]
        await put(project)
        for task_id in begun_ids[:3]:
            assert (await tasking.get(client.session, task_id)).status == "completed"
        assert await stored(ids) == begun_ids[1:]
        monkeypatch.setattr(tasks, "MOST_BYTES", 10)
        assert (await tasking.get(client.session, begun_ids[3])).status == "completed"
    assert await stored(ids) == begun_ids[3:]


async def test_it_lives_on_in_another_server_over_the_same_store(
    declaring: Connect, asked: dict[str, Any], project: str
) -> None:
    async with declaring("ana") as client:
        task = await begun(client, "event_wait", **asked)
    await put(project)
    async with declaring("ana") as client:
        assert (await tasking.get(client.session, task.task_id)).envelope()["data"]["events"]


async def test_it_keeps_its_place_in_a_log_that_no_look_reads_to_the_end(
    declaring: Connect, asked: dict[str, Any], project: str, monkeypatch: Any
) -> None:
    from coordination.log import selectors

    async with declaring("ana") as client:
        task = await begun(client, "event_wait", **{**asked, "filters": {"type": "artifact.none"}})
        monkeypatch.setattr(selectors, "FILTERED_AT_ONCE", 1)
        monkeypatch.setattr(deferred, "MOST_LOOKS", 2)
        for number in range(8):
            await put(project, str(number))
        before = (await stored(Task.objects.get)).answered
        assert (await tasking.get(client.session, task.task_id)).status == "working"
        assert (await stored(Task.objects.get)).answered != before


async def test_it_ends_once_however_many_look(
    declaring: Connect, asked: dict[str, Any], project: str, monkeypatch: Any
) -> None:
    """Who looks later finds more: whoever is first to write has found the answer."""
    both, look = threading.Barrier(2, timeout=START_SECONDS), deferred.look
    finds = count(1)

    def looked(*given: Any) -> deferred.Deferred:
        found = look(*given)
        both.wait()  # neither has written
        return replace(found, data={**found.data, "next_cursor": next(finds)})

    monkeypatch.setattr(deferred, "look", looked)
    async with declaring() as client:
        task = await begun(client, "event_wait", **asked)
        await put(project)
        one, other = await asyncio.gather(*(tasking.get(client.session, task.task_id) for _ in range(2)))
    assert one.envelope() == other.envelope()


async def test_it_stays_cancelled_when_a_look_was_under_way(
    declaring: Connect, asked: dict[str, Any], project: str, monkeypatch: Any
) -> None:
    look = deferred.look

    def looked(caller: Caller, call: deferred.Deferred) -> deferred.Deferred:
        found = look(caller, call)
        asyncio.run(tasks.cancel(Task.objects.get().pk, caller))
        return found

    async with declaring() as client:
        task = await begun(client, "event_wait", **asked)
        await put(project)
        monkeypatch.setattr(deferred, "look", looked)
        told = await tasking.get(client.session, task.task_id)
    assert (told.status, told.result) == ("cancelled", None)


async def test_it_is_begun_with_its_call_or_not_at_all(declaring: Connect, agents: None, monkeypatch: Any) -> None:
    """What ended between the two would leave a question that nobody waits for."""

    def fails(**given: Any) -> None:
        raise OSError

    monkeypatch.setattr(Task.objects, "create", fails)
    async with declaring("ana", chosen=["control"]) as client:
        answer = await client.session.call_tool("ask_operator", {"agent_id": "ana", "title": "?"}, allow_claimed=True)
    assert answer.structured_content["error"]["code"] == "INTERNAL_ERROR"  # type: ignore[union-attr]
    assert not await stored(Question.objects.exists)


async def test_it_tells_the_answer_of_a_person(declaring: Connect, agents: None) -> None:
    async with declaring("ana", chosen=["control"]) as client:
        task = await begun(client, "ask_operator", agent_id="ana", title="Which?", client_id="q1")
        again = await begun(client, "ask_operator", agent_id="ana", title="Which?", client_id="q1")
        [question] = await stored(lambda: list(Question.objects.all()))
        await arun_control("pool_answer", question_id=question.pk, words="That one.")
        for each in (task, again):
            ended = (await tasking.get(client.session, each.task_id)).envelope()["data"]
            assert (ended["status"], ended["words"]) == ("answered", "That one.")


async def test_it_refuses_by_time_what_nobody_answered(declaring: Connect, agents: None) -> None:
    with time_machine.travel(MOMENT, tick=False) as clock:
        async with declaring("ana", chosen=["control"]) as client:
            task = await begun(client, "ask_operator", agent_id="ana", title="Which?", timeout_seconds=80_000)
            expires_at = (await stored(Question.objects.get)).expires_at
            clock.move_to(expires_at)
            ended = (await tasking.get(client.session, task.task_id)).envelope()["data"]
    assert ended["status"] == "expired"
    assert (await stored(Question.objects.get)).ended_at is not None


@pytest.fixture
def helper(agents: None, configure: Callable[..., None]) -> None:
    """An agent of the pool that nobody works for."""
    configure(control=True)
    pool.create("helper")


@pytest.mark.parametrize("status", [TurnStatus.DONE, TurnStatus.FAILED])
async def test_it_sends_once_and_tells_how_the_turn_ended(declaring: Connect, helper: None, status: TurnStatus) -> None:
    def ends() -> None:
        turn = Turn.objects.get()
        turns.claim(turn.pk)
        done = status == TurnStatus.DONE
        turns.settle(turn, turns.Ended(status, "I did." if done else "", why="" if done else "no model", iterations=1))

    async with declaring(chosen=["control"]) as client:
        task = await begun(client, "pool_send", agent_id="helper", content="Go on.")
        for _ in range(3):
            assert (await tasking.get(client.session, task.task_id)).status == "working"
        await in_thread(WRITERS, ends)
        ended = await tasking.get(client.session, task.task_id)
    if status == TurnStatus.DONE:
        assert ended.envelope()["data"]["content"] == "I did."
    else:
        assert ended.result is not None and ended.result.is_error
        assert ended.envelope()["error"]["code"] == "TURN_FAILED"
    assert await stored(Turn.objects.count) == 1


async def test_operators_see_who_waits_for_what_and_end_it(
    declaring: Connect, asked: dict[str, Any], looks: dict[str, Any], project: str
) -> None:
    async with declaring() as client:
        first = await begun(client, "event_wait", **asked)
        second = await begun(client, "handoff_list_available", **looks)
        page = await listed(limit=1)
        (row,) = page["tasks"]
        assert (row["task_id"], row["agent_id"], row["operation"]) == (second.task_id, "ana", "handoff_list_available")
        assert row["since"] < row["until"] and json.loads(row["arguments"])["project_root"] == project
        (row,) = (await listed(limit=1, cursor=page["next_cursor"]))["tasks"]
        assert row["task_id"] == first.task_id
        assert (await listed(agent_id="bob")) == {"tasks": [], "next_cursor": None}

        ended = await arun(OPERATOR, "mcp_task_cancel", {"task_id": second.task_id})
        assert ended["data"] == {"task_id": second.task_id, "status": "cancelled"}
        assert (await tasking.get(client.session, second.task_id)).status == "cancelled"
        assert [row["task_id"] for row in (await listed())["tasks"]] == [first.task_id]
        assert {row["status"] for row in (await listed(which="kept"))["tasks"]} == {"working", "cancelled"}

        await put(project)
        assert (await tasking.get(client.session, first.task_id)).status == "completed"
        again = await arun(OPERATOR, "mcp_task_cancel", {"task_id": first.task_id})
        assert again["data"]["status"] == "completed", "one that ended stays as it is"
    acts = await stored(lambda: list(Event.objects.filter(type="operator.acted").values_list("payload", flat=True)))
    assert [(act["operation"], act["task_id"]) for act in acts] == [("mcp_task_cancel", second.task_id)]


async def listed(**arguments: Any) -> dict[str, Any]:
    envelope = await arun(OPERATOR, "mcp_task_list", arguments)
    assert envelope["ok"], envelope
    data: dict[str, Any] = envelope["data"]
    return data


@pytest.mark.parametrize("name", ["mcp_task_list", "mcp_task_cancel"])
def test_no_agent_sees_the_tasks_of_others(agents: None, name: str) -> None:
    refused = run(Caller(transport="test", agent_id="ana"), name, {"task_id": "x"} if "cancel" in name else {})
    assert refused["error"]["code"] == "NOT_OWNER"


@pytest.mark.parametrize("cursor", ["", "x", "W10=", "\x00", "\u00e9", "WyIiLCAiIl0="])
def test_it_refuses_a_cursor_that_is_none(agents: None, cursor: str) -> None:
    assert run(OPERATOR, "mcp_task_list", {"cursor": cursor})["error"]["code"] == "VALIDATION_ERROR"


async def test_the_page_of_an_agent_shows_its_calls_that_wait(
    declaring: Connect, looks: dict[str, Any], browser: Browser
) -> None:
    async with declaring() as client:
        task = await begun(client, "handoff_list_available", **looks)
        page = await stored(lambda: browser.get("/admin/agents/ana/").content.decode())
        button = f"mcp_task_cancel {task.task_id}"
        assert "handoff_list_available" in page and button in page
        await in_thread(WRITERS, lambda: browser.post("/admin/act/", {"do": button, "next": "/admin/agents/ana/"}))
        assert (await tasking.get(client.session, task.task_id)).status == "cancelled"
        assert button not in await stored(lambda: browser.get("/admin/agents/ana/").content.decode())


@pytest.mark.parametrize(("leaving", "status"), [("leave", "queued"), ("cancel", "cancelled")])
async def test_it_cancels_a_turn_as_the_call_says(declaring: Connect, helper: None, leaving: str, status: str) -> None:
    async with declaring(chosen=["control"]) as client:
        task = await begun(client, "pool_send", agent_id="helper", content="Go on.", on_disconnect=leaving)
        await tasking.cancel(client.session, task.task_id)
        assert (await tasking.get(client.session, task.task_id)).status == "cancelled"
    assert (await stored(Turn.objects.get)).status == status


async def test_it_sends_nothing_where_it_may_not_become_a_task(
    declaring: Connect, helper: None, monkeypatch: Any
) -> None:
    """The call is made anew, without a task: what was begun for one is undone."""
    monkeypatch.setattr(tasks, "MOST_WAITING", 0)
    async with declaring(chosen=["control"]) as client:
        asked = {"agent_id": "helper", "content": "Go on.", "timeout_seconds": 0.01}
        answer = await client.session.call_tool("pool_send", asked, allow_claimed=True)
    assert answer.structured_content["data"]["status"] == "queued"  # type: ignore[union-attr]
    assert await stored(Turn.objects.count) == 1


async def test_it_serves_a_hundred_tasks(
    declaring: Connect, asked: dict[str, Any], project: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr(tasks, "MOST_WAITING", 100)
    monkeypatch.setattr(tasks, "MOST_OVER", 100)
    async with declaring("ana") as client:
        first = await begun(client, "event_wait", **asked)
        row = await stored(Task.objects.get)
        copies = [replace_row(row, f"copy-{number}") for number in range(99)]
        await in_thread(WRITERS, lambda: Task.objects.bulk_create(copies))
        await put(project)
        ids = [first.task_id, *(copy.pk for copy in copies)]
        ended = await asyncio.gather(*(tasking.get(client.session, task_id) for task_id in ids))
    assert {task.status for task in ended} == {"completed"}


def listens(client: Client, task_ids: Any) -> asyncio.Task[Any]:
    """Listen for the end of tasks."""
    filters = SubscriptionFilter.model_validate({"taskIds": task_ids})
    listen = SubscriptionsListenRequest(params=SubscriptionsListenRequestParams(notifications=filters))
    return asyncio.create_task(client.session.send_request(listen, SubscriptionsListenResult))


async def test_it_tells_a_listener_of_its_end(connect: Connect, asked: dict[str, Any], project: str) -> None:
    heard: asyncio.Queue[tasking.Task] = asyncio.Queue()
    async with connect("ana", extensions=[Tasks(heard)]) as client, connect("bob", extensions=[Tasks()]) as bob:
        foreign = await begun(bob, "event_wait", **{**asked, "agent_id": "bob"})
        task = await begun(client, "event_wait", **asked)
        listening = listens(client, [task.task_id, foreign.task_id, "none"])
        await put(project)
        told = await asyncio.wait_for(heard.get(), START_SECONDS)
        assert told.task_id == task.task_id and told.envelope()["data"]["events"]
        assert told.result == (await tasking.get(client.session, task.task_id)).result
        listening.cancel()
    assert heard.empty()


@pytest.mark.parametrize("why", ["the key is good no more", "the store is away"])
async def test_it_ends_the_stream_of_a_listener_whom_it_can_tell_no_more(
    asked: dict[str, Any], project: str, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    key = (await arun(OPERATOR, "agent_key_issue", {"agent_id": "ana"}))["data"]["api_key"]
    bound = Caller("memory", agent_id="ana", connection=of_its_own("memory"), credential=hash_secret(key))
    heard: asyncio.Queue[tasking.Task] = asyncio.Queue()
    really, looked = tasks.get, asyncio.Event()

    async def get(task_id: str, caller: Caller) -> Task:
        if why == "the store is away" and looked.is_set():
            raise OperationalError("away")
        found = await really(task_id, caller)
        looked.set()
        return found

    monkeypatch.setattr(tasks, "get", get)
    async with Client(build_server(lambda context: bound), extensions=[Tasks(heard)]) as client:
        listening = listens(client, [(await begun(client, "event_wait", **asked)).task_id])
        await asyncio.wait_for(looked.wait(), START_SECONDS)  # a look that is still on its way sees what is put
        if why == "the key is good no more":
            assert (await arun(OPERATOR, "agent_key_set_active", {"agent_id": "ana", "active": False}))["ok"]
        await put(project)
        assert isinstance(await asyncio.wait_for(listening, START_SECONDS), SubscriptionsListenResult)
    assert heard.empty()


@pytest.mark.parametrize("wrong", ["x", [1], ["x"] * 101, {}])
async def test_it_refuses_a_list_of_tasks_that_is_none(declaring: Connect, agents: None, wrong: Any) -> None:
    async with declaring("ana") as client:
        with pytest.raises(MCPError) as refused:
            await listens(client, wrong)
    assert refused.value.code == INVALID_PARAMS


async def test_it_tells_only_those_of_tasks_who_declared_them(connect: Connect, agents: None) -> None:
    async with connect("ana") as client:
        with pytest.raises(MCPError) as refused:
            await listens(client, ["x"])
    assert refused.value.code == MISSING_REQUIRED_CLIENT_CAPABILITY


async def test_retention_deletes_those_that_expired(declaring: Connect, asked: dict[str, Any]) -> None:
    [lane] = maintenance.LANES
    async with declaring() as client:
        await begun(client, "event_wait", **asked)
    expires_at = (await stored(Task.objects.get)).expires_at
    assert not await stored(lane.rows(expires_at).exists)
    assert await stored(lane.rows(expires_at + timedelta(seconds=1)).exists)


async def test_metrics_count_tasks_by_state(declaring: Connect, asked: dict[str, Any]) -> None:
    async with declaring() as client:
        await begun(client, "event_wait", **asked)
    [family] = await stored(lambda: list(metrics.collect()))
    assert {sample.labels["status"]: sample.value for sample in family.samples} == {
        "working": 1,
        "completed": 0,
        "cancelled": 0,
    }
