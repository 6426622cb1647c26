"""What grows with a store: each operation, list and page on a store of years, against one a hundredth of its size.

python -m benchmarks.years                     # a fifth of the years: 100,000 messages against 1,000
python -m benchmarks.years --scale 1           # 500,000 messages, 2,000,000 events, 1,000 agents
python -m benchmarks.years --only inbox_count  # what has that in its name
python -m benchmarks.years --quick --json
python -m benchmarks.years --table-sizes       # bytes of a message, an event, each table and index
python -m benchmarks.years --home DIR          # keep both stores there; what is filled already is measured as it is
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

from benchmarks.stdio import ROOT

LONG_ID = re.compile(r"[0-9a-f]{32,}")
SCALE, SMALL = 0.2, 0.01
OPEN_TASKS, FEW_OPEN_TASKS = 5_000, 50
GROWN = 2.0  # times what it takes in the small store
MONTH_DAYS = 30
UPKEEP = "upkeep"  # the name for --only
MAY_GROW = {  # calls whose answer is longer in the full store, and why
    "a batch of retention: events": "the small store soon has less than a batch that is old",
    "a batch of retention: read_deliveries": "the same",
    "handoff_list": "the small store has fewer than a page",
    "handoff_list of a project": "the same",
    "files_list": "the same",
    "topic_overview": "the same",
    "inbox_peek of a busy agent": "the same: one message is unread there",
    "GET /admin/agents/agent-000/mail/": "the same",
    "GET /admin/coordination/event/?p=5000": "the small store has no such page",
    "GET /admin/topics/tpc_long/tail/?after=1000": "the small store's topic ends before",
    "event_get of a rare type": "it looks through 2,000 events of a project; the small store has fewer",
    "task_list": "it answers with every task of the open cycle",
    "task_add, task_update": "each writes tasks.json anew, which has every task of the open cycle",
    "context": "it looks whether another program changed tasks.json",
    "plan_status": "the same",
}
NOTHING_MS = 1.0  # what takes no longer in the large store cannot have grown much


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=SCALE, help="of the years (default: %(default)s)")
    parser.add_argument("--calls", type=int, default=7, help="of each kind (default: %(default)s)")
    parser.add_argument("--only", default="", help="part of the names of what is called")
    parser.add_argument("--home", type=Path, help="where the stores are kept; else they are thrown away")
    parser.add_argument(
        "--table-sizes", action="store_true", help="print bytes of a message, an event, tables, indexes"
    )
    parser.add_argument("--quick", action="store_true", help="fewer calls and small stores, to see that it works")
    parser.add_argument("--fail", action="store_true", help="exit code 1 where something grew that may not")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if options.quick:
        options.scale, options.calls = 0.04, 2
    with tempfile.TemporaryDirectory(prefix="nexus-bench-") as scratch:
        figures = measure(options.home or Path(scratch), options)
    print(json.dumps(figures, indent=2) if options.json else table(figures))
    sys.exit(options.fail and bool(figures["failed"]))


def measure(home: Path, options: argparse.Namespace) -> dict[str, Any]:
    """By call the CPU time in ms in both stores and their ratio, the most first."""
    with ExitStack() as stack:
        full = stack.enter_context(Served(home / "full", options.scale, OPEN_TASKS))
        small = stack.enter_context(Served(home / "small", options.scale * SMALL, FEW_OPEN_TASKS))
        filled = {"full": full.hear(), "small": small.hear()}
        calls: dict[str, dict[str, float]] = {}
        for number, name in enumerate(full.ask(calls=True)):
            if options.only not in name:
                continue
            rounds = [(full.ask(call=number), small.ask(call=number)) for _ in range(options.calls + 1)]
            if None in itertools.chain(*rounds):
                sys.exit(f"{name} failed")
            times = [statistics.median(side) for side in zip(*rounds[1:], strict=True)]  # the first warms up
            calls[LONG_ID.sub("…", name)] = {"full": times[0], "small": times[1], "ratio": times[0] / times[1]}
        figures: dict[str, Any] = {"filled": filled, "calls": calls}
        if options.table_sizes:
            figures |= full.ask(bytes=True)
        if options.only in UPKEEP:
            figures |= upkeep(full, small, options.scale)
    figures["calls"] = dict(sorted(calls.items(), key=lambda item: -item[1]["ratio"]))
    figures["grown"] = [name for name, each in figures["calls"].items() if has_grown(each)]
    figures["failed"] = [name for name in figures["grown"] if name not in MAY_GROW]
    return figures


def upkeep(full: Served, small: Served, scale: float) -> dict[str, Any]:
    """The seconds that what looks at a whole store takes in both, and how the prune of a month went."""
    with tempfile.TemporaryDirectory(prefix="nexus-bench-", dir=full.home.parent) as scratch:
        copied = Path(scratch) / "copy"
        took = full.ask(upkeep=str(copied)), small.ask(upkeep=str(Path(scratch) / "small"))
        with Served(copied, scale, OPEN_TASKS) as copy:
            copy.hear()
            return {
                "upkeep": {name: [each[name] for each in took] for name in took[0]},
                "prune": copy.ask(prune=MONTH_DAYS),
            }


def has_grown(times: dict[str, float]) -> bool:
    return times["ratio"] > GROWN and times["full"] > NOTHING_MS


def table(figures: dict[str, Any]) -> str:
    """The figures for people."""
    lines = [f"{name}: {filled}" for name, filled in figures["filled"].items()]
    lines += [f"bytes, {key}: {size:,}" for key, size in figures.get("bytes", {}).items()]
    lines += [f"bytes of {name}: {size:,}" for name, size in figures.get("table_sizes", {}).items()]
    lines.append(f"{'ratio':>7} {'full ms':>9} {'small ms':>9}")
    for name, each in figures["calls"].items():
        mark = "*" if has_grown(each) else " "
        lines.append(f"{each['ratio']:7.1f}{mark}{each['full']:9.2f} {each['small']:9.2f}  {name}")
    lines.append(f"{len(figures['grown'])} of {len(figures['calls'])} take over {GROWN} times as long (*)")
    for name, (full, small) in figures.get("upkeep", {}).items():
        lines.append(f"{name}: {full:.1f} s, in the small store {small:.1f} s")
    if pruned := figures.get("prune"):
        lines.append(f"prune of a month: {pruned['rows']} rows in {pruned['seconds']:.0f} s")
        lines.append(f"prune, longest transaction: {pruned['longest_ms']:.0f} ms")
    lines += [f"{name} grew, and its answer did not" for name in figures["failed"]]
    return "\n".join(lines)


class Served:
    """A store, and the process that calls upon it."""

    def __init__(self, home: Path, scale: float, open_tasks: int) -> None:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
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


if __name__ == "__main__":
    main()
