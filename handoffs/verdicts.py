"""Verdicts on submitted handoffs. The rules are in `verification`; of its own a handoff has a lease that begins anew
when it is returned, and remarks that keep the earlier results."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, QuerySet

from coordination.services import workspaces
from handoffs import leases, notices, progress, remarks, selectors, services
from handoffs.models import CheckRun, CheckRunQuerySet, Handoff, HandoffStatus, RemarkKind
from handoffs.transitions import By, changed_meanwhile, record, refresh_plan
from handoffs.verification import WorkKind, require_text
from nexus.core.clock import iso, now


def accept(handoff_id: str, by: By) -> list[str]:
    """Accept a submitted handoff, which completes it; return whom a notice reached.

    Raises WORKSPACE_UNRESOLVED, NOT_FOUND, WORKSPACE_MISMATCH, STALE_CLAIM, INVALID_TRANSITION, NOT_OWNER.
    """
    with progress.on_handoff(handoff_id, by, expires=False, moves_task=True) as handoff:
        return HANDOFFS.accept(handoff, by)


def send_back(handoff_id: str, by: By, reasons: str) -> list[str]:
    """Return a submitted handoff to the agent that did it, with the reasons and a new lease; return whom the notice
    reached.

    Raises as `accept` does, CONTENT_TOO_LARGE, and VALIDATION_ERROR for blank reasons.
    """
    require_text(reasons, "reasons")
    with progress.on_handoff(handoff_id, by, expires=False) as handoff:
        return HANDOFFS.send_back(handoff, by, reasons)


class HandoffKind(WorkKind[CheckRun, Handoff]):
    """Submitted handoffs."""

    name = "handoff"
    model = CheckRun
    column = "handoff"

    def runs(self) -> QuerySet[CheckRun]:
        return super().runs().defer("handoff__payload", "handoff__result")

    def refresh(self, run: CheckRun) -> None:
        refresh_plan(workspaces.directory_of(run.handoff.workspace), run.handoff_id)

    def waiting(self, run: CheckRun) -> Handoff | None:
        handoff = Handoff.objects.select_related("workspace").get(pk=run.handoff_id)
        submitted = (handoff.status, handoff.claim_epoch) == (HandoffStatus.SUBMITTED, run.claim_epoch)
        return handoff if submitted else None

    def runs_of(self, work: Handoff) -> CheckRunQuerySet:
        return selectors.check_runs_of(work)

    def check_verdict(self, verb: str, work: Handoff, by: By) -> None:
        progress.next_status(verb, work, by, now())

    def record(self, work: Handoff, what: str, by: By, moment: datetime, **payload: Any) -> None:
        record(work, what, by.actor, moment, **payload)

    def complete(self, work: Handoff, moment: datetime) -> None:
        project = workspaces.directory_of(work.workspace)
        services.finish(work, HandoffStatus.COMPLETED, str(work.claimed_by), project, work.result, moment)

    def reclaim(self, work: Handoff, by: By, reasons: str, moment: datetime) -> None:
        doer = str(work.claimed_by)
        work.lease_expires_at = moment + timedelta(seconds=leases.seconds(work.lease_seconds))
        again = {"status": HandoffStatus.CLAIMED, "claim_epoch": F("claim_epoch") + 1, "result": None}
        submitted = Handoff.objects.filter(pk=work.pk, status=HandoffStatus.SUBMITTED)
        if not submitted.update(**again, lease_expires_at=work.lease_expires_at, updated_at=moment):
            raise changed_meanwhile()
        work.claim_epoch += 1
        remarks.add_remark(work, doer, RemarkKind.RESULT, work.result, moment)
        remarks.add_remark(work, by.agent_id, RemarkKind.RETURNED, reasons, moment)
        about: dict[str, str | int] = {"claimed_by": doer, "claim_epoch": work.claim_epoch, "reason": reasons}
        record(work, "returned", by.actor, moment, **about, **by.event_fields)

    def ask_verifiers(self, work: Handoff, moment: datetime) -> None:
        notices.submitted(work, str(work.claimed_by), work.result, moment)

    def notify_completed(self, work: Handoff, by: By, moment: datetime) -> list[str]:
        doer = str(work.claimed_by)
        if by.is_hub:
            reached = notices.ended(work, doer, "completed", work.result, moment)
            return reached + notices.notify(work, doer, "passed its checks", "It is complete.", moment, by=by.agent_id)
        body = f"{by.name} accepted what {doer} did; handoff_get has the whole outcome."
        concerned = dict.fromkeys([doer, work.from_agent_id])
        reached = []
        for agent_id in concerned:
            reached += notices.notify(work, agent_id, "was accepted", body, moment, by=by.agent_id)
        return reached

    def notify_returned(self, work: Handoff, by: By, reasons: str, moment: datetime) -> list[str]:
        body = (
            f"{by.name} returned it: {reasons}\n\n"
            f"It is yours again until {iso(work.lease_expires_at)}, and so are the files that you reserved for it and "
            f"whose lease still runs. When it is right, handoff_complete(handoff_id={work.handoff_id!r}) again. The "
            f"claim's epoch is {work.claim_epoch} now."
        )
        return notices.notify(work, str(work.claimed_by), "was returned to you", body, moment, by=by.agent_id)


HANDOFFS = HandoffKind()
