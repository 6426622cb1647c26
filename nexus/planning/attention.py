"""Tasks that wait for a person or wake an agent of the pool, and what operators do with tasks, issues and comments."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from typing import Any

from coordination.log.selectors import ids_within
from coordination.models import Agent, Event
from coordination.presence import Presence
from handoffs.debts import PATIENCE
from inbox.monitoring import Picture
from nexus.core.contributions import Action, AttentionItem, AttentionKind, Items, WakeKind, WakeReason
from nexus.core.operations.parameters import whole_number
from nexus.planning import handoff_tasks, monitoring
from nexus.planning.models import STREAM, Issue, Plan, PlanComment, Task, TaskStatus
from nexus.planning.selectors import task_debts

AROUND = timedelta(minutes=1)  # ids of the log rise with time, except for events written at the same moment


def _left(picture: Picture, each: int) -> Items:
    """Find tasks in progress whose agent is gone. They have no lease that expires, and nobody else begins them. Tasks
    with a handoff are left out: the handoff reports them."""
    gone = {state.agent_id for state in picture.agents if state.presence is Presence.OFFLINE}
    gone.update(Agent.everyone.exclude(deleted_at=None).values_list("pk", flat=True))
    left = [
        debt
        for debt in task_debts(None, picture.moment)
        if debt.agent_id in gone and debt.since <= picture.moment - PATIENCE and picture.includes(debt.workspace_id)
    ]
    shown = {debt.identifier: debt for debt in left[:each]}
    epochs = dict(Task.objects.filter(pk__in=list(shown)).values_list("pk", "claim_epoch")) if shown else {}
    needs = [
        AttentionItem(
            debt.what,
            f"{debt.agent_id} has it in progress and is gone",
            f"{task_key}.{epochs.get(task_key, 0)}",
            task_key,
            since=debt.since,
        )
        for task_key, debt in shown.items()
    ]
    return Items(len(left), needs)


def _submitted(picture: Picture, each: int) -> Items:
    """Find submitted tasks that an operator must decide about, and those that nobody else decided about in time."""
    found, or_more = monitoring.for_person(picture)
    needs = [
        AttentionItem(task.title, why, f"{task.pk}.{task.claim_epoch}", task.pk, since=task.since)
        for task, why in found[:each]
    ]
    return Items(len(found), needs, or_more)


KINDS = (
    AttentionKind(
        "submitted-tasks",
        "Tasks wait for your word",
        "task_alt",
        22,
        _submitted,
        page="planning_task_change",
        actions=("task_approve", "task_send_back"),
        command="nexus tasks",
    ),
    AttentionKind(
        "left-tasks",
        "In progress, and nobody there",
        "assignment_late",
        53,
        _left,
        page="planning_task_change",
        actions=("task_update",),
        command="nexus tasks",
    ),
)


def _claim(claim: str) -> dict[str, Any]:
    """Return what names a claim on a task; refused where somebody has begun it anew since it was listed."""
    task_key, _, epoch = claim.partition(".")
    task = Task.objects.select_related("workspace").filter(pk=task_key, closed_at=None).first()
    about = {} if task is None else {"project_root": task.workspace.root_realpath, "id": task.number}
    return {**about, "claim_epoch": whole_number(epoch)}


def _titles(claims: Sequence[str]) -> dict[str, str]:
    titles = dict(Task.objects.filter(pk__in=[claim.partition(".")[0] for claim in claims]).values_list("pk", "title"))
    return {claim: titles[key] for claim in claims if (key := claim.partition(".")[0]) in titles}


def _issue(issue_id: str) -> Issue | None:
    return Issue.objects.select_related("plan__workspace").filter(pk=whole_number(issue_id) or 0).first()


def _decided_issue(issue_id: str) -> dict[str, Any]:
    row = _issue(issue_id)
    about = {} if row is None else {"project_root": row.plan.workspace.root_realpath, "issue_id": row.number}
    return {**about, "action": "reopen"}


def _plan(workspace_id: str) -> dict[str, Any]:
    row = Plan.objects.select_related("workspace").filter(pk=workspace_id).first()
    return {} if row is None else {"project_root": row.workspace.root_realpath}


THINGS = ("task", "tasks")


def _gives(status: TaskStatus, label: str, done: str, **more: Any) -> Action:
    def arguments(claim: str) -> dict[str, Any]:
        return {**_claim(claim), "status": status.value}

    return Action("task_update", label, done, THINGS, arguments, _titles, toolset="planning", **more)


ACTIONS = (
    _gives(TaskStatus.PENDING, "Release…", "released: another agent can begin it", danger=True),
    _gives(TaskStatus.IN_PROGRESS, "Begin", "put in progress", variant="begin"),
    _gives(TaskStatus.COMPLETED, "Complete", "completed; what is checked counts once it passed", variant="complete"),
    Action(
        "task_approve",
        "Accept",
        "accepted",
        THINGS,
        _claim,
        _titles,
        toolset="planning",
    ),
    Action(
        "task_send_back",
        "Return…",
        "returned",
        THINGS,
        _claim,
        _titles,
        {"reasons": "What is wrong with it"},
        needed=["reasons"],
        toolset="planning",
    ),
    Action(
        "plan_update",
        "Reopen…",
        "reopened: its decision is gone",
        ("issue", "issues"),
        _decided_issue,
        lambda ids: {each: row.title for each in ids if (row := _issue(each))},
        danger=True,
        toolset="planning",
    ),
    Action(
        "plan_comment_remove",
        "Remove",
        "removed",
        ("comment", "comments"),
        lambda comment_id: {"comment_id": comment_id},
        lambda ids: {row.pk: row.text for row in PlanComment.objects.filter(pk__in=ids)},
        toolset="planning",
    ),
    Action(
        "plan_comments_send",
        "Send the comments…",
        "sent the comments",
        ("plan", "plans"),
        _plan,
        lambda ids: dict(Plan.objects.filter(pk__in=ids).values_list("pk", "topic")),
        {"agent_id": "To which agent, if not to the one that holds the plan"},
        toolset="planning",
    ),
)


def calling(agent_id: str, workspaces: Collection[str]) -> Iterator[WakeReason]:
    """Yield the agent's pending tasks whose dependencies are met, in any project."""
    mine = Task.objects.on_their_own(TaskStatus.PENDING).owned_by([agent_id])
    ready: dict[str, set[str]] = {}
    for task in mine.select_related("workspace").order_by("task_key"):
        if task.workspace_id not in ready:
            ready[task.workspace_id] = handoff_tasks.ready(task.workspace_id)
        if task.task_key in ready[task.workspace_id]:
            yield WakeReason(
                task.task_key,
                f"Task {task.number} of yours can begin (project_root {task.workspace.root_realpath}): task_update("
                f'id={task.number}, status="in_progress") takes it.',
                {"title": task.title, "context": task.context},
                _moved_by(task),
                task.updated_at,
                task.updated_at,
            )


def _moved_by(task: Task) -> str | None:
    """Return who changed a task last, from the log; where that has no event of it, who added it."""
    if task.updated_at == task.created_at:
        return task.created_by
    first, beyond = ids_within(task.updated_at - AROUND, task.updated_at + AROUND)
    near = Event.objects.filter(workspace_id=task.workspace_id, stream=STREAM, event_id__gte=first, event_id__lt=beyond)
    latest = near.filter(created_at=task.updated_at).order_by("-event_id").first()
    return task.created_by if latest is None else latest.actor_agent_id


WAKES = WakeKind(
    "task",
    "planned tasks of its own that can begin",
    frozenset(("task.ready", "task.added", "task.updated", "task.completed", "plan.reopened")),
    calling,
)
