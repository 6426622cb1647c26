"""A log of millions of events in PostgreSQL: what a page takes, and a month's retention by partitions and by rows.

The database is made for the run, without fsync, and removed at the end. Ten million events take some gigabytes.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from statistics import median

from benchmarks.harness import Benchmark, Figures, amount, seconds, set_up
from tests.postgres import fresh_database, programs

DAYS = 100  # that the events span
KEPT = 70  # days: about a month is too old
WORKSPACES, TRACES = 100, 10_000  # of each, events come in turn
WORDS = 100_000  # of the oldest events in the search index
BY_ROWS = 8  # batches
PAGE = 50
TIMES = 15  # for each median
WRITES_APART = 0.01  # seconds, of the writer beside a drop
STREAMS = "'{workspace,workspace,workspace,handoff,topic,planning,file,pool}'::text[]"
FILL = f"""
    INSERT INTO events (event_id, workspace_id, stream, type, actor_agent_id, payload, visibility, handoff_id, trace_id,
        created_at)
    SELECT n, (SELECT number FROM workspaces WHERE workspace_id = 'w' || mod(n, {WORKSPACES})),
        ({STREAMS})[mod(n, 8) + 1], CASE WHEN mod(n, 1000) = 0 THEN 'operator.acted'
        WHEN mod(n, 40) = 3 THEN 'handoff.claimed' ELSE 'artifact.added' END, 'agent-' || mod(n, 300),
        '{{"path": "src/module_' || mod(n, 5000) || '.py", "note": "what an agent did, in some words of its own"}}',
        'public', CASE WHEN mod(n, 8) = 3 THEN 'handoff-' || n / 40 END,
        CASE WHEN mod(n, 4) = 0 THEN 'trace-' || mod(n, {TRACES}) END,
        now() - interval '{DAYS} days' * (1 - n::float8 / %s)
    FROM generate_series(%s, %s) n
