"""What calls of planning take on stdio, after no cycle and after hundreds, beside one that does nothing."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from mcp.client.client import Client

from benchmarks.harness import WARM_UP, Benchmark, Figures, StdioCalls, amount, call

TASKS, ISSUES = 50, 5
MOMENT = "2026-01-01T00:00:00.000Z"
TEXT = "Every reader of the cache key goes through this; what it may not do stands in the decision."


async def measure(scratch: Path, options: argparse.Namespace) -> Figures:
    """By kind of call, its median and how many calls that do nothing take as long."""
    projects = {f"after {count} cycles": scratch / f"project-{count}" for count in (0, options.cycles)}
    for project in projects.values():
        (project / ".nexus").mkdir(parents=True)
    (project / ".nexus/history.json").write_text(json.dumps({"cycles": history(options.cycles)}, indent=2))
    rare = f"cycle {options.cycles // 2} is about"
    async with StdioCalls(scratch) as calls:
        clients = {name: await calls.connect(scratch / name, "--toolsets", "planning") for name in projects}
        for turn in range(WARM_UP + options.calls):
            task = turn % TASKS + 1
            for name, client in clients.items():
                root = {"project_root": str(projects[name])}
                if task == 1:
                    await begin(client, root)
                new = {"title": f"Step {task}", "context": "Why it is done.", "deps": [task - 1]}
                decision = {"issue_id": turn % ISSUES + 1, "summary": f"So it is {turn}."}
                kinds: dict[str, dict[str, Any]] = {
                    "task_add": new,
                    "task_update": {"id": task, "status": "completed"},
                    "plan_decide": decision,
                    "task_list": {},
                    "history_search": {"query": rare},
                }
                for tool, arguments in kinds.items():
                    await calls.time(f"{tool}, {name}", call(client, tool, **root, **arguments))
        return calls.figures()


def history(cycles: int) -> list[dict[str, Any]]:
    """The closed cycles of a history.json, as another program left it."""
    tasks = [
        {"id": task, "title": f"Step {task}", "context": TEXT, "status": "completed", "deps": [task - 1]}
        for task in range(1, TASKS + 1)
    ]
    issues = [
        {"id": issue, "title": f"Which of {issue}?", "status": "decided", "decision": TEXT}
        for issue in range(1, ISSUES + 1)
    ]
    plan = {"issues": issues, "created_at": MOMENT}
    return [
        {
            "completed_at": MOMENT,
            "branch": "main",
            "plan": {"id": number, "topic": f"What cycle {number} is about", **plan},
            "tasks": tasks,
        }
        for number in range(1, cycles + 1)
    ]


async def begin(client: Client, root: dict[str, str]) -> None:
    """Another cycle."""
    await call(client, "task_close", **root)
    issues = [f"Which of {number}?" for number in range(1, ISSUES + 1)]
    await call(client, "plan_start", **root, topic="The cache key", issues=issues, research_summary="Read it.")


BENCHMARK = Benchmark(
    "planning",
    __doc__,
    measure,
    {"--calls": amount(300, "of each kind"), "--cycles": amount(200, f"closed, of {TASKS} tasks each")},
    quick={"calls": 30, "cycles": 20},
)
if __name__ == "__main__":
    BENCHMARK.main()
