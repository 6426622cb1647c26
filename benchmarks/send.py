"""What a message costs in process, beside the same rows written by bare SQLite and beside a task that huey stores.

Each write is committed to the disk (WAL, synchronous=FULL). The bare rows go into the same tables of the same store,
through the same indexes and triggers. Huey stands in the table where it is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import sqlite3
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import Benchmark, Figures, amount, set_up

AT_ONCE = 50  # writes that are timed together: the process's clock is coarse
TABLES = ("messages", "message_deliveries", "events")


def measure(scratch: Path, options: argparse.Namespace) -> Figures:
    """By way, the medians of a write in ms: of the process's CPU and of the clock; and ours as a ratio to each."""
    set_up(scratch / "home")
    ways = {"message_create": _nexus(scratch), "the same rows, bare": _bare(scratch / "home" / "nexus.db")}
    if importlib.util.find_spec("huey"):
        ways["huey, a task of as much text"] = _huey(scratch)
    samples: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(options.rounds + 1):
        for way, write in ways.items():
            cpu, clock = time.process_time(), time.perf_counter()
            for _ in range(AT_ONCE):
                write()
            samples[way].append((time.process_time() - cpu, time.perf_counter() - clock))
    figures: Figures = {}
    for way, taken in samples.items():
        cpu, clock = (statistics.median(times) / AT_ONCE * 1000 for times in zip(*taken[1:], strict=True))
        figures[way] = {"CPU, ms": cpu, "clock, ms": clock}
    ours = dict(figures["message_create"])
    for own in figures.values():
        own |= {f"ours to it, {what.split(',')[0]}": ours[what] / own[what] for what in ours}
    return figures


def _nexus(scratch: Path) -> Callable[[], Any]:
    """Send a message, by the operation that every transport calls."""
    from coordination.toolset import run
    from nexus.core.operations.caller import Caller

    me = Caller("benchmark")
    for agent in ("sender", "receiver"):
        assert run(me, "agent_register", {"agent_id": agent})["ok"]
    letter = {"project_root": str(scratch), "from_agent_id": "sender", "subject": "s", "body": "b" * 300}
    letter["target"] = {"strategy": "direct", "agent_id": "receiver"}  # type: ignore[assignment]
    assert run(me, "message_create", letter)["ok"]
    return lambda: run(me, "message_create", letter)


def _bare(database: Path) -> Callable[[], None]:
    """Write the rows of a message anew, with ids of their own, by the driver alone."""
    store = sqlite3.connect(database, isolation_level=None)
    store.row_factory = sqlite3.Row
    store.execute("PRAGMA synchronous = FULL")
    store.execute("PRAGMA foreign_keys = ON")
    last = {table: dict(store.execute(f"SELECT * FROM {table} ORDER BY rowid DESC").fetchone()) for table in TABLES}
    insert = {
        table: f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(f':{name}' for name in row)})"
        for table, row in last.items()
    }
    message_id = last["messages"]["message_id"]
    ids = (f"{number:0{len(message_id)}}" for number in itertools.count())

    def write() -> None:
        new = next(ids)
        event = {**last["events"], "event_id": None, "payload": last["events"]["payload"].replace(message_id, new)}
        store.execute("BEGIN IMMEDIATE")
        store.execute(insert["messages"], {**last["messages"], "message_id": new})
        store.execute(
            insert["message_deliveries"], {**last["message_deliveries"], "delivery_id": new, "message_id": new}
        )
        store.execute(insert["events"], event)
        store.execute("UPDATE agents SET last_seen_at = ? WHERE agent_id = 'sender'", [new])
        store.execute("COMMIT")

    return write


def _huey(scratch: Path) -> Callable[[], Any]:
    """Enqueue a task."""
    from huey import SqliteHuey  # type: ignore[import-untyped]

    queue = SqliteHuey(filename=str(scratch / "huey.db"), fsync=True, journal_mode="wal")

    @queue.task()  # type: ignore[untyped-decorator]
    def receive(subject: str, body: str) -> None:
        """Never run here."""

    return lambda: receive("s", "b" * 300)


BENCHMARK = Benchmark(
    "send", __doc__, measure, {"--rounds": amount(40, f"of {AT_ONCE} writes each")}, quick={"rounds": 2}
)
if __name__ == "__main__":
    BENCHMARK.main()
