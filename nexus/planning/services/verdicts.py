"""Verdicts on submitted tasks. The rules are in `handoffs.verification`. Unlike a handoff, a task has no lease and no
remarks; while it waits it stays in progress, as its file knows no other status."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from coordination import selectors as agents_known
from coordination.errors import check_claim
from coordination.services import workspaces
from handoffs.models import CheckRunQuerySet
from handoffs.transitions import By
from handoffs.verification import WorkKind, require_text
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.core.operations.errors import Code, NexusError
from nexus.planning import mirror, notices, submissions
from nexus.planning.models import Task, TaskCheckRun, TaskStatus
from nexus.planning.notices import emit_event
from nexus.planning.services.changes import Actor, changing
from nexus.planning.services.tasks import get


def accept(*, project_root: str, number: int, by: Actor, operator: str | None, claim_epoch: int | None = None) -> Task:
    """Accept a submitted task, which completes it: as its verifier once its checks passed, or as an operator.

    Raises NOT_FOUND, STALE_CLAIM, INVALID_TRANSITION, NOT_OWNER, and as `changing` does.
    """
    with changing(project_root, by) as change:
        task = get(change.project, number)
        TASKS.accept(task, By(by.name or OPERATOR_AGENT, project_root, claim_epoch, operator))
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
    require_text(reasons, "reasons")
    with changing(project_root, by) as change:
        task = get(change.project, number)
        TASKS.send_back(task, By(by.name or OPERATOR_AGENT, project_root, claim_epoch, operator), reasons)
    return task


class TaskKind(WorkKind[TaskCheckRun, Task]):
    """Submitted tasks."""

    name = "task"
    model = TaskCheckRun
    column = "task"

    def refresh(self, run: TaskCheckRun) -> None:
        mirror.import_beside(workspaces.directory_of(run.task.workspace))

    def waiting(self, run: TaskCheckRun) -> Task | None:
        task = Task.objects.submitted().select_related("workspace").filter(pk=run.task_id).first()
        return task if task is not None and task.claim_epoch == run.claim_epoch else None

    def runs_of(self, work: Task) -> CheckRunQuerySet:
        return TaskCheckRun.objects.filter(task=work, claim_epoch=work.claim_epoch)

    def check_verdict(self, verb: str, work: Task, by: By) -> None:
        check_claim(by.claim_epoch, work.claim_epoch, "task")
        if not work.is_submitted:
            raise NexusError(
                Code.INVALID_TRANSITION, "Nobody says that this task is done.", {"status": str(work.status)}
            )
        if by.operator is None and not work.verifies(agents_known.profile_of(by.agent_id)):
            raise NexusError(Code.NOT_OWNER, "Only its verifier, who did not do it, or an operator decides about it.")

    def record(self, work: Task, what: str, by: By, moment: datetime, **payload: Any) -> None:
        emit_event(work.workspace_id, f"task.{what}", by.actor, moment, task=work, **payload)

    def complete(self, work: Task, moment: datetime) -> None:
        submissions.complete(work, work.submitted_by, moment)

    def reclaim(self, work: Task, by: By, reasons: str, moment: datetime) -> None:
        work.submitted_at = None
        work.claim_epoch += 1
        submissions.store_status(work, moment)
        about = {"claim_epoch": work.claim_epoch, "to": work.doer, "reason": reasons[:2_000], **by.event_fields}
        self.record(work, "returned", by, moment, **about)

    def ask_verifiers(self, work: Task, moment: datetime) -> None:
        notices.ask_verifiers(work, moment)

    def passed(self, work: Task, moment: datetime) -> None:
        super().passed(work, moment)
        if work.status == TaskStatus.COMPLETED:
            mirror.follow(workspaces.directory_of(work.workspace))

    def notify_completed(self, work: Task, by: By, moment: datetime) -> list[str]:
        body = "It passed its checks." if by.is_hub else f"{by.name} accepted it."
        return notices.notify_doer(work, body, moment, by=by.agent_id)

    def notify_returned(self, work: Task, by: By, reasons: str, moment: datetime) -> list[str]:
        return notices.notify_returned(work, reasons, moment, by=by.agent_id, named=by.name)


TASKS = TaskKind()
