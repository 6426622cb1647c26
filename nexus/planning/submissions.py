"""The status of tasks, and results that wait for their checks or their verifier. Call all of it inside a transaction.

A task whose result is checked stays in progress while it waits: its file knows no other status, and what depends on it
cannot begin.
"""

from __future__ import annotations

from datetime import datetime

from handoffs import check_runs, checks
from nexus.planning import notices, selectors
from nexus.planning.models import Task, TaskCheckRun, TaskStatus
from nexus.planning.notices import emit_event

KEPT = ("status", "claim_epoch", "begun_at", "submitted_at", "submitted_by", "updated_at")


def store_status(task: Task, moment: datetime) -> None:
    """Store the status of a task and all that goes with it."""
    task.updated_at = moment
    task.save(update_fields=KEPT)


def change_status(task: Task, status: str, actor: str | None, moment: datetime) -> bool:
    """Give a task another status; return whether anything changed. A result that is checked is submitted instead of
    completed. Any other status takes a submitted result back."""
    if is_result(task, status):
        if task.is_submitted:
            return False
        submit(task, actor, moment)
        return True
    if task.status == status and not task.is_submitted:
        return False
    enter(task, status, moment)
    set_status(task, status, actor, moment)
    return True


def is_result(task: Task, status: str) -> bool:
    """Return whether this status submits a result, instead of completing the task."""
    return status == TaskStatus.COMPLETED != task.status and task.is_checked


def enter(task: Task, status: str, moment: datetime) -> None:
    """Give a task another status, which is not stored yet. A submitted result is taken back."""
    leave(task)
    if status == TaskStatus.IN_PROGRESS:
        reset_claims(task, task.begun_at if task.status == status else moment)
    task.status = status


def start(task: Task, actor: str | None, moment: datetime) -> None:
    """Begin a task anew for the agent that claimed its handoff, also one in progress."""
    leave(task)
    before = task.status
    reset_claims(task, moment)
    if before == TaskStatus.IN_PROGRESS:
        store_status(task, moment)
    else:
        set_status(task, TaskStatus.IN_PROGRESS, actor, moment)


def reset_claims(task: Task, since: datetime | None) -> None:
    """Let a task be begun anew, which is not stored yet: former claims on it are stale."""
    task.claim_epoch += 1
    task.begun_at = since
    task.submitted_at = task.submitted_by = None


def leave(task: Task) -> None:
    """Take a submitted result back, which is not stored yet, and end its checks. Call it before a task gets another
    status or claim."""
    if task.is_submitted:
        task.check_runs.drop()
        task.submitted_at = task.submitted_by = None


def set_status(task: Task, status: str, actor: str | None, moment: datetime) -> None:
    """Set a status, append its event and report the tasks that became ready."""
    task.status = status
    store_status(task, moment)
    what = "task.completed" if status == TaskStatus.COMPLETED else "task.updated"
    emit_event(task.workspace_id, what, actor, moment, task=task, status=status)
    freed = selectors.waiting_for(task) if status == TaskStatus.COMPLETED else [task]
    notices.notify_ready(selectors.ready_among(freed), actor, moment)


def submit(task: Task, doer: str | None, moment: datetime) -> None:
    """Submit a result to the checks and the verifier of its task."""
    if task.status != TaskStatus.IN_PROGRESS:  # nobody said that it was begun
        task.status, task.begun_at = TaskStatus.IN_PROGRESS, None
        task.claim_epoch += 1
    task.submitted_at, task.submitted_by = moment, doer or task.held_by
    store_status(task, moment)
    emit_event(task.workspace_id, "task.submitted", doer, moment, task=task, claim_epoch=task.claim_epoch)
    _examine(task, moment)


def examine_again(task: Task, actor: str | None, moment: datetime) -> None:
    """Examine a submitted result anew: its checks or its verifier are others now."""
    task.check_runs.drop()
    task.claim_epoch += 1
    store_status(task, moment)
    if task.is_checked:
        _examine(task, moment)
    else:
        complete(task, actor, moment)


def _examine(task: Task, moment: datetime) -> None:
    if checks.tests(task.acceptance_criteria):
        check_runs.request(TaskCheckRun(task_id=task.task_key, claim_epoch=task.claim_epoch), moment)
    else:
        notices.ask_verifiers(task, moment)


def complete(task: Task, actor: str | None, moment: datetime) -> None:
    """Complete a submitted task: its checks passed, or it was accepted."""
    task.submitted_at = None
    set_status(task, TaskStatus.COMPLETED, actor, moment)
