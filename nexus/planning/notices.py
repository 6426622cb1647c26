"""Events and notices of a change, in its transaction: to the log, the owners of ready tasks, the holder of a changed
task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from coordination.log.emit import emit
from handoffs import verifiers
from inbox import services as mail
from nexus.core.operations.caller import HUB_AGENT
from nexus.planning import rules, selectors
from nexus.planning.models import STREAM, Task

LISTED = 20  # tasks in a notice


def emit_event(
    workspace_id: str, type: str, actor: str | None, moment: datetime, *, task: Task | None = None, **payload: Any
) -> None:
    """Append an event of planning; an event of a task has its number and title."""
    about: Mapping[str, Any] = {} if task is None else {"task_id": task.number, "title": task.title[:200]}
    emit(
        workspace_id=workspace_id,
        stream=STREAM,
        type=type,
        actor=actor,
        payload={**about, **{name: value for name, value in payload.items() if value is not None}},
        moment=moment,
    )


def ready(workspace_id: str) -> set[int]:
    """Return the tasks of the open cycle that can begin."""
    return set(rules.ready(*selectors.dependencies(workspace_id)))


def notify_ready(tasks: Sequence[Task], actor: str | None, moment: datetime) -> None:
    """Report tasks that have become ready: to the log, and to their owners unless the owner caused it.

    The owner of several tasks gets one notice for all: thousands may depend on one task.
    """
    log_ready(tasks, actor, moment)
    owned: dict[tuple[str, ...], list[Task]] = {}
    for task in tasks:
        owned.setdefault(owners(task.owner_agent_id, task.owner), []).append(task)
    for names, those in owned.items():
        notify_owner(names, those, len(those), actor, moment)


def log_ready(tasks: Sequence[Task], actor: str | None, moment: datetime) -> None:
    """Append an event for each task that has become ready."""
    for task in tasks:
        emit_event(task.workspace_id, "task.ready", actor, moment, task=task, owner=task.owner)


def owners(*names: str | None) -> tuple[str, ...]:
    """Return whom a task is assigned to: the instance first, then the agent."""
    return tuple(dict.fromkeys(name for name in names if name))


def notify_owner(names: Sequence[str], tasks: Sequence[Task], total: int, actor: str | None, moment: datetime) -> None:
    """Send a notice of ready tasks to the first of these agents that exists, except the one that acts.

    `tasks` are the first LISTED, or all, of `total`.
    """
    subject, body = _ready_notice(tasks, total)
    any(_write(tasks[0], owner, subject, body, actor, moment) for owner in names if owner != actor)


def _ready_notice(tasks: Sequence[Task], total: int) -> tuple[str, str]:
    """Return subject and body of the notice about an owner's ready tasks."""
    if total == 1:
        return f"Task {tasks[0].number} is ready", tasks[0].context
    lines = [f"{task.number}. {task.title[:80]}" for task in tasks[:LISTED]]
    more = [f"and {total - LISTED} more"] if total > LISTED else []
    return f"{total} tasks are ready, the first", "\n".join([*lines, *more])


def notify_holder(task: Task, actor: str | None, moment: datetime, changed: Sequence[str] = ()) -> None:
    """Send a notice of changed status or fields to the agent that holds the task by a handoff, unless it made the
    change."""
    if task.held_by is not None and task.held_by != actor:
        what = f"was changed ({', '.join(changed)})" if changed else f"is {task.status} now"
        subject, body = f"Your task {task.number} {what}", f"{actor or 'Somebody'} changed it."
        _write(task, task.held_by, subject, body, actor, moment)


def ask_verifiers(task: Task, moment: datetime) -> None:
    """Ask the verifiers of a submitted task for their verdict."""
    doer = task.doer or "Somebody"
    body = (
        f'{doer} did it; you decide whether it counts: task_review(id={task.number}, verdict="accept", '
        f'claim_epoch={task.claim_epoch}), or "return" with reasons. task_get shows what it is measured by.'
    )
    for each in verifiers.to_ask(task, moment):
        _send(task, each, f"Task {task.number} waits for your verdict", body, task.submitted_by, moment)


def notify_doer(task: Task, body: str, moment: datetime, *, by: str) -> list[str]:
    """Send the agent that did a task a notice that it is completed; return whom it reached."""
    if task.submitted_by in (None, by):
        return []
    return _send(task, str(task.submitted_by), f"Task {task.number} is completed", body, by, moment)


def notify_returned(task: Task, reasons: str, moment: datetime, *, by: str, named: str) -> list[str]:
    """Send the agent that did a task, or whose it is, the reasons why it was returned; return whom the notice
    reached."""
    body = (
        f"{named} returned it: {reasons}\n\nIt is yours again. When it is right: task_update(id={task.number}, "
        f'status="completed", claim_epoch={task.claim_epoch}).'
    )
    subject = f"Task {task.number} was returned to you"
    whose = owners(task.submitted_by, task.held_by, task.owner_agent_id, task.owner)
    return next(filter(None, (_send(task, each, subject, body, by, moment) for each in whose)), [])


def _write(task: Task, recipient: str, subject: str, body: str, actor: str | None, moment: datetime) -> list[str]:
    """Send a notice about a change; return whom it reached."""
    hint = f"task_list shows it in full; task_update(id={task.number}, status=…) changes it."
    return _send(task, recipient, subject, f"{body[:2000]}\n\n{hint}", actor, moment)


def _send(task: Task, recipient: str, subject: str, body: str, actor: str | None, moment: datetime) -> list[str]:
    """Send a notice; return whom it reached: only an agent that is registered."""
    return mail.notify(
        workspace_id=task.workspace_id,
        from_agent_id=actor or HUB_AGENT,
        recipient=recipient,
        subject=f"{subject}: {task.title[:200]}",
        body=body,
        moment=moment,
    )