"""
WORDED = "INSERT INTO search_index SELECT event_id, nexus_words(payload) FROM events ORDER BY event_id LIMIT %s"
FILLED_AT_ONCE = 500_000


def measure(scratch: Path, options: argparse.Namespace) -> Figures:
    """By page and by way of retention; nothing where PostgreSQL is not installed."""
    if programs() is None:
        print("PostgreSQL is not installed here.", file=sys.stderr)
        return {}
    settings = ("fsync=off", "full_page_writes=off", "max_wal_size=4GB", "shared_buffers=512MB", "autovacuum=off")
    with fresh_database(scratch, settings) as url:
        os.environ["NEXUS_DATABASE_URL"] = url
        set_up(scratch)
        from django.db import connection

        try:
            _fill(options.rows)
            return {"ms": _pages(options.rows)} | _retention()
        finally:
            connection.close_pool()  # type: ignore[attr-defined]


def _fill(rows: int) -> None:
    from django.db import connection

    from coordination.models import Event, Workspace
    from nexus.core.clock import now
    from nexus.core.database.base import SMALLEST
    from nexus.core.database.store import store, write

    for number in range(WORKSPACES):
        Workspace.objects.create(
            workspace_id=f"w{number}", root_realpath=f"/w{number}", created_at=now(), last_seen_at=now()
        )
    store().extend(Event, upto=rows + SMALLEST // 2, size=SMALLEST)
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")  # no triggers: they index every word
        for first in range(1, rows + 1, FILLED_AT_ONCE):
            cursor.execute(FILL, [rows, first, min(first + FILLED_AT_ONCE - 1, rows)])
        cursor.execute("SET session_replication_role = origin")
        with write():
            store().give_out_above(Event, rows)
        cursor.execute(WORDED, [WORDS])
        cursor.execute("VACUUM ANALYZE")


def _pages(rows: int) -> dict[str, float]:
    """Medians in milliseconds, in turns."""
    from coordination.log.selectors import event_page
    from coordination.models import Agent, Event
    from nexus.core.clock import now
    from nexus.dashboard.views.events import LOOKED_AT

    Agent.objects.create(agent_id="ann", created_at=now(), updated_at=now())
    after = Event.objects.order_by("event_id")
    newest = Event.objects.order_by("-event_id")
    here = {"workspace_id": "w7"}
    pages = {
        "first page": after.filter(event_id__gt=0),
        "page in the middle": after.filter(event_id__gt=rows // 2),
        "last page": newest,
        "of a workspace, from the start": after.filter(event_id__gt=0, **here),
        "of a workspace, from the middle": after.filter(event_id__gt=rows // 2, **here),
        "of a workspace, newest": newest.filter(**here),
        "of a workspace's stream, newest": newest.filter(stream="handoff", **here),
        "of a type (one in 1,000), newest": newest.filter(type="operator.acted"),
        "of a workspace and a type that it does not have, among the newest 100,000": newest.filter(
            type="handoff.claimed", event_id__gt=rows - LOOKED_AT, **here
        ),
        "of a trace": after.filter(trace_id="trace-4"),
        "of a handoff": after.filter(handoff_id=f"handoff-{rows // 80}"),
    }
    reads: dict[str, Callable[[], object]] = {
        name: lambda page=page: list(page.all()[:PAGE])  # type: ignore[misc]
        for name, page in pages.items()
    }
    of_none = {"type": "handoff.claimed"}
    reads["event_get of a type that the stream does not have"] = lambda: event_page(
        workspace_id="w7", agent_id="ann", stream="workspace", cursor=0, limit=PAGE, filters=of_none
    )
    took: dict[str, list[float]] = {name: [] for name in reads}
    for _ in range(TIMES):
        for name, read in reads.items():
            took[name].append(seconds(read))
    return {name: median(times) * 1000 for name, times in took.items()}


def _retention() -> Figures:
    """Seconds and events: of rows a part, of partitions all that are too old."""
    from coordination.models import Event
    from inbox import search
    from nexus.core.clock import now
    from nexus.maintenance import retention

    lane, before = retention.lanes()["events"], now() - timedelta(days=KEPT)
    by_rows = replace(lane, stays=None)
    oldest = Event.objects.order_by("event_id").values_list("event_id", flat=True)[0]

    words = seconds(lambda: search.forget_events(oldest, oldest + WORDS))
    count = 0

    def some_rows() -> None:
        nonlocal count
        count = retention._delete(by_rows, before, BY_ROWS)

    rows = seconds(some_rows)
    dropped: list[int] = []

    def month() -> None:
        while (gone := retention._drop_partition(lane, before)) is not None:
            dropped.append(gone)

    drop, waited = _beside_a_writer(lambda: seconds(month))
    by_row, by_drop = rows / count, drop / sum(dropped)
    return {
        "events": {"deleted by rows": count, "dropped": sum(dropped), "words forgotten": WORDS},
        "seconds": {
            "deleted by rows": rows,
            "dropped": drop,
            "words forgotten": words,
            "all that was dropped, by rows (computed)": by_row * sum(dropped),
            "longest of another writer's transactions meanwhile": waited,
        },
        "times as fast": {"dropped": by_row / by_drop},
    }


def _beside_a_writer(work: Callable[[], float]) -> tuple[float, float]:
    """What `work` returns, and the seconds of the longest transaction of a thread that writes meanwhile."""
    from django.db import connection

    from coordination.models import Event
    from nexus.core.clock import now
    from nexus.core.database.store import write

    done, took = threading.Event(), []

    def append() -> None:
        with write():
            Event.objects.create(stream="workspace", type="benchmark.written", created_at=now())

    def writer() -> None:
        while not done.wait(WRITES_APART):
            took.append(seconds(append))
        connection.close()

    beside = threading.Thread(target=writer)
    beside.start()
    try:
        result = work()
    finally:
        done.set()
        beside.join()
    return result, max(took)


BENCHMARK = Benchmark(
    "events",
    __doc__,
    measure,
    {"--rows": amount(10_000_000, "in the log")},
    quick={"rows": 4_000_000},
)
if __name__ == "__main__":
    BENCHMARK.main()
