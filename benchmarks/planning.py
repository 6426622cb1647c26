"""The figures of planning on stdio, files included, each as a ratio to something measured in the same run.

python -m benchmarks.planning              # an empty history and one of 200 cycles, side by side
python -m benchmarks.planning --quick --json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from mcp.client.client import Client

from benchmarks.stdio import ROOT, RUNMCP, WARM_UP, Samples, _call, _timed, connect, table

CYCLES, TASKS, ISSUES = 200, 50, 5
MOMENT = "2026-01-01T00:00:00.000Z"
KINDS = ("task_add", "task_update", "plan_decide")
RARE = f"cycle {CYCLES // 2} is about"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=300, help="timed calls of each kind (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="fewer calls and a shorter history, to see that it works")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    calls, cycles = (30, 20) if options.quick else (options.calls, CYCLES)
    with tempfile.TemporaryDirectory(prefix="nexus-bench-") as scratch:
        figures = measure(Path(scratch).resolve(), calls, cycles)
    print(json.dumps(figures, indent=2) if options.json else table(figures))


def measure(scratch: Path, calls: int, cycles: int) -> dict[str, Any]:
    """Every figure: medians in milliseconds, and the ratios that are claimed."""
    projects = {name: scratch / f"project-{name}" for name in ("empty", "filled")}
    for project in projects.values():
        (project / ".nexus").mkdir(parents=True)
    (projects["filled"] / ".nexus/history.json").write_text(json.dumps(history(cycles), indent=2))
    samples = asyncio.run(_calls(scratch, projects, calls))
    median = {kind: statistics.median(values) * 1000 for kind, values in samples.items()}
    ratios = {f"{kind} to a no-op call": median[f"{kind}: empty"] / median["no-op"] for kind in KINDS}
    kinds = [kind.removesuffix(": empty") for kind in median if kind.endswith(": empty")]
    ratios |= {f"{kind}, filled to empty": median[f"{kind}: filled"] / median[f"{kind}: empty"] for kind in kinds}
    return {
        "calls": calls,
        "history": {"cycles": cycles, "tasks": cycles * TASKS},
        "median_ms": {kind: round(value, 3) for kind, value in median.items()},
        "ratios": {what: round(value, 2) for what, value in ratios.items()},
    }


def history(cycles: int) -> dict[str, Any]:
    """A history.json as another consumer left it."""
    text = "Every reader of the cache key goes through this; what it may not do stands in the decision."
    return {
        "cycles": [
            {
                "completed_at": MOMENT,
                "branch": "main",
                "plan": {
                    "id": number,
                    "topic": f"What cycle {number} is about",
                    "issues": [
                        {"id": issue, "title": f"Which of {issue}?", "status": "decided", "decision": text}
                        for issue in range(1, ISSUES + 1)
                    ],
                    "created_at": MOMENT,
                },
                "tasks": [
                    {"id": task, "title": f"Step {task}", "context": text, "status": "completed", "deps": [task - 1]}
                    for task in range(1, TASKS + 1)
                ],
            }
            for number in range(1, cycles + 1)
        ]
    }


async def _calls(scratch: Path, projects: dict[str, Path], calls: int) -> Samples:
    samples: Samples = {}
    async with AsyncExitStack() as stack:
        noop = await connect(stack, str(ROOT / "benchmarks/noop_server.py"), home=scratch)
        planning = (*RUNMCP, "--toolsets", "planning")
        clients = {name: await connect(stack, *planning, home=scratch / name) for name in projects}
        for turn in range(calls + WARM_UP):  # in turn, so that a slow moment of the machine hits all alike
            task = turn % TASKS + 1
            await _timed(samples, "no-op", noop.call_tool("noop", {}))
            for name, client in clients.items():
                place = {"project_root": str(projects[name])}
                if task == 1:
                    await _begin(client, place)
                add = _call(
                    client, "task_add", **place, title=f"Step {task}", context="Why it is done.", deps=[task - 1]
                )
                await _timed(samples, f"task_add: {name}", add)
                update = _call(client, "task_update", **place, id=task, status="completed")
                await _timed(samples, f"task_update: {name}", update)
                decide = _call(client, "plan_decide", **place, issue_id=turn % ISSUES + 1, summary=f"So it is {turn}.")
                await _timed(samples, f"plan_decide: {name}", decide)
                await _timed(samples, f"task_list: {name}", _call(client, "task_list", **place))
                await _timed(samples, f"history_search: {name}", _call(client, "history_search", **place, query=RARE))
    return {kind: values[WARM_UP:] for kind, values in samples.items()}


async def _begin(client: Client, place: dict[str, str]) -> None:
    """Another cycle."""
    await _call(client, "task_close", **place)
    issues = [f"Which of {number}?" for number in range(1, ISSUES + 1)]
    await _call(client, "plan_start", **place, topic="The cache key", issues=issues, research_summary="Read it.")


if __name__ == "__main__":
    main()
