"""What retention deletes, and what it never does."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any

import pytest
import time_machine
from django.db import DatabaseError, OperationalError, transaction
from django.db.models import Model
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordination.models import Agent, Artifact, Channel, Event, RetentionPass, Session, Workspace
from coordination.services import audit
from coordination.toolset import run
from handoffs.models import Handoff
from inbox.models import Delivery, Message
from nexus.control.models import Entry, PoolAgent, PresetChoices, Turn
from nexus.core.contributions import RetentionRule
from nexus.maintenance import retention
from tests.conftest import OPERATOR, Call, examples
from tests.store import steps

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
NOTHING = dict.fromkeys(retention.rules(), 0)  # deleted, by rule


def at(days_ago: float) -> Any:
    return time_machine.travel(NOW - timedelta(days=days_ago), tick=False)


def prune(**arguments: Any) -> dict[str, Any]:
    with at(0):
        envelope = run(OPERATOR, "retention_prune", arguments)
    assert envelope["ok"], envelope
    data: dict[str, Any] = envelope["data"]
    return data


def deleted(data: dict[str, Any]) -> dict[str, int]:
    return {name: lane["deleted"] for name, lane in data["lanes"].items()}


def log_events(project: str, count: int) -> None:
    """Events made now, written at once."""
    moment = datetime.now(UTC)
    workspace_id = Workspace.objects.get(root_realpath=project).pk
    Event.objects.bulk_create(
        Event(workspace_id=workspace_id, stream="workspace", type="test.made", created_at=moment) for _ in range(count)
    )


@pytest.fixture
def busy_team(call: Call, project: str) -> Callable[[float], None]:
    """Make one of everything, in every state, some days ago: `busy_team(40)`."""

    def work(days_ago: float) -> None:
        with at(days_ago):
            workspace_id = call("workspace_resolve", project_root=project)["workspace_id"]
            for agent_id in ("ana", "bob"):
                call("agent_register", agent_id=agent_id)
            closed = call("session_open", agent_id="ana", workspace_id=workspace_id)["session_id"]
            call("session_close", session_id=closed)
            call("session_open", agent_id="bob", workspace_id=workspace_id)
            call("channel_create", project_root=project, name="plans")
            call("artifact_put", project_root=project, artifact_type="text", content="x")
            for state in ("unread", "delivered", "read"):
                sent = call(
                    "message_create",
                    project_root=project,
                    from_agent_id="ana",
                    subject=state,
                    body="b",
                    target={"strategy": "direct", "agent_id": "bob"},
                )
                delivery = Delivery.objects.filter(message_id=sent["message_id"])
                if state == "read":
                    call("inbox_ack", agent_id="bob", message_ids=sent["message_id"])
                elif state == "delivered":
                    moment = datetime.now(UTC)
                    delivery.update(status="delivered", delivered_at=moment, lease_expires_at=moment)
                else:
                    delivery.update(status="parked") if days_ago == 40 else None
            call(
                "handoff_create",
                project_root=project,
                from_agent_id="ana",
                target={"strategy": "role", "role": "x"},
                visibility="public",
            )

    return work


def test_it_deletes_terminal_lanes_past_their_windows_only(busy_team: Callable[[float], None]) -> None:
    busy_team(40)
    busy_team(1)
    kept: list[type[Model]] = [Agent, Artifact, Channel, Handoff, Message]
    before = {model: model._default_manager.count() for model in kept}
    closed = Session.objects.filter(status="closed").count()
    active = Session.objects.filter(status="active").count()
    old_events = Event.objects.filter(created_at__lt=NOW - timedelta(days=30)).count()

    assert deleted(prune()) == {
        **NOTHING,
        "events": old_events,
        "read_deliveries": 1,
        "closed_sessions": 1,
    }

    assert {model: model._default_manager.count() for model in kept} == before
    assert not Event.objects.filter(created_at__lt=NOW - timedelta(days=30)).exists()
    assert sorted(Delivery.objects.values_list("status", flat=True)) == [
        "delivered",
        "delivered",
        "parked",
        "read",
        "unread",
    ]
    assert Session.objects.filter(status="active").count() == active
    assert Session.objects.filter(status="closed").count() == closed - 1


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ages=st.lists(st.integers(0, 60), max_size=12), window=st.integers(0, 60))
def test_it_deletes_the_longest_run_of_old_events_whatever_the_clock_did(
    call: Call, project: str, ages: list[int], window: int
) -> None:
    with at(0):
        workspace_id = call("workspace_resolve", project_root=project)["workspace_id"]
    with transaction.atomic():
        events = Event.objects.bulk_create(
            Event(workspace_id=workspace_id, stream="workspace", type="t", created_at=NOW - timedelta(days=age))
            for age in ages
        )
        prune(events_keep_days=window)
        ids = [event.event_id for event in events]
        left = [event_id for event_id in ids if Event.objects.filter(pk=event_id).exists()]
        assert left == ids[len(list(takewhile(lambda age: age > window, ages))) :]
        RetentionPass.objects.create()
        Event.objects.all().delete()
        RetentionPass.objects.all().delete()


@pytest.mark.sqlite  # whose steps are counted
@pytest.mark.parametrize("act", [lambda: retention.prune_a_batch("events"), lambda: retention.prune(max_batches=1)])
def test_a_batch_and_a_call_cost_the_same_however_much_is_behind(
    call: Call, project: str, act: Callable[[], object]
) -> None:
    """So that a command that calls again and again is not quadratic."""
    with at(40):
        call("workspace_resolve", project_root=project)
        log_events(project, 2_000)
    with at(0):
        act()  # whose pace is found
        few = steps(act)
    with at(40):
        log_events(project, 4_000)
    with at(0):
        assert steps(act) < 1.5 * few


def test_it_says_that_more_is_left_whatever_the_clock_did(call: Call, project: str) -> None:
    with at(40):
        call("workspace_resolve", project_root=project)
        log_events(project, 510)
    with at(0):
        log_events(project, 10)
    with at(40):
        log_events(project, 1_000)  # half way through the log it looks old all over
    total = Event.objects.count()

    first, second = prune(max_batches=1), prune(max_batches=1)

    assert first["more"] and not second["more"]
    assert deleted(first)["events"] + deleted(second)["events"] == total - 1_010
    assert second["lanes"]["events"]["found"] == deleted(second)["events"]


def test_it_counts_and_deletes_nothing_in_a_dry_run(busy_team: Callable[[float], None]) -> None:
    busy_team(40)
    events = Event.objects.count()
    data = prune(dry_run=True)
    assert data["lanes"]["events"] == {
        "keep_days": 30,
        "before": "2026-05-02T12:00:00.000000Z",
        "found": events,
        "deleted": 0,
    }
    assert Event.objects.count() == events


def test_it_deletes_in_batches_and_says_that_more_is_left(busy_team: Callable[[float], None], project: str) -> None:
    busy_team(40)
    with at(40):
        log_events(project, 1300)
    total = Event.objects.count()

    first = prune(max_batches=1)
    assert first["more"]
    assert (first["lanes"]["events"]["found"], first["lanes"]["events"]["deleted"]) == (total, 500)
    second = prune(max_batches=2)
    assert not second["more"]
    assert deleted(second)["events"] == total - 500


@pytest.mark.sqlite
def test_it_reports_what_it_deleted_before_the_store_was_busy(
    busy_team: Callable[[float], None], project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy_team(40)
    with at(40):
        log_events(project, 1300)
    really, batches = retention._delete_batch, iter([False, True])

    def delete_batch(name: str, rows: Any, operator: str | None) -> int:
        if name == "events" and next(batches):
            cause = sqlite3.OperationalError("database is locked")
            cause.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise OperationalError("database is locked") from cause
        return really(name, rows, operator)

    monkeypatch.setattr(retention, "_delete_batch", delete_batch)
    data = prune()
    assert data["more"]
    assert deleted(data) == {**NOTHING, "events": 500, "read_deliveries": 1, "closed_sessions": 1}


class Clock:
    """Each row that goes takes so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.taken: list[int] = []  # rows of each transaction
        self._left = 0

    def __call__(self) -> float:
        rows = Event.objects.count()
        if self._left > rows:
            self.taken.append(self._left - rows)
        self._left = rows
        return -rows * self.seconds


