"""What `benchmarks.pages` asks the plan's pages of: a plan with an open cycle, after closed cycles of 50 tasks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def fill_plan(home: Path, cycles: int = 200, open_tasks: int = 60) -> dict[str, str]:
    """Both in a project of its own: what its pages are found by. Of over 60 open tasks nine in ten are completed."""
    from coordination.services import workspaces
    from nexus.core.clock import iso_milliseconds, now
    from nexus.planning import mirror
    from nexus.planning.documents import cycle_row
    from nexus.planning.models import Cycle, Issue, Task
    from nexus.planning.services import plans, tasks
    from nexus.planning.services.changes import Actor
    from nexus.planning.services.tasks import NewTask

    root, moment = home / "planned", now()
    root.mkdir(exist_ok=True)
    nobody, project = Actor(), str(root)
    place = workspaces.locate(project)

    def task(number: int) -> NewTask:
        deps = sorted({each for each in (number - 1, number // 2, number - 7) if 0 < each < number and number % 5 != 1})
        context = f"Part {number} is slow, and its cache is read twice. " * 10
        return NewTask(f"Rewrite part {number} of the parser", context, deps, *[None] * 7)

    issues = [f"Which parser does part {number} have?" for number in range(10)]
    plans.start(project_root=project, topic="Parser", issues=issues, research_summary="Read.", by=nobody)
    for number in range(1, min(open_tasks, 60) + 1):
        tasks.add(project_root=project, new=task(number), goal=None, decisions=None, by=nobody)
    for number in range(1, 6):
        plans.decide(
            project_root=project, issue_id=number, summary="The **short** one.", how_agents=None, how_summary=None,
            how_agent_ids=None, by=nobody,
        )  # fmt: skip
    with mirror.changing(place) as change:
        entries = [{**task(n)._asdict(), "id": n, "status": "completed"} for n in range(1, 51)]
        done = [{name: value for name, value in entry.items() if value is not None} for entry in entries]
        plan = {"id": 1, "topic": "Lexer", "issues": [], "created_at": iso_milliseconds(moment)}
        for position in range(1, cycles + 1):
            cycle: Any = {"completed_at": iso_milliseconds(moment), "branch": "main", "plan": plan, "tasks": done}
            cycle_row(place.workspace_id, cycle, position).save()
            Task.objects.bulk_create(
                Task(
                    task_key=f"tsk_{position:05}_{entry['id']:02}", workspace_id=place.workspace_id,
                    number=entry["id"], position=entry["id"], title=entry["title"], context=entry["context"],
                    deps=entry["deps"], status="completed", created_at=moment, updated_at=moment, closed_at=moment,
                )
                for entry in entries
            )  # fmt: skip
        change.archived = True
        Task.objects.bulk_create(
            Task(
                task_key=f"tsk_open_{number:05}", workspace_id=place.workspace_id, number=number, position=number,
                title=task(number).title, context=task(number).context, deps=task(number).deps,
                status="completed" if number % 10 else "pending", created_at=moment, updated_at=moment,
            )
            for number in range(61, open_tasks + 1)
        )  # fmt: skip
    return {
        "place": place.workspace_id,
        "task": Task.objects.current(place.workspace_id)[30].pk,
        "cycle": str(Cycle.objects.all()[0].pk),
        "issue": str(Issue.objects.all()[0].pk),
    }


def plan_pages(plan: Mapping[str, str]) -> list[str]:
    place = plan["place"]
    return [
        "/admin/plan/",
        f"/admin/plan/?workspace={place}",
        f"/admin/plan/tasks/{plan['task']}/",
        f"/admin/plan/cycles/{plan['cycle']}/",
        f"/admin/plan/issues/{plan['issue']}/",
        *(
            f"/admin/plan/history/?workspace={place}{more}"
            for more in ("", "&q=cache", "&q=nothing-has-this", "&page=4")
        ),
        *(f"/admin/plan/{place}/{act}/" for act in ("start", "close", "task")),
        "/admin/planning/task/",
        "/admin/planning/cycle/",
    ]
