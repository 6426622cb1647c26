"""Writes of tasks. Each is one transaction that imports foreign changes and leaves the files in step."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from coordination.errors import check_claim
from coordination.ids import new_id
from coordination.selectors import require_agent
from coordination.services.workspaces import ProjectDirectory
from handoffs import checks, lifecycle
from nexus.core.clock import iso_milliseconds
from nexus.core.operations.errors import Code, NexusError, invalid
from nexus.core.size_limits import json_within_limit
from nexus.planning import documents, notices, rules, selectors, submissions
from nexus.planning.catalog import bundled
from nexus.planning.models import Board, Task
from nexus.planning.notices import emit_event
from nexus.planning.schemas import MOST_TASKS, TASKS, has_later_owner
from nexus.planning.services.changes import Actor, changing

TESTED = frozenset({"acceptance_criteria", "verifier"})


class NewTask(NamedTuple):
    """A task to add, with the fields of its file."""

    title: str
    context: str
    deps: list[int]
    approach: str | None
    acceptance: str | None
    risk: str | None
    plan_issue: int | None
    owner: str | None
    owner_agent_id: str | None
    owner_reuse_policy: str | None
    acceptance_criteria: list[str] | None = None
    verifier: Any = None  # as `handoffs.lifecycle.parse_verifier` takes it


def add(
    *,
    project_root: str,
    new: NewTask,
    goal: str | None,
    decisions: list[str] | None,
    by: Actor,
    tier: str | None = None,
    strict: bool = False,
) -> tuple[Task, list[str]]:
    """Add a task to the cycle; return it, and warnings about its dependencies. `tier` is its owner's resume_tier.

    Raises VALIDATION_ERROR for more tasks than a cycle may have, for a malformed verifier and for a check that nobody
    reviewed, NOT_FOUND for a verifier that is not registered, for an operator's `owner_agent_id` that is not, and if
    `strict` for dependencies that do not exist, CONTENT_TOO_LARGE, and as `changing` does.
    """
    json_within_limit([*new, goal, decisions], "context")
    with changing(project_root, by) as change:
        _check_owner(new.owner_agent_id, by)
        workspace_id = change.project.workspace_id
        new = new._replace(verifier=_verifier(workspace_id, new.acceptance_criteria, new.verifier))
        board = documents.open_board(workspace_id) or Board.objects.create(workspace_id=workspace_id)
        if goal is not None or decisions:
            board.goal = board.goal if goal is None else goal
            board.decisions = [*board.decisions, *(decisions or [])]
            board.save()
        if Task.objects.current(workspace_id).count() >= MOST_TASKS:
            raise invalid(f"A cycle has {MOST_TASKS} tasks at most; close it with task_close.", field="title")
        if strict and new.deps:
            _check_there(new.deps, selectors.dependencies(workspace_id)[0])
        current = Task.objects.current(workspace_id)
        number = current.order_by("-number").values_list("number", flat=True).first() or 0
        last, beside = current.reverse().values_list("position", "extra").first() or (0, None)
        change.adds[TASKS.path] += documents.length(new._asdict(), goal, decisions)
        later = by.later or has_later_owner({"extra": beside or {}})  # as the tasks before it
        task = Task(
            task_key=new_id("tsk"),
            workspace_id=workspace_id,
            number=number + 1,
            position=last + 1,
            stamp=iso_milliseconds(change.moment),
            created_by=by.name,
            created_at=change.moment,
            updated_at=change.moment,
            extra={"owner": {} if tier is None else {"resume_tier": tier}} if later else None,
            **new._asdict(),
        )
        task.save(force_insert=True)
        emit_event(workspace_id, "task.added", by.name, change.moment, task=task, owner=task.owner)
        notices.notify_ready(selectors.ready_among([task]), by.name, change.moment)
    return task, warnings(task)


def _verifier(workspace_id: str, criteria: Sequence[str] | None, given: Any) -> str | None:
    """Return the verifier of a task with these criteria, as it is stored. Raises VALIDATION_ERROR and NOT_FOUND."""
    parsed = checks.parse(criteria)
    checks.verify_names(parsed, workspace_id)
    verifier = checks.verifier_of(given, parsed)
    if (named := lifecycle.named_agent(verifier)) is not None:
        require_agent(named)
    return verifier


def _check_owner(agent_id: str | None, by: Actor) -> None:
    """Check whom an operator assigns a task to. Agents may name what their client alone knows, such as a subagent."""
    if by.operator and agent_id is not None:
        require_agent(agent_id)


def _check_there(deps: Sequence[int], known: Container[int]) -> None:
    for index, each in enumerate(deps):
        if each not in known:
            raise NexusError(Code.NOT_FOUND, f"There is no task {each} to depend on.", {"index": index, "id": each})


def warnings(task: Task) -> list[str]:
    """Return why nobody gets a notice of a task of the open cycle: its owner is nobody's id or role; it has unknown
    dependencies, or is in a dependency cycle."""
    found, number = [], task.number
    named = notices.owners(task.owner_agent_id, task.owner)
    if named and not (bundled.agents().keys() & set(named) or selectors.has_agent(named)):
        found.append(f"No agent has the id or the role {' or '.join(named)}: nobody gets a notice of this task.")
    if not task.deps:
        return found
    deps, _ = selectors.dependencies(task.workspace_id)
    if strange := rules.unknown(deps, number):
        found.append(f"There is no task {', '.join(map(str, strange[:20]))}: until one has that id, this is not ready.")
    if circle := rules.cycle_of(deps, number):
        way = " → ".join(map(str, [*circle[:20], circle[0]]))
        found.append(f"{way} is a circle: none of these tasks becomes ready while each waits for the next.")
    return found


def change_status(*, project_root: str, number: int, status: str, by: Actor, claim_epoch: int | None = None) -> Task:
    """Change the status of a task of the cycle; every change is allowed, unless the task was begun anew since the claim
    that the call names. A result that is checked is submitted instead of completed, and the task stays in progress.

    Raises NOT_FOUND with the contract's words, STALE_CLAIM, and as `changing` does.
    """
    with changing(project_root, by) as change:
        task = get(change.project, number)
        check_claim(claim_epoch, task.claim_epoch, "task")
        _move(task, status, by.name, change.moment)
    return task


def edit(
    *,
    project_root: str,
    number: int,
    given: Mapping[str, Any],
    by: Actor,
    status: str | None = None,
    beside: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
) -> tuple[Task, list[str]]:
    """Change fields of a task of the cycle, named as in NewTask, its `status`, and with `beside` the further fields of
    its file; return the task, and warnings about its `deps`.

    Raises NOT_FOUND with the contract's words and as `add` does, CONTENT_TOO_LARGE, and as `changing` does.
    """
    json_within_limit(list(given.values()), next(iter(given), "title"))
    with changing(project_root, by) as change:
        task = get(change.project, number)
        if beside is not None:
            given = {**given, "extra": dict(beside(task.extra or {})) or None}
        _check_owner(given.get("owner_agent_id"), by)
        if TESTED & given.keys():
            criteria = given.get("acceptance_criteria", task.acceptance_criteria)
            verifier = given.get("verifier", lifecycle.serialize_verifier(task.verifier))
            given = {**given, "verifier": _verifier(task.workspace_id, criteria, verifier)}
        changed = [name for name, value in given.items() if getattr(task, name) != value]
        if changed:
            news = bool({"owner", "owner_agent_id"} & set(changed))  # the task has a new owner
            news = news or not selectors.ready_among([task])
            former = {name: getattr(task, name) for name in changed}
            change.adds[TASKS.path] += documents.length(given) - documents.length(former)
            for name in changed:
                setattr(task, name, given[name])
            task.updated_at = change.moment
            task.save(update_fields=[*changed, "updated_at"])
            named = ["further fields" if name == "extra" else name for name in changed]
            emit_event(task.workspace_id, "task.updated", by.name, change.moment, task=task, changed=named)
            notices.notify_holder(task, by.name, change.moment, changed)
            if news:
                notices.notify_ready(selectors.ready_among([task]), by.name, change.moment)
            if TESTED & set(changed) and task.is_submitted:
                submissions.examine_again(task, by.name, change.moment)
        if status is not None:
            _move(task, status, by.name, change.moment)
    return task, warnings(task)


def get(project: ProjectDirectory, number: int) -> Task:
    """Return a task of the open cycle, inside a change. Raises NOT_FOUND with the contract's words."""
    if documents.open_board(project.workspace_id) is None:
        raise NexusError(Code.NOT_FOUND, "tasks.json not found")
    task = selectors.numbered(project.workspace_id, number)
    if task is None:
        raise NexusError(Code.NOT_FOUND, f"Task id {number} not found", {"id": number})
    return task


def _move(task: Task, status: str, actor: str | None, moment: datetime) -> None:
    """Give a task another status, and notify its holder. Call it inside a change."""
    if submissions.change_status(task, status, actor, moment):
        notices.notify_holder(task, actor, moment)
