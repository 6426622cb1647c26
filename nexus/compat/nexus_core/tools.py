"""The tools of nexus-core 0.21 over our operations: each has its own parameters and answer, and our rules.

An answer is made of the files as they are after the call, because the tools answer with parts of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

from coordination.parameters import ProjectRoot
from coordination.services import workspaces
from nexus.core.clock import iso_milliseconds, now
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, NexusError, invalid
from nexus.core.operations.parameters import Params
from nexus.core.operations.registry import Toolset
from nexus.planning import documents, mirror, rules, schemas, selectors
from nexus.planning.directory import MAX_BYTES, PLAN, TASKS
from nexus.planning.operations import actor
from nexus.planning.services import cycles, plans, tasks
from nexus.planning.services.changes import Actor
from nexus.planning.services.tasks import NewTask
from nexus.planning.toolset import PLANNING

NEXUS_CORE = Toolset("nexus-core", "The tools of nexus-core 0.21, for its clients.", listed=False)
NO_PLAN = "No active plan"
DECIDED = "이미 결정된 issue입니다. 재결정은 reopen 후 진행하세요."
ALL_DECIDED = "모든 안건이 결정되었습니다. tasks.json으로 태스크를 생성하세요."
NO_RESEARCH = "research_summary is required — complete research before starting a plan"
IN_A_FILE = " Write it to a file in the project, and give its path."
RADIUS = 120  # characters around what was found
Given = dict[str, Any]


class NexusCoreCall(Params):
    project_root: ProjectRoot
    given: dict[str, Any]


class ToolCall(NamedTuple):
    """A call of a tool."""

    given: Given
    root: str
    by: Actor

    @property
    def change(self) -> dict[str, Any]:
        """The arguments that every service which changes something takes."""
        return {"project_root": self.root, "by": self.by}

    def state(self, path: str) -> Any:
        """Return what a file contains, once foreign changes of it are imported; None where there is none."""
        project = workspaces.locate(self.root)
        mirror.import_changes(project)
        text = mirror.FILES[path].text(project.workspace_id)
        return None if text is None else json.loads(text)


Handler = Callable[[ToolCall], dict[str, Any]]


def tool(operation: str) -> Callable[[Handler], Handler]:
    """Register a tool that may be called, and may fail, as an operation of ours."""

    def register(handler: Handler) -> Handler:
        def call(p: NexusCoreCall, caller: Caller) -> dict[str, Any]:
            by = replace(actor(caller, operation), later=True)
            return handler(ToolCall(p.given, p.project_root, by))

        NEXUS_CORE.adapt(f"nx_{handler.__name__}", PLANNING.find(operation), NexusCoreCall, call)
        return handler

    return register


def words(name: str, given: Mapping[str, Any], error: NexusError) -> str:
    """Return the text that nexus-core has for an error; ours for an error that it does not have."""
    if error.code == Code.NOT_FOUND and "issue_id" in error.details:
        return f"Issue {_as_javascript(given['issue_id'])} not found"
    if error.code == Code.NOT_FOUND and "index" in error.details:
        return f"deps[{error.details['index']}] does not exist: task id {error.details['id']} not found"
    if error.code == Code.NOT_FOUND and name.startswith("nx_plan"):
        return NO_PLAN
    if error.code == Code.NOT_FOUND and name.startswith("nx_task"):
        return f"Task {given['id']} not found"
    if error.code == Code.INVALID_TRANSITION and name == "nx_plan_decide":
        return DECIDED
    if error.code == Code.INVALID_TRANSITION and name == "nx_task_close":
        left = ", ".join(map(str, error.details["tasks"]))
        return f"Cannot close: tasks [{left}] are incomplete. Pass force:true to override."
    if error.code == Code.CONTENT_TOO_LARGE:
        return error.message.partition(" Write it to a file")[0] + IN_A_FILE
    return error.message


def _as_javascript(number: float) -> str:
    return str(int(number)) if number == int(number) else repr(number)


def _reference(number: float | None) -> int | None:
    """Return an id; one that is none stands for no entity."""
    if number is None:
        return None
    return int(number) if number == int(number) and abs(number) <= schemas.MOST else -1


@tool("plan_start")
def plan_start(call: ToolCall) -> dict[str, Any]:
    given = call.given
    if not given["research_summary"].strip():
        raise invalid(NO_RESEARCH, field="research_summary")
    plan, archived = plans.start(**given, **call.change)
    return {
        "created": True,
        "plan_id": plan.number,
        "topic": plan.topic,
        "issueCount": len(given["issues"]),
        "previousArchived": archived,
    }


def _part(entry: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: entry[name] for name in names if name in entry}


@tool("plan_status")
def plan_status(call: ToolCall) -> dict[str, Any]:
    plan = call.state(PLAN)
    if plan is None:
        return {"exists": False}
    statuses = [issue["status"] for issue in plan["issues"]]
    counts = {"total": len(statuses), **{status: statuses.count(status) for status in ("pending", "decided")}}
    issues = [_part(issue, "id", "title", "status", "decision") for issue in plan["issues"]]
    return {"exists": True, **_part(plan, "id", "topic"), "summary": counts, "issues": issues}


@tool("plan_update")
def plan_update(call: ToolCall) -> dict[str, Any]:
    action, title = call.given["action"], call.given.get("title")
    try:
        issue = plans.update(
            action="edit" if action == "modify" else action,
            issue_id=_reference(call.given.get("issue_id")),
            title=title,
            **call.change,
        )
    except NexusError as error:
        if action == "modify" and error.code == Code.VALIDATION_ERROR:
            raise invalid(error.message.replace("required for edit", "required for modify")) from None
        raise
    done = {"updated": True, "action": action, "issue_id": issue.number}
    entry = documents.issue_entry(issue)
    if action == "add":
        return {**done, "issue": _part(entry, "id", "title", "status")}
    return {**done, **_part(entry, *{"modify": ("title",), "reopen": ("status",)}.get(action, ()))}


@tool("plan_decide")
def plan_decide(call: ToolCall) -> dict[str, Any]:
    asked: Any = dict.fromkeys(("how_agents", "how_summary", "how_agent_ids"))
    issue, left = plans.decide(
        issue_id=_reference(call.given["issue_id"]) or -1,
        summary=call.given["decision"],
        again=False,
        **asked,
        **call.change,
    )
    return {
        "decided": True,
        "issue": _part(documents.issue_entry(issue), "id", "title", "status", "decision"),
        "allComplete": not left,
        "remaining": [_part(documents.issue_entry(each), "id", "title", "status") for each in left],
        **({} if left else {"message": ALL_DECIDED}),
    }


@tool("plan_update")
def plan_analysis_add(call: ToolCall) -> dict[str, Any]:
    given = call.given
    recorded_at, total = plans.add_analysis(
        **{"agent_id": None, **given, "issue_id": _reference(given["issue_id"])}, **call.change
    )
    return {"added": True, **_part(given, "issue_id", "role"), "recorded_at": recorded_at, "total_entries": total}


@tool("plan_status")
def plan_resume(call: ToolCall) -> dict[str, Any]:
    project, role = workspaces.locate(call.root), call.given["role"]
    mirror.import_changes(project)
    plan = documents.plan_document(project.workspace_id)
    found = selectors.last_analysis(plan, role) if plan else None
    issue_id, agent_id = found or (None, None)
    return {"role": role, "resumable": found is not None, "agent_id": agent_id, "issue_id": issue_id}


def _task(task: Any) -> dict[str, Any]:
    return {"task": schemas.task_in_file(documents.task_entry(task))}


@tool("task_add")
def task_add(call: ToolCall) -> dict[str, Any]:
    given, owner = call.given, call.given["owner"]
    fields = {**dict.fromkeys(NewTask._fields), **given, "deps": given.get("deps", [])}
    fields |= {"owner": owner["role"] or None, "owner_agent_id": owner.get("agent_id")}
    for name, numbers in (("deps", fields["deps"]), ("plan_issue", [fields["plan_issue"] or 0])):
        if any(number > schemas.MOST for number in numbers):
            raise invalid(f"{name}: {schemas.MOST} is the largest id.", field=name)
    task, _ = tasks.add(
        new=NewTask(**{name: fields[name] for name in NewTask._fields}),
        goal=given.get("goal"),
        decisions=given.get("decisions"),
        tier=owner.get("resume_tier"),
        strict=True,
        **call.change,
    )
    return _task(task)


@tool("task_list")
def task_list(call: ToolCall) -> dict[str, Any]:
    board = call.state(TASKS) or {"tasks": []}
    every = board["tasks"]
    ready = rules.ready(
        {task["id"]: task.get("deps", []) for task in every}, {task["id"]: task["status"] for task in every}
    )
    by_status = {
        status: [task["id"] for task in every if task["status"] == status]
        for status in ("in_progress", "completed", "pending")
    }
    counts = {"total": len(every), **_part(by_status, "in_progress", "completed")}
    counts |= {"blocked": [number for number in by_status["pending"] if number not in ready], "ready": ready}
    shown = [task for task in every if call.given.get("include_completed", True) or task["status"] != "completed"]
    return {"tasks": shown, "summary": counts, **_part(board, "goal")}


@tool("task_update")
def task_update(call: ToolCall) -> dict[str, Any]:
    given = dict(call.given)
    number, status, owner, result = (given.pop(name, None) for name in ("id", "status", "owner", "result"))
    if owner and "agent_id" in owner:
        given["owner_agent_id"] = owner["agent_id"] or None
    beside = partial(_beside, owner or {}, result) if result or (owner and "resume_tier" in owner) else None
    task, _ = tasks.edit(number=_reference(number) or -1, given=given, status=status, beside=beside, **call.change)
    return _task(task)


def _beside(owner: Mapping[str, Any], result: Mapping[str, Any] | None, extra: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the further fields of a task's file with another tier of its owner, and its result."""
    tier = {**extra.get("owner", {}), **_part(owner, "resume_tier")}
    changed = {**extra, "owner": {name: value for name, value in tier.items() if value is not None}}
    if result is not None:
        changed["result"] = {**_part(result, "outcome", "summary", "artifacts"), "recorded_at": iso_milliseconds(now())}
    return changed


