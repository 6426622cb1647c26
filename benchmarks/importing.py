"""What `nexus import okto` takes of a store with a million events, made by the published package."""

from __future__ import annotations

import argparse
import os
import resource
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from benchmarks.harness import Benchmark, Figures, amount, environment, seconds
from tests.compat import okto

VERSION = okto.VERSIONS[-1]
OTHERS = "workspace_id, stream, type, actor_agent_id, payload, visibility, target, created_at"


def measure(scratch: Path, options: argparse.Namespace) -> Figures:
    """Of one import: seconds, processor time and the most memory."""
    okto.install(VERSION)
    there, project = scratch / "okto", scratch / "project"
    there.mkdir()
    project.mkdir()
    okto.play(VERSION, there, project, messages=300)
    repeat_events(there / "nexus.db", options.events)
    command = [sys.executable, "-m", "nexus", "import", "okto", str(there), "--yes", "--json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = seconds(lambda: subprocess.run(command, check=True, capture_output=True, env=environment(scratch / "home")))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        f"{options.events:,} events": {
            "seconds": took,
            "processor seconds": sum(after[:2]) - sum(before[:2]),
            "peak MiB": after.ru_maxrss / 1024,  # of any child: the others are smaller
            "load before": os.getloadavg()[0],
        }
    }


def repeat_events(database: Path, most: int) -> None:
    """Add the events of a store again, until there are so many."""
    with closing(sqlite3.connect(database)) as store, store:
        (own,) = store.execute("SELECT count(*) FROM events").fetchone()
        store.execute(
            f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i * {own} < {most}) "
            f"INSERT INTO events ({OTHERS}) SELECT {OTHERS} FROM n, (SELECT * FROM events) LIMIT {most - own}"
        )


BENCHMARK = Benchmark(
    "importing", __doc__, measure, {"--events": amount(1_000_000, "in the store")}, quick={"events": 5_000}
)
if __name__ == "__main__":
    BENCHMARK.main()
