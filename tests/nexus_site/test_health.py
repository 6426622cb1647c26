"""Alive, ready, measured."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client
from django.test.utils import CaptureQueriesContext

import inbox.metrics
from coordination.toolset import run
from nexus.core.database.sqlite.store import WriterQueue
from nexus.core.operations.caller import Caller
from nexus.core.operations.dispatch import called
from nexus_site.serving import health, metrics
from tests.store import failing

pytestmark = pytest.mark.usefixtures("committed")  # the views use connections of their own


@pytest.fixture
def client() -> Client:
    """A direct request on this machine."""
    return Client(headers={"host": "localhost"})


@pytest.fixture
def measured() -> Iterator[None]:
    """Calls are counted, as in a hub."""
    metrics.observe_calls()
    yield
    called.disconnect(metrics.count_call)


def ready(client: Client) -> tuple[int, dict[str, Any]]:
    answer = client.get("/readyz")
    return answer.status_code, answer.json()["data"]["checks"]


def value(client: Client, sample: str) -> float:
    lines = client.get("/metrics").content.decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(f"{sample} "))


def test_it_is_alive(client: Client) -> None:
    assert client.get("/healthz").json() == {"ok": True, "data": {"status": "alive"}}


def test_it_is_ready_when_a_write_would_succeed(client: Client) -> None:
    assert ready(client) == (200, {"database": True, "migrations": True, "disk": True})


def test_it_is_not_ready_while_a_migration_is_missing(client: Client) -> None:
    last = MigrationRecorder.Migration.objects.get(app="compat")
    last.delete()
    try:
        assert ready(client) == (503, {"database": True, "migrations": False, "disk": True})
    finally:
        last.save()


@pytest.mark.sqlite  # PostgreSQL has no queue of writers
def test_it_asks_in_the_queue_of_the_writers(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    first = WriterQueue.first

    def counted(queue: WriterQueue, deadline: float) -> Any:
        asked.append(threading.current_thread().name)
        return first(queue, deadline)

    monkeypatch.setattr(WriterQueue, "first", counted)
    assert ready(client)[0] == 200
    assert [name for name in asked if name.startswith("nexus-readyz")] == asked[:1] != []


@pytest.mark.sqlite  # how full the disk of a server is cannot be asked
def test_it_is_not_ready_when_the_disk_is_as_good_as_full(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "ENOUGH_BYTES", 2**63)
    assert ready(client) == (503, {"database": True, "migrations": True, "disk": False})


def test_it_counts_calls_by_operation_and_outcome(client: Client, measured: None) -> None:
    caller = Caller("test")
    run(caller, "nexus_info", {})
    run(caller, "nexus_info", {"what": 1})
    run(caller, "no such thing", {})
    for name, outcome in (("nexus_info", "ok"), ("nexus_info", "VALIDATION_ERROR"), ("unknown", "NOT_FOUND")):
        sample = f'nexus_calls_total{{operation="{name}",outcome="{outcome}",toolset="coordination"}}'
        assert value(client, sample) >= 1, sample
    assert value(client, 'nexus_call_seconds_count{operation="nexus_info",toolset="coordination"}') >= 2


def test_it_tells_what_waits_in_inboxes_and_on_offer(client: Client, project: str) -> None:
    caller = Caller("test")
    for agent_id in ("ann", "bob"):
        run(caller, "agent_register", {"agent_id": agent_id})
    direct = {"project_root": project, "from_agent_id": "ann", "target": {"strategy": "direct", "agent_id": "bob"}}
    run(caller, "message_create", {**direct, "subject": "s", "body": "b"})
    assert value(client, 'nexus_inbox_deliveries{lane="unread"}') == 1
    assert value(client, "nexus_oldest_unread_seconds") > 0
    run(caller, "inbox_pull", {"agent_id": "bob"})
    assert value(client, 'nexus_inbox_deliveries{lane="delivered"}') == 1
    assert value(client, "nexus_oldest_unread_seconds") == 0
    run(caller, "handoff_create", {**direct, "visibility": "public"})
    assert value(client, 'nexus_handoffs{status="OPEN"}') == 1
    assert value(client, 'nexus_database_bytes{file="database"}') > 0


def test_it_counts_a_bounded_number_of_deliveries(
    client: Client, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("SQLite tells its plans")
    monkeypatch.setattr(inbox.metrics, "COUNTED", 3)
    for agent_id in ("ann", "bob"):
        run(Caller("test"), "agent_register", {"agent_id": agent_id})
    mail = {"project_root": project, "from_agent_id": "ann", "target": {"strategy": "direct", "agent_id": "bob"}}
    for _ in range(5):
        run(Caller("test"), "message_create", {**mail, "subject": "s", "body": "b"})
    assert value(client, 'nexus_inbox_deliveries{lane="unread"}') == 3
    with CaptureQueriesContext(connection) as queries:
        list(inbox.metrics.collect())
    with connection.cursor() as cursor:
        plans = [cursor.execute(f"EXPLAIN QUERY PLAN {query['sql']}").fetchall() for query in queries]
    plans = [row[3] for plan in plans for row in plan if "message_deliveries" in row[3]]
    partial = ("deliveries_waiting", "deliveries_by_lease", "deliveries_read")
    assert plans and all(any(index in plan for index in partial) for plan in plans), plans


def test_it_counts_agents_by_presence(client: Client) -> None:
    run(Caller("test"), "agent_register", {"agent_id": "ann"})
    run(Caller("test", operator="ops"), "agent_create", {"agent_id": "bob"})
    counted = [value(client, f'nexus_agents{{presence="{state}"}}') for state in ("present", "stale", "offline")]
    assert counted == [1, 0, 1]


def test_a_stranger_reads_no_metrics(client: Client) -> None:
    assert client.get("/metrics", headers={"X-Forwarded-For": "127.0.0.1"}).status_code == 401
    assert client.get("/metrics", headers={"Origin": "http://evil.example"}).status_code == 403


@pytest.mark.parametrize("path", ["/metrics", "/api/v1/stream"])
@pytest.mark.parametrize("who", ["who has a session", "who runs a pool"])
def test_it_says_that_the_store_is_away_to_whoever_measures_or_listens(
    client: Client, monkeypatch: pytest.MonkeyPatch, configure: Callable[..., None], who: str, path: str
) -> None:
    def away(connection: Any) -> None:
        raise failing("away")

    if who == "who has a session":
        client.cookies[settings.SESSION_COOKIE_NAME] = "s" * 32
    else:
        configure(control=True)
    with monkeypatch.context() as patch:
        patch.setattr(BaseDatabaseWrapper, "ensure_connection", away)
        answer = client.get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "DB_ERROR")