@tool("task_close")
def task_close(call: ToolCall) -> dict[str, Any]:
    cycle = cycles.close(unfinished=call.given.get("force", False), **call.change).entry
    return {
        "closed": True,
        "plan_id": cycle["plan"]["id"] if cycle["plan"] else None,
        "task_count": len(cycle["tasks"]),
        "incomplete_count": sum(task["status"] != "completed" for task in cycle["tasks"]),
    }


@tool("resume_decide")
def task_resume(call: ToolCall) -> dict[str, Any]:
    board = call.state(TASKS) or {"tasks": []}
    task = next((each for each in board["tasks"] if each["id"] == call.given["id"]), None)
    if task is None:
        raise NexusError(Code.NOT_FOUND, "There is no such task.")
    owner = task["owner"] if isinstance(task.get("owner"), dict) else {}
    tier = owner.get("resume_tier")
    return {
        "task_id": task["id"],
        "resumable": tier is not None,
        "agent_id": owner.get("agent_id"),
        "resume_tier": tier,
    }


@tool("history_search")
def history_search(call: ToolCall) -> dict[str, Any]:
    given, project = call.given, workspaces.locate(call.root)
    query, limit = given.get("query"), given.get("last_n", 10)
    mirror.import_changes(project)
    plain = query and json.dumps(query, ensure_ascii=False) == f'"{query}"'  # the store's texts have escapes
    found = selectors.cycles(project.workspace_id, query if plain else None).reverse()
    texts = found.values_list("document", flat=True)
    if not query:
        shown = [json.loads(text) for text in texts[: min(limit, schemas.MOST_CYCLES)]]
        return {"total": found.count(), "showing": len(shown), "cycles": [_about(cycle) for cycle in shown]}
    grouped, hits, matching = given.get("group_by_cycle", True), cast(list[dict[str, Any]], []), 0
    for text in texts.iterator():
        cycle = json.loads(text)
        cells = [cell for cell in _cells(cycle, given.get("scope", "all")) if query.lower() in cell.text.lower()]
        hits += [_hit(cycle, cell, query, given.get("mode", "snippet")) for cell in cells]
        matching += bool(cells)
        if (matching if grouped else len(hits)) >= limit:
            break
    if grouped:
        return {"total_cycles": matching, "total_hits": len(hits), "hits": hits}
    return {"total_hits": len(hits[:limit]), "hits": hits[:limit]}


