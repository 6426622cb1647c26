"""The log in partitions, on PostgreSQL: they are made ahead, no insert needs one, and retention drops the old ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import time_machine
from django.conf import settings
from django.db import OperationalError, connection

from coordination.log.emit import emit
from coordination.models import Event
from inbox.search import search
from nexus.core.clock import now
from nexus.core.database.base import SMALLEST
from nexus.core.database.store import store, write
from nexus.maintenance import retention
from tests.conftest import Call, at_once, does
from tests.postgres import SERVER, store_of

PLAIN = """
    CREATE TABLE plain (LIKE events INCLUDING ALL);
    DROP TABLE events CASCADE;
    ALTER TABLE plain RENAME TO events;
"""
CONVERT = """
from coordination.models import Event
from nexus.core.database.postgres.store import partition
partition(Event)
"""
ROOT = Path(__file__).resolve().parents[2]
postgresql = pytest.mark.skipif(not SERVER, reason="on PostgreSQL alone")
OLD, YOUNG = 40, 2  # days
Log = Callable[..., list[int]]


@pytest.fixture
def log(committed: None, call: Call, project: str) -> Log:
    """Log events that are so many days old, each in a transaction of its own; the ids they get."""
    workspace_id = call("workspace_resolve", project_root=project)["workspace_id"]

    def add(days: float, count: int, word: str = "word") -> list[int]:
        made = []
        for _ in range(count):
            with time_machine.travel(datetime.now(UTC) - timedelta(days=days), tick=False), write():
                emit(
                    workspace_id=workspace_id,
                    stream="workspace",
                    type="test.made",
                    actor=None,
                    payload={"word": word},
                    moment=now(),
                )
            made.append(store().given_out(Event))
        return made

    return add


def to_next_partition(last: int = 0) -> int:
    """Let the next id be the first of a partition, or one shortly before it; return the first id."""
    retention.make_room()
    there = store().partitions(Event)
    beyond = there[-1].beyond if there else -(-store().given_out(Event) // SMALLEST) * SMALLEST + SMALLEST
    with write():
        store().give_out_above(Event, beyond - 1 - last)
    retention.make_room()
    return beyond


def kept() -> list[int]:
    return list(Event.objects.filter(type="test.made").order_by("event_id").values_list("event_id", flat=True))


def prune_in_background(times: int = 4) -> None:
    for _ in range(times):
        retention.prune_a_batch("events")


@postgresql
def test_it_keeps_what_is_young_whether_rows_or_partitions_go(log: Log) -> None:
    log(OLD, 3)
    to_next_partition(last=2)
    log(OLD, 4)
    young = log(YOUNG, 3)

    prune_in_background()
    assert kept() == young
    assert does("retention_prune")["ok"] and kept() == young


@postgresql
def test_it_drops_a_partition_with_a_grace_of_a_day_for_its_rows(log: Log) -> None:
    old = log(30.5, 3)
    prune_in_background()
    assert kept() == old  # they may yet go with their partition

    beyond = to_next_partition()
    more = log(30.5, 2)
    before = len(store().partitions(Event))
    prune_in_background()

    assert kept() == more
    assert len(store().partitions(Event)) < before
    assert store().partitions(Event)[0].first <= beyond == more[0]
    assert does("retention_prune")["ok"] and kept() == []  # who asks for it gets it now


@postgresql
def test_it_keeps_a_partition_with_one_young_row(log: Log) -> None:
    log(OLD, 2)
    young = log(YOUNG, 1)  # the clock was right for a moment
    old = log(OLD, 2)
    to_next_partition()
    last = log(YOUNG, 1)
    there = store().partitions(Event)

    prune_in_background()

    assert kept() == young + old + last  # the rest has no gap
    assert store().partitions(Event)[0] == there[-2]


@postgresql
def test_messages_stay_searchable_when_their_events_are_dropped(log: Log, call: Call, project: str) -> None:
    log(OLD, 2, "krokodil")
    with time_machine.travel(datetime.now(UTC) - timedelta(days=OLD)):
        call("agent_register", agent_id="ana")
        target = {"strategy": "direct", "agent_id": "ana"}
        letter = {"project_root": project, "from_agent_id": "ana", "subject": "s", "body": "krokodil"}
        sent = call("message_create", **letter, target=target)["message_id"]
    assert len(search("krokodil")) == 3
    to_next_partition()
    log(YOUNG, 1)

    prune_in_background()

    assert [hit.identifier for hit in search("krokodil")] == [sent]


@postgresql
def test_no_insert_needs_a_partition_made_ahead(log: Log) -> None:
    first = to_next_partition()
    with write():
        store().give_out_above(Event, store().partitions(Event)[-1].beyond + SMALLEST)  # nobody made room meanwhile
    beyond_all = log(YOUNG, 3)
    assert store().partitions(Event)[-1].beyond <= beyond_all[0]

    retention.make_room()
    retention.make_room()
    there = store().partitions(Event)
    assert (there[-1].first <= beyond_all[0] and there[-1].beyond > beyond_all[-1] + SMALLEST // 2) or len(there) > 2
    assert [each.beyond for each in there[:-1]] == [each.first for each in there[1:]]  # no gap
    assert kept() == beyond_all and first < beyond_all[0]
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM events_default")
        assert cursor.fetchone() == (0,)
    assert not store().pending()  # every trigger is there


@postgresql
def test_a_long_reader_delays_a_drop_and_nobody_else(log: Log) -> None:
    old = log(OLD, 2)
    to_next_partition()
    young = log(YOUNG, 1)
    with psycopg.connect(str(settings.NEXUS.database_url)) as reader:
        reader.execute("SELECT count(*) FROM events")
        with pytest.raises(OperationalError) as caught:
            retention.prune_a_batch("events")
        assert store().is_busy(caught.value)
        assert does("retention_prune")["error"]["details"]["retryable"]
        young += log(YOUNG, 1)  # who writes does not wait for the reader
        assert kept() == old + young
    prune_in_background()
    assert kept() == young


@postgresql
def test_two_hubs_drop_it_once_and_make_room_once(log: Log) -> None:
    log(OLD, 2)
    to_next_partition()
    young = log(YOUNG, 1)
    oldest = store().partitions(Event)[0]

    at_once([prune_unless_busy] * 4)
    prune_in_background()
    with write():
        store().give_out_above(Event, store().partitions(Event)[-1].beyond - 1)
    at_once([retention.make_room] * 4)

    assert oldest not in store().partitions(Event) and kept() == young
    there = store().partitions(Event)
    assert [each.beyond for each in there[:-1]] == [each.first for each in there[1:]]


def prune_unless_busy() -> None:
    try:
        retention.prune_a_batch("events")
    except OperationalError as error:
        assert store().is_busy(error)


@postgresql
def test_a_follower_sees_all_that_stays_while_partitions_go(log: Log, call: Call, project: str) -> None:
    call("agent_register", agent_id="ana")
    for _ in range(3):
        log(OLD, 2)
        to_next_partition()
    young = log(YOUNG, 3)
    seen: list[int] = []

    def follow() -> None:
        cursor = young[0] - 1
        for _ in range(40):
            arguments: dict[str, Any] = {"project_root": project, "agent_id": "ana", "stream": "workspace"}
            page = does("event_get", **arguments, cursor=cursor, limit=1)["data"]
            seen.extend(event["event_id"] for event in page["events"] if event["type"] == "test.made")
            cursor = page["next_cursor"]

    def write_more() -> None:
        for _ in range(5):
            young.extend(log(YOUNG, 1))

    at_once([follow, write_more, *[prune_unless_busy] * 6])
    follow_up = [event_id for event_id in kept() if event_id > (seen[-1] if seen else 0)]
    prune_in_background(6)
    assert seen + follow_up == young == kept()


@postgresql
@pytest.mark.usefixtures("starts_processes")
def test_an_older_log_stays_as_it_is_until_it_is_converted(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    environ = {**os.environ, **store_of(home), "NEXUS_HOME": str(home)}

    def manage(*arguments: str) -> str:
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    manage("migrate")
    with psycopg.connect(environ["NEXUS_DATABASE_URL"], autocommit=True) as database:
        database.execute(PLAIN)  # as versions before partitions made it
        columns = "(stream, type, payload, created_at)"
        add = f"INSERT INTO events {columns} VALUES ('agent', 'x', '{{}}', now()) RETURNING event_id"
        partitions = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'events'::regclass"
        ids = [database.execute(add).fetchone() for _ in range(3)]
        manage("migrate")
        assert database.execute(partitions).fetchone() == (0,)

        manage("shell", "-c", CONVERT)
        manage("migrate")  # as a start does: the triggers are missing

        assert database.execute(partitions).fetchone() == (2,)
        by_age = (
            "SELECT count(*) FROM pg_indexes WHERE tablename LIKE 'events%' AND indexdef LIKE '%brin (created_at)%'"
        )
        assert database.execute(by_age).fetchone() == (3,)  # of the log, and of each partition
        assert database.execute("SELECT event_id FROM events ORDER BY event_id").fetchall() == ids
        assert database.execute(add).fetchone() == (4,)
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
            database.execute("DELETE FROM events")
