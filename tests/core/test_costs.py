"""What a hot operation costs the store: numbers that depend on no machine. One more needs a reason."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext

from coordination.toolset import arun, run
from nexus.core.access import ConnectionInfo, identify
from nexus.core.database.store import commits
from nexus.core.operations import dispatch
from nexus.core.waiting import waiter
from nexus.reservations.toolset import FILES
from tests.conftest import LOCAL, OPERATOR

pytestmark = [pytest.mark.usefixtures("committed", "counted_alone"), pytest.mark.sqlite]

DIRECT = {"strategy": "direct", "agent_id": "bob"}
COSTS = {  # of each call: statements in and before its transactions, and commits
    "agent_register": (5, 1),
    "session_heartbeat": (5, 1),
    "message_create": (7, 1),
    "message_create to all": (7, 1),
    "inbox_pull": (4, 1),
    "inbox_ack": (2, 1),
    "inbox_pull that acknowledges": (3, 1),
    "inbox_pull of nothing": (3, 0),
    "inbox_count": (1, 0),
    "event_get": (4, 0),
    "event_get of nothing": (2, 0),
    "event_wait": (4, 0),
    "handoff_create": (10, 1),
    "handoff_claim": (8, 1),
    "handoff_start": (6, 1),
    "handoff_complete": (10, 1),
    "files_reserve": (12, 1),
    "files_release": (6, 1),
}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """Call an operation of either toolset and get its data."""
    if name.startswith("files_"):
        return dict(dispatch.run(FILES, LOCAL, name, arguments))
    envelope = run(LOCAL, name, arguments)
    assert envelope["ok"], envelope
    return dict(envelope["data"])


@time_machine.travel(datetime(2026, 3, 1, 12, tzinfo=UTC), tick=False)
def test_a_hot_call_costs_what_it_did(project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordination.services.agents.RENEW_EVERY", timedelta(days=1))  # those of before do
    here = {"project_root": project}
    for agent_id in ("ana", "bob"):
        call("agent_register", agent_id=agent_id)
    workspace_id = call("workspace_resolve", **here)["workspace_id"]
    sessions = [call("session_open", agent_id=name, workspace_id=workspace_id) for name in ("ana", "bob")]
    found: dict[str, tuple[int, int]] = {}

    def cost(name: str, of: str = "", /, **arguments: Any) -> dict[str, Any]:
        before = commits()
        with CaptureQueriesContext(connection) as seen:
            data = call(name, **arguments)
        statements = [each["sql"] for each in seen if each["sql"].split()[0] not in ("BEGIN", "COMMIT")]
        found[f"{name} {of}".strip()] = len(statements), commits() - before
        return data

    cost("agent_register", agent_id="ana", role="planner")
    cost("session_heartbeat", session_id=sessions[0]["session_id"])
    mail = {**here, "from_agent_id": "ana", "subject": "s", "body": "b"}
    cost("message_create", **mail, target=DIRECT)
    cost("message_create", "to all", **mail)
    messages = cost("inbox_pull", agent_id="bob")["messages"]
    cost("inbox_ack", agent_id="bob", message_ids=[each["message_id"] for each in messages])
    handled = call("message_create", **mail, target=DIRECT)["message_id"]
    call("inbox_pull", agent_id="bob")
    cost("inbox_pull", "that acknowledges", agent_id="bob", ack_message_ids=[handled])
    cost("inbox_pull", "of nothing", agent_id="bob")
    cost("inbox_count", agent_id="bob")
    cursor = cost("event_get", **here, agent_id="bob", stream="workspace", cursor=0)["next_cursor"]
    cost("event_wait", **here, agent_id="bob", stream="workspace", cursor=cursor - 1, timeout_seconds=0)
    cost("event_get", "of nothing", **here, agent_id="bob", stream="workspace", cursor=cursor)
    offer = {**here, "from_agent_id": "ana", "target": DIRECT, "visibility": "public", "payload": "x"}
    by_bob = {**here, "agent_id": "bob", "handoff_id": cost("handoff_create", **offer)["handoff_id"]}
    cost("handoff_claim", **by_bob)
    cost("handoff_start", **by_bob)
    cost("handoff_complete", **by_bob, result="done")
    files = {**here, "agent_id": "ana", "paths": ["src/a.py"]}
    cost("files_reserve", **files)
    cost("files_release", **files)
    assert found == COSTS


def test_a_request_looks_its_key_up_once() -> None:
    call("agent_register", agent_id="bob")
    key = run(OPERATOR, "agent_key_issue", {"agent_id": "bob"})["data"]["api_key"]
    shown = ConnectionInfo("127.0.0.1", (("host", "127.0.0.1:7777"), ("x-api-key", key)), "")
    with CaptureQueriesContext(connection) as seen:
        answer = run(identify(shown, transport="rest"), "inbox_pull", {"agent_id": "bob"})
    assert answer["ok"]
    assert ["agent_keys" in each["sql"] for each in seen].count(True) == 1


def test_a_request_that_comes_slowly_has_its_key_looked_up_again() -> None:
    call("agent_register", agent_id="bob")
    key = run(OPERATOR, "agent_key_issue", {"agent_id": "bob"})["data"]["api_key"]
    shown = ConnectionInfo("127.0.0.1", (("host", "127.0.0.1:7777"), ("x-api-key", key)), "")
    caller = identify(shown, transport="rest")
    run(OPERATOR, "agent_key_set_active", {"agent_id": "bob", "active": False})
    late = replace(caller, verified_at=caller.verified_at - 2)  # seconds, in which its body came
    assert run(late, "inbox_pull", {"agent_id": "bob"})["error"]["code"] == "NOT_OWNER"


HOPS = {  # from the event loop to a thread
    "message_create": 1,
    "inbox_pull": 1,
    "inbox_ack": 1,
    "inbox_count": 0,
    "event_get": 0,
    "event_wait, woken": 0,
    "inbox_pull, woken": 1,
}


async def test_a_hot_call_goes_to_a_thread_once_at_most(project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"project_root": project, "agent_id": "bob", "stream": "workspace"}
    mail = {"project_root": project, "from_agent_id": "ana", "subject": "s", "body": "b", "target": DIRECT}
    found: dict[str, int] = {}
    submitted: list[Any] = []
    submit = ThreadPoolExecutor.submit

    def noted(pool: ThreadPoolExecutor, *given: Any) -> Any:
        submitted.append(given)
        return submit(pool, *given)

    async def act(name: str, **arguments: Any) -> dict[str, Any]:
        before = len(submitted)
        envelope = await arun(LOCAL, name, arguments)
        assert envelope["ok"], envelope
        found[name] = len(submitted) - before
        return dict(envelope["data"])

    async def wake(name: str, **arguments: Any) -> dict[str, Any]:
        waits = asyncio.create_task(arun(LOCAL, name, arguments))
        while not waiter().parked or waiter().position is None:
            await asyncio.sleep(0.001)
        before = len(submitted)
        await arun(LOCAL, "message_create", mail)
        envelope = await waits
        found[f"{name}, woken"] = len(submitted) - before - HOPS["message_create"]
        return dict(envelope["data"])

    for agent_id in ("ana", "bob"):
        await arun(LOCAL, "agent_register", {"agent_id": agent_id})
    await arun(LOCAL, "message_create", mail)  # which looks at the project's path
    monkeypatch.setattr(ThreadPoolExecutor, "submit", noted)
    await act("message_create", **mail)
    messages = (await act("inbox_pull", agent_id="bob"))["messages"]
    await act("inbox_ack", agent_id="bob", message_ids=[each["message_id"] for each in messages])
    await act("inbox_count", agent_id="bob")
    cursor = (await act("event_get", **here))["next_cursor"]
    await wake("event_wait", **here, cursor=cursor, timeout_seconds=60)
    assert (await act("inbox_pull", agent_id="bob"))["messages"]
    assert (await wake("inbox_pull", agent_id="bob", wait_seconds=30))["messages"]
    assert found == HOPS
