"""Verdicts on submitted tasks: of their checks, their verifier, or an operator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from coordination import selectors as agents_known
from coordination.errors import check_claim
from coordination.services import workspaces
from handoffs import check_runs
from handoffs.check_runs import Kind
from nexus.core.limits import within_limit
from nexus.core.operations.caller import HUB_AGENT, OPERATOR_AGENT
from nexus.core.operations.errors import Code, NexusError, invalid
from nexus.planning import mirror, notices, submissions
from nexus.planning.mirror import Change
from nexus.planning.models import Task, TaskCheckRun
from nexus.planning.notices import emit_event
from nexus.planning.services.changes import Actor, changing
from nexus.planning.services.tasks import get


def accept(*, project_root: str, number: int, by: Actor, operator: str | None, claim_epoch: int | None = None) -> Task:
    """Accept a submitted task, which completes it: as its verifier once its checks passed, or as an operator.

    Raises NOT_FOUND, STALE_CLAIM, INVALID_TRANSITION, NOT_OWNER, and as `changing` does.
    """
    with _judging(project_root, number, by, operator, claim_epoch) as (change, task):
        if operator is None:
            check_runs.require_passed(submissions.runs_of(task).filter(claim_epoch=task.claim_epoch))
        emit_event(task.workspace_id, "task.accepted", by.name, change.moment, task=task, operator=operator)
        submissions.complete(task, task.submitted_by, change.moment)
        notices.notify_doer(task, f"{operator or by.name} accepted it.", change.moment, by=by.name or OPERATOR_AGENT)
    return task


def send_back(
    *,
    project_root: str,
    number: int,
    reasons: str,
    by: Actor,
    operator: str | None,
    claim_epoch: int | None = None,
) -> Task:
    """Return a submitted task to the agent that did it. Raises VALIDATION_ERROR for blank reasons, CONTENT_TOO_LARGE,
    and as `accept` does; its checks need not have ended."""
    if not reasons.strip():
        raise invalid("reasons must not be blank.", field="reasons")
    within_limit(reasons, "reasons")
    with _judging(project_root, number, by, operator, claim_epoch) as (change, task):
        sender = by.name or OPERATOR_AGENT
        submissions.give_back(task, reasons, change.moment, by=sender, actor=by.name, operator=operator)
    return task


@contextmanager
def _judging(
    project_root: str, number: int, by: Actor, operator: str | None, claim_epoch: int | None
) -> Iterator[tuple[Change, Task]]:
    """Open a change in which a verdict on a task is given."""
    with changing(project_root, by) as change:
        task = get(change.project, number)
        check_claim(claim_epoch, task.claim_epoch, "task")
        if not task.is_submitted:
            raise NexusError(
                Code.INVALID_TRANSITION, "Nobody says that this task is done.", {"status": str(task.status)}
            )
        if operator is None and not task.verifies(agents_known.profile_of(str(by.name))):
            raise NexusError(Code.NOT_OWNER, "Only its verifier, who did not do it, or an operator decides about it.")
        yield change, task


class CheckedTasks(Kind[TaskCheckRun, Task]):
    """Submitted tasks."""

    name = "task"
    model = TaskCheckRun
    column = "task"

    def refresh(self, run: TaskCheckRun) -> None:
        mirror.import_beside(workspaces.directory_of(run.task.workspace))

    def waiting(self, run: TaskCheckRun) -> Task | None:
        task = Task.objects.submitted().select_related("workspace").filter(pk=run.task_id).first()
        return task if task is not None and task.claim_epoch == run.claim_epoch else None

    def record(self, work: Task, moment: datetime, **outcome: str) -> None:
        emit_event(work.workspace_id, "task.checked", None, moment, task=work, **outcome)

    def give_back(self, work: Task, reasons: str, moment: datetime) -> None:
        submissions.give_back(work, reasons, moment, by=HUB_AGENT, actor=None, operator=None)

    def passed(self, work: Task, moment: datetime) -> None:
        if work.verifier is not None:
            notices.ask_verifiers(work, moment)
            return
        submissions.complete(work, work.submitted_by, moment)
        mirror.follow(workspaces.directory_of(work.workspace))
        notices.notify_doer(work, "It passed its checks.", moment, by=HUB_AGENT)


TASKS = CheckedTasks()