def _about(cycle: Mapping[str, Any]) -> dict[str, Any]:
    plan = cycle.get("plan") or {}
    return {
        "cycle_id": cycle["completed_at"],
        "branch": cycle["branch"],
        "completed_at": cycle["completed_at"],
        **({"plan_topic": plan["topic"]} if plan else {}),
        "plan_issues_count": len(plan.get("issues", ())),
        "tasks_count": len(cycle.get("tasks", ())),
    }


class Cell(NamedTuple):
    """A text of a cycle that is searched."""

    path: str
    text: str
    parent: Mapping[str, Any]


def _cells(cycle: Mapping[str, Any], scope: str) -> Iterator[Cell]:
    """Yield the texts of a cycle that a scope names, in their order."""
    for issue in (cycle.get("plan") or {}).get("issues", ()):
        path = f"plan.issues[{issue['id']}]"
        if scope in ("all", "decision") and issue.get("decision"):
            yield Cell(f"{path}.decision", issue["decision"], issue)
        for index, entry in enumerate(schemas.analyses(issue) if scope in ("all", "analysis") else ()):
            if entry:
                yield Cell(f"{path}.analysis[{index}].summary", str(entry["summary"]), issue)
    for task in cycle.get("tasks", ()):
        path = f"tasks[{task['id']}]"
        for name in ("acceptance", "approach", "risk"):
            if scope in ("all", f"task.{name}") and task.get(name):
                yield Cell(f"{path}.{name}", task[name], task)
        result = task.get("result") or {}
        for name in ("outcome", "summary"):
            if scope in ("all", f"task.result.{name}") and name in result:
                yield Cell(f"{path}.result.{name}", str(result[name]), task)
        for index, artifact in enumerate(result.get("artifacts") or ()):
            if scope in ("all", "task.result.artifacts") and artifact:
                yield Cell(f"{path}.result.artifacts[{index}]", str(artifact), task)


