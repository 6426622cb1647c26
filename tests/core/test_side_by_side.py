"""Calls that write side by side on PostgreSQL: what one reads before it writes, no other changes meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.db import connection

from coordination.models import Artifact, Event, Session, Workspace
from coordination.toolset import run
from nexus.core.database.store import in_one_transaction, store, write
from tests.acceptance.hub import START_SECONDS
from tests.conftest import LOCAL, at_once
from tests.postgres import SERVER

pytestmark = [
    pytest.mark.skipif(not SERVER, reason="on PostgreSQL alone"),
    pytest.mark.django_db(transaction=True),
]

Answer = dict[str, Any]
WAITING = "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND datname = %s"


def call(name: str, /, **arguments: Any) -> Answer:
    """The envelope of a call, which may be a refusal, but never a failure of the store or of the hub."""
    answer = run(LOCAL, name, arguments)
    assert answer["ok"] or answer["error"]["code"] not in ("DB_ERROR", "INTERNAL_ERROR"), answer
    return answer


def data(name: str, /, **arguments: Any) -> Any:
    answer = call(name, **arguments)
    assert answer["ok"], answer
    return answer["data"]


def waits() -> bool:
    """Whether a connection to this database waits for a lock."""
    with connection.cursor() as cursor:
        cursor.execute(WAITING, [connection.settings_dict["NAME"]])
        return bool(cursor.fetchone()[0])


def beside(first: Callable[[], Answer], second: Callable[[], Answer]) -> tuple[Answer, Answer]:
    """The answers of two calls, the first of which commits once the second waits for it, or is done without that."""
    done = threading.Event()

    def go() -> Answer:
        try:
            return second()
        finally:
            done.set()
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with in_one_transaction():
            one = first()
            assert connection.in_atomic_block, "it wrote"
            two = pool.submit(go)
            deadline = time.monotonic() + START_SECONDS
            while not (done.is_set() or waits()):
                assert time.monotonic() < deadline
                time.sleep(0.005)
        return one, two.result()


def twice(name: str, /, *different: dict[str, Any], **arguments: Any) -> tuple[Answer, Answer]:
    """The answers of a call that is made twice, the second time before the first one commits."""
    one, two = different or ({}, {})
    return beside(lambda: call(name, **arguments, **one), lambda: call(name, **arguments, **two))


@pytest.fixture
def team() -> None:
    for name in ("ann", "bob", "cleo"):
        data("agent_register", agent_id=name, capabilities=["python"])


def opened(agent_id: str, project: str) -> str:
    workspace_id = data("workspace_resolve", project_root=project)["workspace_id"]
    session_id: str = data("session_open", agent_id=agent_id, workspace_id=workspace_id)["session_id"]
    return session_id


def count(type: str) -> int:
    return Event.objects.filter(type=type).count()


@pytest.mark.usefixtures("team")
class TestSessions:
    def test_it_is_closed_once(self, project: str) -> None:
        session_id = opened("ann", project)
        assert all(answer["ok"] for answer in twice("session_close", session_id=session_id))
        assert count("session.closed") == 1

    def test_one_that_is_closed_has_no_heartbeat(self, project: str) -> None:
        session_id = opened("ann", project)
        beside(
            lambda: call("session_close", session_id=session_id),
            lambda: call("session_heartbeat", session_id=session_id),
        )
        assert count("session.heartbeat") == 0
        assert Session.objects.get().status == "closed"

    def test_a_dead_one_is_closed_once_though_two_others_notice(self, project: str) -> None:
        with time_machine.travel(datetime.now(UTC) - timedelta(days=30)):
            opened("ann", project)
        sessions = [opened(name, project) for name in ("bob", "cleo")]
        Session.objects.filter(agent_id="ann").update(status="active", closed_at=None)
        closed = count("session.closed")
        twice("session_heartbeat", *({"session_id": session_id} for session_id in sessions))
        assert count("session.closed") == closed + 1

    def test_a_dead_one_is_closed_once_though_two_others_come(self, project: str) -> None:
        with time_machine.travel(datetime.now(UTC) - timedelta(days=30)):
            opened("ann", project)
        workspace_id = Workspace.objects.get().workspace_id
        twice("session_open", {"agent_id": "bob"}, {"agent_id": "cleo"}, workspace_id=workspace_id)
        assert count("session.closed") == 1


@pytest.mark.usefixtures("team")
class TestWorkspaces:
    def test_it_is_made_once(self, project: str) -> None:
        one, two = twice("join", {"agent_id": "ann"}, {"agent_id": "bob"}, project_root=project)
        assert one["data"]["workspace_id"] == two["data"]["workspace_id"] == Workspace.objects.get().workspace_id

    @pytest.mark.parametrize(
        ("name", "arguments"),
        [
            ("workspace_resolve", {}),
            ("channel_create", {"name": "news"}),
            ("artifact_put", {"artifact_type": "text", "content": "c"}),
        ],
    )
    def test_nor_do_calls_make_it_twice_that_need_it(self, name: str, arguments: Answer, project: str) -> None:
        assert all(answer["ok"] for answer in twice(name, project_root=project, **arguments))
        assert Workspace.objects.count() == 1

    def test_an_artifact_is_made_once_for_its_client_id(self, project: str) -> None:
        data("workspace_resolve", project_root=project)
        arguments = {"artifact_type": "text", "content": "c", "client_id": "once"}
        one, two = twice("artifact_put", project_root=project, **arguments)
        assert one["data"]["artifact_id"] == two["data"]["artifact_id"] == Artifact.objects.get().artifact_id


@pytest.mark.usefixtures("team")
def test_calls_wait_for_nobody_in_another_workspace(project: str, tmp_path: Path) -> None:
    session_id = opened("ann", project)
    at_once([lambda: data("session_heartbeat", session_id=session_id)])  # what is done once is done
    calls = {
        "agent_register": {"agent_id": "ann"},
        "workspace_resolve": {"project_root": project},
        "session_heartbeat": {"session_id": session_id},
        "artifact_put": {"project_root": project, "artifact_type": "text", "content": "c"},
        "channel_create": {"project_root": project, "name": "news"},
        "join": {"project_root": project, "agent_id": "ann"},
        "session_close": {"session_id": session_id},
    }

    def go() -> None:
        with store().without_waiting():
            for name, arguments in calls.items():
                data(name, **arguments)

    with write("another workspace", "another agent"):
        at_once([go])
