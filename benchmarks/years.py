"""What grows with a store: each operation, list and page on a store of years, against one a hundredth of its size.

python -m benchmarks.years                     # a fifth of the years: 100,000 messages against 1,000
python -m benchmarks.years --scale 1           # 500,000 messages, 2,000,000 events, 1,000 agents
python -m benchmarks.years --only inbox_count  # what has that in its name
python -m benchmarks.years --fail              # exit code 1 where something grew that may not: before a release

The full store has, times `--scale`: 500,000 messages of which one agent got a fifth, 2,000,000 events, 20,000 handoffs,
5,000 archived tasks, 200,000 posts, 5,000 reservations of files and 1,000 agents; the other a hundredth of that.
Whatever the scale, the cycle that is open has 5,000 tasks in the one, 50 in the other, and nine in ten are completed.
Each is served by a process of its own (`benchmarks.years_store`), and both are asked in turn: what else the machine
does slows them alike. A line is the median CPU time of a call in either store, and how many times one is the other.

At the end stands what looks at a whole store, which takes time in proportion, and the prune of a month in a copy of the
full store, with its longest transaction (wall time, flushes of the disk among it): all other writers wait for that.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Benchmark, Figures, amount

LONG_ID = re.compile(r"[0-9a-f]{32,}")
SCALE, SMALL = 0.2, 0.01
OPEN_TASKS, FEW_OPEN_TASKS = 5_000, 50
RATIO, FULL, FEW = "ratio", "full", "small"  # the columns
GROWN = 2.0  # times what it takes in the small store
MONTH_DAYS = 30
UPKEEP = "upkeep"  # the name for --only
MAY_GROW = {  # calls whose answer is longer in the full store, and why
    "a batch of retention: events": "the small store soon has less than a batch that is old",
    "a batch of retention: read_deliveries": "the same",
    "capability_list": "the small store has fewer agents, so fewer capabilities",
    "handoff_list": "the small store has fewer than a page",
    "handoff_list of a project": "the same",
    "files_list": "the same",
    "artifact_list": "the same",
    "topic_overview": "the same",
    "inbox_peek of a busy agent": "the same: one message is unread there",
    "GET /admin/agents/agent-000/mail/": "the same",
    "GET /admin/agents/agent-000/": "the same: its mail there is a few letters",
    "GET messages?workspace=…&recipient=agent-007": "the small store has fewer than a page",
    "GET /admin/planning/cycle/": "the same",
    "GET /admin/timeline/?window=30d&workspace=…": "the small store has fewer periods than the page draws",
    "GET /admin/graph/?hours=168": "the small store has fewer agents to draw",
    **dict.fromkeys(
        ("GET /admin/", "GET /admin/?q=agent-00", "GET /admin/attention/"),
        "it reads the state of each agent, and 2,000 of each kind of need at most; the small store has fewer",
    ),
    **dict.fromkeys(
        ("handoff_list_available", "handoff_list_available, nothing there"),
        "it looks through 2,000 open handoffs at most, and the small store has fewer",
    ),
    "shared_md_render": "the file has every active session and open handoff of the project",
    "GET /admin/coordination/event/?p=5000": "the small store has no such page",
    "GET /admin/topics/tpc_long/tail/?after=1000": "the small store's topic ends before",
    **dict.fromkeys(
        (
            "GET deliveries?workspace=none",
            "GET deliveries?from_agent_id=nobody",
            "GET deliveries?from_agent_id=agent-007",
        ),
        "no index: a request looks at 10,000 deliveries at most, and the small store has fewer",
    ),
    "GET handoffs?from_agent_id=agent-007": "no index: likewise of handoffs",
    "event_get of a rare type": "no index: it looks through 50,000 events at most, and the small store has fewer",
    "files_reserve of a glob anywhere": "it looks for a text in each reservation held now, and the small store has 50",
    "task_list": "it answers with every task of the open cycle",
    "task_add, task_update": "each writes tasks.json anew, which has every task of the open cycle",
    "context": "it looks whether another program changed tasks.json",
    "plan_status": "the same",
    "history_search": "the same of history.json, and it looks for a text in each cycle",
    "GET /admin/plan/?workspace=…": "it finds what each task of the open cycle waits for",
    "inbox_count of a busy agent": "it counts what the agent has read, in an index",
}
NOTHING_MS = 1.0  # what takes no longer in the large store cannot have grown much


def measure(scratch: Path, options: argparse.Namespace) -> Figures:
    """By call the CPU time in ms in both stores and their ratio, the most first; then what looks at a whole store."""
    with ExitStack() as stack:
        full = stack.enter_context(Served(scratch / "full", options.scale, OPEN_TASKS))
        small = stack.enter_context(Served(scratch / "small", options.scale * SMALL, FEW_OPEN_TASKS))
        filled = {FULL: full.hear(), FEW: small.hear()}
        calls: dict[str, dict[str, float]] = {}
        for number, name in enumerate(full.ask(calls=True)):
            if options.only not in name:
                continue
            rounds = [(full.ask(call=number), small.ask(call=number)) for _ in range(options.calls + 1)]
            if None in itertools.chain(*rounds):
                sys.exit(f"{name} failed")
            times = [statistics.median(side) for side in zip(*rounds[1:], strict=True)]  # the first warms up
            calls[LONG_ID.sub("…", name)] = {RATIO: times[0] / times[1], FULL: times[0], FEW: times[1]}
        rows: dict[str, dict[str, Any]] = dict(sorted(calls.items(), key=lambda item: -item[1][RATIO]))
        if options.only in UPKEEP:
            rows |= upkeep(full, small, options.scale)
        for what in filled[FULL]:
            rows[f"filled: {what}"] = {size: filled[size][what] for size in (FULL, FEW)}
    return {column: {name: row[column] for name, row in rows.items() if column in row} for column in (RATIO, FULL, FEW)}


def upkeep(full: Served, small: Served, scale: float) -> dict[str, dict[str, Any]]:
    """The seconds that what looks at a whole store takes in both, and how the prune of a month went."""
    with tempfile.TemporaryDirectory(prefix="nexus-bench-", dir=full.home.parent) as scratch:
        copied = Path(scratch) / "copy"
        took = full.ask(upkeep=str(copied)), small.ask(upkeep=str(Path(scratch) / "small"))
        rows = {f"{name}, s": {FULL: took[0][name], FEW: took[1][name]} for name in took[0]}
        with Served(copied, scale, OPEN_TASKS) as copy:
            copy.hear()
            return rows | {
                f"prune of a month, {what}": {FULL: value} for what, value in copy.ask(prune=MONTH_DAYS).items()
            }


def faults(figures: Figures, options: argparse.Namespace) -> list[str]:
    """With --fail, what grew although its answer did not."""
    if not options.fail:
        return []
    full = figures[FULL]
    grown = [name for name, ratio in figures[RATIO].items() if ratio > GROWN and full[name] > NOTHING_MS]
    return [f"{name} grew, and its answer did not" for name in grown if name not in MAY_GROW]


class Served:
    """A store, and the process that fills it and calls upon it."""

    def __init__(self, home: Path, scale: float, open_tasks: int) -> None:
        home.mkdir(mode=0o700, exist_ok=True)
        self.home = home
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.years_store", str(home), str(scale), str(open_tasks)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: Any) -> None:
        self._process.terminate()
        self._process.wait()

    def ask(self, **question: Any) -> Any:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return self.hear()

    def hear(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"{self._process.args!r} ended")
        return json.loads(line)


BENCHMARK = Benchmark(
    "years",
    __doc__,
    measure,
    {
        "--scale": amount(SCALE, "of the years"),
        "--calls": amount(7, "of each kind"),
        "--only": {"default": "", "help": "part of the names of what is called"},
        "--fail": {"action": "store_true", "help": "exit code 1 where something grew that may not"},
    },
    quick={"scale": 0.04, "calls": 2},
    faults=faults,
)
if __name__ == "__main__":
    BENCHMARK.main()