def _hit(cycle: Mapping[str, Any], cell: Cell, query: str, mode: str) -> dict[str, Any]:
    found = {"cycle_id": cycle["completed_at"], "path": cell.path}
    return {**found, "parent": cell.parent} if mode == "full" else {**found, "excerpt": _excerpt(cell.text, query)}


def _excerpt(text: str, query: str) -> str:
    """Return what is around the query, counted in UTF-16 as it does."""
    before = text.lower().partition(query.lower())[0]
    units = text.encode("utf-16-le")
    at, length = len(before.encode("utf-16-le")) // 2, len(query.encode("utf-16-le")) // 2
    start, end = max(0, at - RADIUS), min(len(units) // 2, at + length + RADIUS)
    around = units[2 * start : 2 * end].decode("utf-16-le", "surrogatepass")
    return f"{'…' if start else ''}{around}{'…' if end < len(units) // 2 else ''}"


@tool("artifact_write")
def artifact_write(call: ToolCall) -> dict[str, Any]:
    parts = [part for part in call.given["filename"].replace("\\", "/").split("/") if part not in ("", ".", "..")]
    if not parts:
        raise invalid("Invalid filename: empty after sanitize", field="filename")
    path = cycles.write_artifact(filename="/".join(parts), content=call.given["content"], most=MAX_BYTES, **call.change)
    return {"success": True, "path": path.removeprefix(workspaces.locate(call.root).root + "/")}


@tool("context")
def artifact_list(call: ToolCall) -> dict[str, Any]:
    found = selectors.artifacts(workspaces.locate(call.root).root, call.given.get("prefix"))
    return {
        "artifacts": [
            {"filename": each.filename, "size": each.size, "modified_at": iso_milliseconds(each.modified_at)}
            for each in found
        ]
    }
