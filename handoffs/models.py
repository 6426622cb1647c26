"""Handoffs: work that exactly one agent takes."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import Q

from coordination.models import ID_LENGTH, TargetField, VisibilityChoices, Workspace, not_empty, one_of
from handoffs.titles import MAX_TITLE

STREAM = "handoff"  # of the log
STREAMS = {STREAM: "the life of handoffs"}


class HandoffQuerySet(models.QuerySet["Handoff"]):
    """Handoffs by state."""

    def open(self) -> HandoffQuerySet:
        return self.filter(status=HandoffStatus.OPEN)

    def held(self) -> HandoffQuerySet:
        """Those that an agent holds. Only these have a lease."""
        return self.filter(lease_expires_at__isnull=False)

    def live(self) -> HandoffQuerySet:
        """Those that are not settled: somebody has yet to act."""
        return self.filter(status__in=LIVE)

    def lapsed(self, now: datetime) -> HandoffQuerySet:
        """Held ones whose lease ended strictly before `now`."""
        return self.filter(lease_expires_at__lt=now)

    def in_state(self, status: str, now: datetime) -> HandoffQuerySet:
        """Those whose current state, as `lifecycle.state_at` defines it, is `status`."""
        in_pool, overdue = Q(status=HandoffStatus.OPEN) | Q(lease_expires_at__lt=now), Q(deadline_at__lt=now)
        if status == HandoffStatus.OPEN:
            return self.filter(in_pool & (Q(deadline_at=None) | ~overdue))
        if status == HandoffStatus.EXPIRED:
            return self.filter(Q(status=HandoffStatus.EXPIRED) | (in_pool & overdue))
        if status in HELD:
            return self.filter(status=status, lease_expires_at__gte=now)
        return self.filter(status=status)


class HandoffStatus(models.TextChoices):
    """The states of a handoff."""

    OPEN = "OPEN"  # may be claimed by whoever the target admits
    CLAIMED = "CLAIMED"  # one agent holds it until its lease runs out
    IN_PROGRESS = "IN_PROGRESS"  # its holder said that it works on it
    BLOCKED = "BLOCKED"  # its holder cannot go on; blocked_reason says why
    SUBMITTED = "SUBMITTED"  # done, and its verifier has yet to look; result holds the outcome
    COMPLETED = "COMPLETED"  # done; result holds the outcome
    REJECTED = "REJECTED"  # refused; rejected_reason says why
    CANCELLED = "CANCELLED"  # retracted by its creator
    EXPIRED = "EXPIRED"  # nobody had it when its deadline passed


HELD = (HandoffStatus.CLAIMED, HandoffStatus.IN_PROGRESS, HandoffStatus.BLOCKED)
SETTLED = (HandoffStatus.COMPLETED, HandoffStatus.REJECTED, HandoffStatus.CANCELLED, HandoffStatus.EXPIRED)
LIVE = (HandoffStatus.OPEN, *HELD, HandoffStatus.SUBMITTED)


class Handoff(models.Model):
    """A unit of work, from its creation to its single outcome."""

    handoff_id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="handoffs", db_index=False)
    task_id = models.BigIntegerField(null=True)  # the planned task that it carries, as agents know it
    task_key = models.CharField(max_length=ID_LENGTH, null=True)  # and for good: numbers come again with the next cycle
    from_agent_id = models.CharField(max_length=ID_LENGTH)
    title = models.CharField(max_length=MAX_TITLE)
    target = TargetField()  # canonical
    visibility = models.CharField(max_length=16, choices=VisibilityChoices)
    status = models.CharField(max_length=16, choices=HandoffStatus, default=HandoffStatus.OPEN)
    claimed_by = models.CharField(max_length=ID_LENGTH, null=True)  # who holds it, or did when it was settled
    claimed_at = models.DateTimeField(null=True)
    lease_seconds = models.IntegerField(null=True)  # how long a claim lasts, and each renewal
    lease_expires_at = models.DateTimeField(null=True)
    blocked_reason = models.TextField(null=True)
    deadline_at = models.DateTimeField(null=True)  # when it expires unless somebody has it
    verifier = models.CharField(max_length=ID_LENGTH + 16, null=True)  # creator, operator, agent:NAME or role:NAME
    client_id = models.CharField(max_length=ID_LENGTH, null=True)  # by which its creator knows a repeated call
    payload = models.TextField(null=True)  # a string as given, anything else as JSON text
    result = models.TextField(null=True)  # likewise
    rejected_reason = models.TextField(null=True)
    created_event_id = models.BigIntegerField(unique=True)  # its handoff.created event: the order pages go by
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    objects = HandoffQuerySet.as_manager()

    class Meta:
        db_table = "handoffs"
        indexes = [
            models.Index(fields=["workspace", "status", "created_event_id"], name="handoffs_by_status"),
            models.Index(fields=["workspace", "handoff_id"], name="handoffs_by_workspace"),
            models.Index(  # the rest of it is all that a timeline of many reads
                fields=[
                    *("workspace", "updated_at", "created_at", "status", "claimed_by", "claimed_at"),
                    *("lease_expires_at", "handoff_id"),
                ],
                name="handoffs_by_change",
            ),
            models.Index(fields=["task_key"], name="handoffs_by_task", condition=Q(task_key__isnull=False)),
            models.Index(
                fields=["workspace", "lease_expires_at"],
                name="handoffs_by_lease",
                condition=Q(lease_expires_at__isnull=False),
            ),
            models.Index(fields=["from_agent_id"], name="handoffs_waiting", condition=Q(status="OPEN")),
            models.Index(fields=["claimed_by"], name="handoffs_by_holder", condition=Q(lease_expires_at__isnull=False)),
            models.Index(
                fields=["workspace", "deadline_at"],
                name="handoffs_overdue",
                condition=Q(status="OPEN", deadline_at__isnull=False),
            ),
        ]
        constraints = [
            *not_empty("handoffs", "handoff_id", "from_agent_id"),
            models.UniqueConstraint(
                fields=["from_agent_id", "client_id"], name="handoffs_once", condition=Q(client_id__isnull=False)
            ),
            one_of("handoffs", "status", HandoffStatus),
            one_of("handoffs", "visibility", VisibilityChoices),
            models.CheckConstraint(
                condition=(
                    Q(status__in=HELD, claimed_by__isnull=False, lease_expires_at__isnull=False)
                    | Q(status="OPEN", claimed_by__isnull=True, lease_expires_at__isnull=True)
                    | Q(status="SUBMITTED", claimed_by__isnull=False, lease_expires_at__isnull=True)
                    | Q(status__in=SETTLED, lease_expires_at__isnull=True)
                ),
                name="handoffs_claim_iff_claimed",
            ),
        ]

    def __str__(self) -> str:
        return self.handoff_id


class RemarkKind(models.TextChoices):
    """The kinds of remarks."""

    LATE_RESULT = "late_result"  # what a former holder brought after its lease had lapsed
    RESULT = "result"  # what was submitted, and returned
    RETURNED = "returned"  # why it was


class Remark(models.Model):
    """A remark on a handoff beside its outcome, such as a result that came too late."""

    handoff = models.ForeignKey(Handoff, on_delete=models.CASCADE, related_name="remarks")
    agent_id = models.CharField(max_length=ID_LENGTH)  # who said it
    kind = models.CharField(max_length=16, choices=RemarkKind)
    text = models.TextField(null=True)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "handoff_remarks"
        constraints = [*not_empty("handoff_remarks", "agent_id"), one_of("handoff_remarks", "kind", RemarkKind)]

    def __str__(self) -> str:
        return f"{self.kind} of {self.handoff_id}"


class DebtNotice(models.Model):
    """A record that the creditors of a debt were notified. It exists as long as the debt."""

    agent_id = models.CharField(max_length=ID_LENGTH)
    debt = models.CharField(max_length=ID_LENGTH + 16)  # its key
    told_at = models.DateTimeField()

    class Meta:
        db_table = "debt_notices"
        constraints = [
            *not_empty("debt_notices", "agent_id", "debt"),
            models.UniqueConstraint(fields=["agent_id", "debt"], name="debt_notices_once"),
        ]

    def __str__(self) -> str:
        return f"{self.agent_id}: {self.debt}"
