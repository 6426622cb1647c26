"""Who is told, in a change's transaction: the owner of a task that became ready, the holder of one that changed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from coordination.log.emit import emit
from inbox import services as mail
from planning import rules, selectors
from planning.models import STREAM, Task

NOBODY = "nexus"  # the sender where no agent acted: an operator, or a file


def ready(workspace_id: str) -> set[int]:
    """The tasks of the open cycle that could begin."""
    return set(rules.ready(*selectors.dependencies(workspace_id)))


def tell_ready(workspace_id: str, before: set[int], actor: str | None, moment: datetime) -> None:
    """Tell of every task that could not begin before and can now: the log, and its owner unless that did it."""
    for number in rules.ready(*selectors.dependencies(workspace_id)):
        task = None if number in before else selectors.numbered(workspace_id, number)
        if task is None:
            continue
        emit(
            workspace_id=workspace_id,
            stream=STREAM,
            type="task.ready",
            actor=actor,
            payload={"task_id": task.number, "title": task.title[:200], "owner": task.owner},
            moment=moment,
        )
        subject = f"Task {task.number} is ready"
        owners = dict.fromkeys(owner for owner in (task.owner_agent_id, task.owner) if owner and owner != actor)
        any(_write(task, owner, subject, task.context, actor, moment) for owner in owners)  # the first there is


def tell_holder(task: Task, actor: str | None, moment: datetime, changed: Sequence[str] = ()) -> None:
    """Tell the agent that holds a task by a handoff what became of its status or its fields, unless that did it."""
    if task.held_by is not None and task.held_by != actor:
        what = f"was changed ({', '.join(changed)})" if changed else f"is {task.status} now"
        subject, body = f"Your task {task.number} {what}", f"{actor or 'Somebody'} changed it."
        _write(task, task.held_by, subject, body, actor, moment)


def _write(task: Task, recipient: str, subject: str, body: str, actor: str | None, moment: datetime) -> bool:
    """Whether it reached the recipient, who must be registered."""
    return bool(
        mail.notify(
            workspace_id=task.workspace_id,
            from_agent_id=actor or NOBODY,
            recipient=recipient,
            subject=f"{subject}: {task.title[:200]}",
            body=f"{body[:2000]}\n\ntask_list has it whole; task_update(id={task.number}, status=…) moves it.",
            moment=moment,
        )
    )
