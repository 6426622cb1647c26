"""A write that a relay sends again is done once, and answered as the first time."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext

from coordination.models import Session
from handoffs.models import Handoff, Remark
from inbox.models import Message
from mcp_bridge import recorded_calls
from mcp_bridge.models import RecordedCall
from mcp_bridge.recorded_calls import RelayedRequest
from nexus.core.operations import dispatch
from nexus.core.operations.caller import Caller
from nexus.core.operations.registry import TOOLSETS
from nexus.planning.models import Task
from nexus.topics import connections
from nexus.topics.models import TopicMessage as Post
from tests.conftest import Call, at_once, does

pytestmark = pytest.mark.usefixtures("committed", "team")

RELAY = Caller("relay", connection="stdio:1-0000000a")
TO_BOB = {"strategy": "direct", "agent_id": "bob"}
LOST = {"retryable": True, "may_be_done": True}


def sent(
    name: str, arguments: dict[str, Any], key: str = "a", *, slot: int = 0, again: bool = False, by: Caller = RELAY
) -> dict[str, Any]:
    """The answer to a call as it comes from a relay."""
    toolset = next(each for each in TOOLSETS.values() if name in each.operations)
    caller = replace(by, request=RelayedRequest(by, slot, key, repeated=again))
    return asyncio.run(dispatch.arun(toolset, caller, name, arguments))


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what this process knows of connections, as a new hub."""
    monkeypatch.setattr("nexus.core.operations.caller._joined", OrderedDict())
    monkeypatch.setattr(connections, "_held", OrderedDict())
    monkeypatch.setattr(connections, "_topics", {})


@pytest.fixture
def letter(project: str) -> dict[str, Any]:
    return {"project_root": project, "from_agent_id": "ana", "subject": "s", "body": "secret words", "target": TO_BOB}


@pytest.mark.parametrize("done", [True, False])
def test_a_repeated_write_gets_the_first_answer_also_where_it_was_not_done(letter: dict[str, Any], done: bool) -> None:
    first = sent("message_create", letter, again=not done)
    assert first["ok"]
    assert sent("message_create", letter, again=True) == first
    assert sent("message_create", letter, again=True) == first
    assert Message.objects.count() == 1


@pytest.fixture
def claim(call: Call, project: str) -> dict[str, Any]:
    """What bob says of a handoff for him."""
    made = call(
        "handoff_create", project_root=project, from_agent_id="ana", target=TO_BOB, visibility="public", payload={}
    )
    return {"project_root": project, "handoff_id": made["handoff_id"], "agent_id": "bob"}


def test_a_refusal_that_stores_nothing_is_not_recorded(call: Call, claim: dict[str, Any]) -> None:
    call("handoff_claim", **claim)
    assert sent("handoff_claim", claim)["error"]["code"] == "HANDOFF_ALREADY_CLAIMED"
    assert not RecordedCall.objects.exists()


def test_a_refusal_that_stores_something_stores_it_once(call: Call, claim: dict[str, Any]) -> None:
    """A result that comes when an operator has taken the handoff back."""
    call("handoff_claim", **claim)
    does("handoff_release", handoff_id=claim["handoff_id"])
    late = {**claim, "result": "42"}
    refused = sent("handoff_complete", late)
    assert refused["error"]["details"]["kept"]
    assert sent("handoff_complete", late, again=True) == refused
    assert Remark.objects.count() == 1


def test_a_handoff_is_claimed_and_completed_once(claim: dict[str, Any]) -> None:
    """The second of two claims, and of two completions, would be refused."""
    for key, name in (("a", "handoff_claim"), ("b", "handoff_complete")):
        first = sent(name, claim, key)
        assert first["ok"], first
        assert sent(name, claim, key, again=True) == first
    assert Handoff.objects.get().status == "COMPLETED"


def test_two_that_run_at_once_are_done_once(letter: dict[str, Any]) -> None:
    """The connection was lost, and not the hub: the first call goes on."""
    for key in map(str, range(5)):
        answers = at_once([partial(sent, "message_create", letter, key, again=again) for again in (False, True)])
        assert answers[0] == answers[1] and answers[0]["ok"]
    assert Message.objects.count() == 5


