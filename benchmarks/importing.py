"""What imports take: of a store of okto-nexus with a million events, made by the published package, and of one of
Agent Bus with a million messages."""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

from benchmarks.harness import Benchmark, Figures, amount, environment
from tests.compat import okto
from tests.topics.agent_bus import SCHEMA

VERSION = okto.VERSIONS[-1]
OTHERS = "workspace_id, stream, type, actor_agent_id, payload, visibility, target, created_at"


def measure(scratch: Path, options: argparse.Namespace) -> Figures:
    """Of each import: seconds, processor time and the most memory."""
    messages = scratch / "agent_bus.sqlite"
    fill_agent_bus(messages, options.messages)
    figures = {f"{options.messages:,} messages": took(scratch / "one", "topics", "import", str(messages), "--json")}
    okto.install(VERSION)
    there, project = scratch / "okto", scratch / "project"
    there.mkdir()
    project.mkdir()
    okto.play(VERSION, there, project, messages=300)
    repeat_events(there / "nexus.db", options.events)
    return figures | {
        f"{options.events:,} events": took(scratch / "two", "import", "okto", str(there), "--yes", "--json")
    }


def took(home: Path, *words: str) -> dict[str, float]:
    """Run a command of nexus to its end."""
    began = time.perf_counter()
    load = os.getloadavg()[0]
    pid = os.posix_spawn(sys.executable, [sys.executable, "-m", "nexus", *words], environment(home))
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise RuntimeError(f"{words} ended with {status}")
    return {
        "seconds": time.perf_counter() - began,
        "processor seconds": usage.ru_utime + usage.ru_stime,
        "peak MiB": usage.ru_maxrss / 1024,
        "load before": load,
    }


def fill_agent_bus(database: Path, messages: int) -> None:
    """Write a store as Agent Bus has it, with messages in ten topics."""
    with closing(sqlite3.connect(database)) as store, store:
        store.executescript(SCHEMA)
        store.execute("INSERT INTO meta VALUES ('schema_version', '6')")
        numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {messages})"
        store.execute(f"{numbers} INSERT INTO topics SELECT 't' || i, 'topic ' || i, i, 'open', NULL, NULL, NULL "
                      "FROM n WHERE i <= 10")  # fmt: skip
        store.execute(f"{numbers} INSERT INTO messages SELECT 'm' || i, 't' || (i % 10 + 1), (i + 9) / 10, "
                      "'peer' || (i % 7), 'message', NULL, printf('The build number %d is green, and the next waits "
                      "for whoever reads this.', i), NULL, NULL, 1e9 + i FROM n")  # fmt: skip


def repeat_events(database: Path, most: int) -> None:
    """Add the events of a store again, until there are so many."""
    with closing(sqlite3.connect(database)) as store, store:
        (own,) = store.execute("SELECT count(*) FROM events").fetchone()
        store.execute(
            f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i * {own} < {most}) "
            f"INSERT INTO events ({OTHERS}) SELECT {OTHERS} FROM n, (SELECT * FROM events) LIMIT {most - own}"
        )


BENCHMARK = Benchmark(
    "importing",
    __doc__,
    measure,
    {"--events": amount(1_000_000, "of okto-nexus"), "--messages": amount(1_000_000, "of Agent Bus")},
    quick={"events": 5_000, "messages": 5_000},
)
if __name__ == "__main__":
    BENCHMARK.main()