@pytest.mark.parametrize("seconds", [0.000_01, 0.000_4, 0.002, 0.03])
def test_it_deletes_as_many_rows_a_transaction_as_its_time_allows(
    busy_team: Callable[[float], None], project: str, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    busy_team(40)
    with at(40):
        log_events(project, 1300)
    clock, most = Clock(seconds), retention.LONGEST_SECONDS / seconds
    monkeypatch.setitem(retention.paces, "events", retention.Pace(clock))
    with at(0):
        retention.prune(max_batches=2)  # by nobody: what is recorded is no row that goes
    rows = clock.taken[1:]  # the first knows nothing yet
    assert sum(clock.taken) == 1000 and rows
    assert max(rows) <= max(retention.FEWEST, most)
    assert max(rows) >= min(most / 5, 400)  # and no fewer than need be


def test_a_machine_that_is_slow_whatever_the_rows_does_not_delete_them_one_by_one() -> None:
    pace = retention.Pace()
    for _ in range(20):
        pace.took(pace.rows, 0.2)
    assert pace.rows == retention.FEWEST


@pytest.mark.parametrize("rows", [3, 7])
def test_what_hangs_on_a_row_goes_in_transactions_of_their_own(
    busy_team: Callable[[float], None], project: str, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    busy_team(40)
    with at(40):
        moment = datetime.now(UTC)
        agent = PoolAgent.objects.create(
            pool_agent_id="pool_1",
            agent_id="ana",
            cwd="/",
            preset=PresetChoices.values[0],
            depth=0,
            runner="x",
            created_by="olga",
            is_temporary=False,
            **dict.fromkeys(("created_at", "last_action_at", "ended_at"), moment),
        )
        turn = Turn.objects.create(
            turn_id="turn_1",
            agent=agent,
            content="go",
            status="done",
            source="rpc",
            request_id="r",
            **dict.fromkeys(("queued_at", "started_at", "ended_at"), moment),
        )
        Entry.objects.bulk_create(
            Entry(agent=agent, turn=turn, position=number, role="user", content="x", tokens=1, created_at=moment)
            for number in range(20)
        )
    sizes: list[int] = []

    def left() -> int:
        return Entry.objects.count() + Turn.objects.count() + PoolAgent.objects.count()

    class Steady(retention.Pace):
        def took(self, rows: int, seconds: float) -> None:
            sizes.append(rows)

    pace = Steady()
    pace.rows = rows
    monkeypatch.setitem(retention.paces, "ended_pool_agents", pace)
    assert left() == 22
    assert (
        deleted(prune(ended_pool_agents_keep_days=30))["ended_pool_agents"] == 1
    )  # what went with it is no row of the rule
    assert left() == 0
    assert sum(sizes) == 22 and max(sizes) <= rows


def trail() -> list[dict[str, Any]]:
    recorded = Event.objects.filter(type="retention.pruned").order_by("event_id")
    assert all(payload["operator"] == "olga" for payload in recorded.values_list("payload", flat=True))
    return [payload["deleted"] for payload in recorded.values_list("payload", flat=True)]


def test_it_leaves_a_trail_of_who_pruned(busy_team: Callable[[float], None]) -> None:
    busy_team(40)
    pruned = Counter(deleted(prune()))
    told = trail()  # of each batch; the slower the machine, the more of them
    assert sum(map(Counter, told), Counter()) == +pruned
    prune()
    assert trail() == told  # nothing was deleted, nothing to tell


def test_it_deletes_nothing_that_the_trail_does_not_tell(
    committed: None, busy_team: Callable[[float], None], project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However a pass ends, half way through its batches or between a batch and its record."""
    busy_team(40)
    with at(40):
        log_events(project, 1300)
    before = Event.objects.count()
    really, records = audit.record, iter([True, True, False])

    def record(*told: Any, **more: Any) -> Event:
        if next(records):
            return really(*told, **more)
        raise DatabaseError("made by the test")

    with at(0), monkeypatch.context() as patch:
        patch.setattr(audit, "record", record)
        assert run(OPERATOR, "retention_prune", {})["error"]["code"] == "DB_ERROR"
    gone = sum(told["events"] for told in trail())
    assert len(trail()) == 2 and gone
    assert Event.objects.count() == before - gone + 2


def test_it_is_for_operators(call: Call, refused: Call, project: str) -> None:
    assert refused("retention_prune")["code"] == "NOT_OWNER"
    assert run(OPERATOR, "retention_prune", {"project_root": "/nowhere"})["error"]["code"] == "WORKSPACE_UNRESOLVED"
    assert run(OPERATOR, "retention_prune", {"events_keep_days": -1})["error"]["code"] == "VALIDATION_ERROR"
    assert run(OPERATOR, "retention_prune", {"max_batches": 0})["error"]["code"] == "VALIDATION_ERROR"
    assert run(OPERATOR, "retention_prune", {"project_root": project})["ok"]


def test_it_prunes_at_the_start_of_a_server_when_asked(
    busy_team: Callable[[float], None], project: str, configure: Callable[..., None]
) -> None:
    busy_team(40)
    with at(40):
        log_events(project, 2100)
    total = Event.objects.count()
    with at(0):
        retention.prune_on_start()
        assert Event.objects.count() == total
        configure(auto_prune_on_start=True)
        retention.prune_on_start()
    assert Event.objects.count() == total - 4 * 500  # bounded: the rest goes with the next starts


def test_it_starts_the_server_even_when_the_pass_fails(
    busy_team: Callable[[float], None],
    configure: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    busy_team(40)
    configure(auto_prune_on_start=True)

    def fail(horizon: datetime) -> Any:
        raise DatabaseError("disk I/O error")

    monkeypatch.setitem(retention.rules(), "closed_sessions", RetentionRule("closed_sessions", fail))
    retention.prune_on_start()
    assert "starts without it" in caplog.text


@pytest.mark.sqlite
def test_it_shrinks_the_file(committed: None, busy_team: Callable[[float], None], project: str) -> None:
    busy_team(40)
    with at(40):
        log_events(project, 3000)
    data = prune(vacuum=True, max_batches=10)
    assert data["vacuum"]["bytes_after"] < data["vacuum"]["bytes_before"]
    assert "vacuum" not in prune(vacuum=True, dry_run=True)


@pytest.fixture
def busy_compaction(committed: None, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A store that others hold whenever it is to be compacted, and that an agent joins then; how often that was."""
    met: list[int] = []

    def compact() -> tuple[int, int]:
        met.append(len(met))
        Agent.objects.create(agent_id=f"late-{len(met)}", created_at=NOW, updated_at=NOW)
        source = sqlite3.OperationalError("database is locked")
        source.sqlite_errorcode = sqlite3.SQLITE_BUSY
        raise OperationalError("database is locked") from source

    monkeypatch.setattr("nexus.core.database.sqlite.store.compact", compact)
    return met


@pytest.mark.sqlite
def test_it_resets_once_and_tells_that_the_file_could_not_be_shrunk(busy_compaction: list[int]) -> None:
    data = run(OPERATOR, "database_reset", {"confirm": "reset"})["data"]
    assert "busy" in data["vacuum"]["problem"]
    assert busy_compaction == [0]
    assert list(Agent.objects.values_list("agent_id", flat=True)) == ["late-1"]


@pytest.mark.sqlite
def test_it_prunes_and_tells_that_the_file_could_not_be_shrunk(busy_compaction: list[int]) -> None:
    assert "busy" in prune(vacuum=True)["vacuum"]["problem"]
    assert busy_compaction == [0]