def test_the_second_that_ends_is_rolled_back(letter: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """It looked before the first one was committed."""
    first = sent("message_create", letter)
    with monkeypatch.context() as patched:
        patched.setattr(RelayedRequest, "outcome", lambda self: None)
        assert sent("message_create", letter, again=True) == first
    assert Message.objects.count() == 1


@pytest.mark.parametrize(
    "other",
    [{"by": replace(RELAY, connection="stdio:1-0000000b")}, {"by": replace(RELAY, agent_id="ana")}, {"key": "b"}],
    ids=["connection", "agent", "key"],
)
def test_nobody_gets_the_answer_to_anothers_request(letter: dict[str, Any], other: dict[str, Any]) -> None:
    first = sent("message_create", letter)
    second = sent("message_create", letter, again=True, **other)
    assert second["data"]["message_id"] != first["data"]["message_id"]


def test_the_store_holds_no_answer_that_can_be_read(letter: dict[str, Any]) -> None:
    sent("message_create", letter)
    sent("session_open", {"agent_id": "ana", "project_root": letter["project_root"]}, slot=1)
    for row in RecordedCall.objects.all():
        answer = bytes(row.answer or b"")
        assert answer and b"message_id" not in answer and b"secret" not in answer
        assert row.key != "a"


def test_an_answer_that_is_too_long_is_not_recorded(letter: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_calls, "LONGEST", 100)
    assert sent("message_create", letter)["ok"]
    assert sent("message_create", letter, again=True)["error"]["details"] == LOST
    assert Message.objects.count() == 1


def test_a_connection_has_as_many_rows_as_requests_at_once_until_an_hour_after_it_left(letter: dict[str, Any]) -> None:
    with time_machine.travel("2026-01-01T00:00:00Z", tick=False):
        for key in "abcd":
            sent("message_create", letter, key)
        assert RecordedCall.objects.count() == 1
    with time_machine.travel("2026-01-01T01:00:01Z", tick=False):
        sent("message_create", letter, by=replace(RELAY, connection="stdio:2-0000000b"))
    assert RecordedCall.objects.get().slot == "stdio:2-0000000b/0"


def test_what_may_simply_be_made_again_is_not_recorded_and_a_call_without_a_relay_costs_nothing(
    letter: dict[str, Any], call: Call
) -> None:
    for name in ("inbox_count", "agent_register"):
        assert sent(name, {"agent_id": "bob"})["ok"]
    assert not RecordedCall.objects.exists()
    with CaptureQueriesContext(connection) as queries:
        call("message_create", **letter)
    assert not any("mcp_recorded_calls" in query["sql"] for query in queries)


def test_a_repeated_call_with_own_transactions_is_done_once(project: str) -> None:
    task = {"project_root": project, "title": "t", "context": "c"}
    first = sent("task_add", task)
    assert first["ok"], first
    assert sent("task_add", task, again=True) == first
    assert sent("task_add", task, "b", again=True)["ok"]
    assert Task.objects.count() == 2


def test_a_call_with_own_transactions_that_was_interrupted_may_be_done(project: str) -> None:
    """Its transaction was committed, and the hub killed before it recorded the answer."""
    task = {"project_root": project, "title": "t", "context": "c"}
    sent("task_add", task)
    RecordedCall.objects.update(stage=recorded_calls.BEGUN, answer=None)
    assert sent("task_add", task, again=True)["error"]["details"] == LOST
    assert Task.objects.count() == 1


def test_a_repeated_join_opens_one_session(project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the new hub knows whose connection it is."""
    join = {"agent_id": "ana", "project_root": project}
    first = sent("join", join)
    forget(monkeypatch)
    assert sent("join", join, again=True) == first
    assert Session.objects.count() == 1
    assert sent("inbox_count", {})["ok"]


def test_a_repeated_message_to_a_topic_is_posted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = sent("topic_create", {"name": "here"})["topic_id"]
    joined = sent("topic_join", {"agent_name": "ana", "topic_id": topic}, "b")
    forget(monkeypatch)
    assert sent("topic_join", {"agent_name": "ana", "topic_id": topic}, "b", again=True) == joined
    post = {"topic_id": topic, "outbox": [{"content_markdown": "hello"}], "wait_seconds": 0}
    first = sent("sync", post, "c")
    assert sent("sync", post, "c", again=True) == first
    assert Post.objects.count() == 1


def test_a_repeated_wait_goes_on_and_is_answered_as_the_first(project: str) -> None:
    """What it had found and written is found again."""
    speaker = replace(RELAY, connection="stdio:2-0000000b")
    topic = sent("topic_create", {"name": "here"})["topic_id"]
    for key, by, name in (("b", RELAY, "ana"), ("c", speaker, "bob")):
        sent("topic_join", {"agent_name": name, "topic_id": topic}, key, by=by)
    waits = {"topic_id": topic, "wait_seconds": 60, "outbox": [{"content_markdown": "question"}]}
    toolset = TOOLSETS["topics"]

    async def waiting() -> Any:
        caller = replace(RELAY, request=RelayedRequest(RELAY, 0, "w", repeated=False))
        return await dispatch.arun(toolset, caller, "sync", waits)

    async def both() -> tuple[Any, Any]:
        first = asyncio.create_task(waiting())
        while not await asyncio.to_thread(Post.objects.count):
            await asyncio.sleep(0.01)
        post = {"topic_id": topic, "wait_seconds": 0, "outbox": [{"content_markdown": "answer"}]}
        await asyncio.to_thread(sent, "sync", post, "d", by=speaker)
        answer = await first
        again = replace(RELAY, request=RelayedRequest(RELAY, 0, "w", repeated=True))
        return answer, await dispatch.arun(toolset, again, "sync", waits)

    first, second = asyncio.run(both())
    assert first == second and first["received_count"] == 1
    assert Post.objects.count() == 2
