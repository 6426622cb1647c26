"""What the outcome of its checks does to a handoff."""

from __future__ import annotations

from datetime import datetime

from django.db.models import QuerySet

from coordination.services import workspaces
from handoffs import notices, progress, services
from handoffs.check_runs import Kind
from handoffs.models import CheckRun, Handoff, HandoffStatus
from handoffs.steps import record, refresh_plan
from nexus.core.operations.caller import HUB_AGENT


class CheckedHandoffs(Kind[CheckRun, Handoff]):
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

    def record(self, work: Handoff, moment: datetime, **outcome: str) -> None:
        record(work, "checked", None, moment, **outcome)

    def give_back(self, work: Handoff, reasons: str, moment: datetime) -> None:
        progress.give_back(work, progress.By(HUB_AGENT), reasons, moment)

    def passed(self, work: Handoff, moment: datetime) -> None:
        doer = str(work.claimed_by)
        if work.verifier is not None:
            notices.submitted(work, doer, work.result, moment)
            return
        project = workspaces.directory_of(work.workspace)
        services.finish(work, HandoffStatus.COMPLETED, doer, project, work.result, moment)
        notices.ended(work, doer, "completed", work.result, moment)
        notices.notify(work, doer, "passed its checks", "It is complete.", moment, by=HUB_AGENT)


HANDOFFS = CheckedHandoffs()
