"""Handoffs: work that exactly one agent takes."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.db import models
from django.db.models import Exists, F, OuterRef, Q
from django.db.models.expressions import Combinable

from coordination.models import ID_LENGTH, TargetField, VisibilityChoices, Workspace, not_empty, one_of
from coordination.routing import Profile, Target, describe
from handoffs import lifecycle
from nexus.core.clock import now
from nexus.core.database.migrations import postgres_triggers
from nexus.core.operations.caller import OPERATOR_AGENT

STREAM = "handoff"  # of the log
STREAMS = {STREAM: "the life of handoffs"}
MAX_TITLE = 200  # characters


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


class VerifiedWork:
    """Work whose result counts once its checks passed or its verifier accepted it: a handoff, or a task."""

    pk: Any
    workspace: Any
    verifier: Any  # as `lifecycle.parse_verifier` returns it

    @property
    def creator(self) -> str:
        """The agent that made it; empty where that is not known."""
        raise NotImplementedError

    @property
    def doers(self) -> tuple[str | None, ...]:
        """Whose work it is, the agent that did it first. None of them verifies it."""
        raise NotImplementedError

    @property
    def since(self) -> datetime:
        """When a submitted result was submitted."""
        raise NotImplementedError

    def verifies(self, agent: Profile) -> bool:
        """Return whether an agent may verify it."""
        return lifecycle.verifies(self.verifier, agent, created_by=self.creator, done_by=self.doers)

    @property
    def sole_verifier(self) -> str | None:
        """The one agent that must verify it; None where several may, or an operator says it."""
        name = self.creator if self.verifier == lifecycle.CREATOR else lifecycle.named_agent(self.verifier)
        return None if name in (None, "", OPERATOR_AGENT, *self.doers) else name


class Handoff(VerifiedWork, models.Model):
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
    # From whom an operator took it: while it is open, its files stay reserved for this agent.
    released_from = models.CharField(max_length=ID_LENGTH, null=True)
    claim_epoch = models.PositiveIntegerField(default=0, db_default=0)  # grows with each claim and return
    lease_seconds = models.IntegerField(null=True)  # how long a claim lasts, and each renewal
    lease_expires_at = models.DateTimeField(null=True)
    blocked_reason = models.TextField(null=True)
    deadline_at = models.DateTimeField(null=True)  # when it expires unless somebody has it
    verifier = models.CharField(max_length=ID_LENGTH + 16, null=True)  # as `lifecycle.parse_verifier` writes it
    client_id = models.CharField(max_length=ID_LENGTH, null=True)  # by which its creator knows a repeated call
    trace_id = models.CharField(max_length=ID_LENGTH, null=True)  # by which its creator finds what belongs together
    proof = models.CharField(max_length=16, null=True)  # what proves its creator (coordination/provenance.py)
    acceptance_criteria = models.JSONField(null=True)  # a list of texts; `checks.parse` says whom each is for
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
            models.Index(  # by its first two; the other columns are of an earlier timeline
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
        return self.title

    @property
    def creator(self) -> str:
        """The agent that made it."""
        return self.from_agent_id

    @property
    def doers(self) -> tuple[str | None, ...]:
        """The agent that did it."""
        return (self.claimed_by,)

    @property
    def since(self) -> datetime:
        """When a submitted result was submitted."""
        return self.updated_at


class Dependency(models.Model):
    """A handoff that must be completed before another one may be claimed."""

    handoff = models.ForeignKey(Handoff, on_delete=models.CASCADE, related_name="dependencies", db_index=False)
    depends_on = models.ForeignKey(Handoff, on_delete=models.CASCADE, related_name="dependents")
    done = models.BooleanField(default=False)  # it is completed; for good, as nothing leads out of that state

    class Meta:
        db_table = "handoff_dependencies"
        verbose_name_plural = "dependencies"
        # A look for work reads what is left alone, however much of it is done.
        indexes = [models.Index(fields=["handoff"], name="handoff_dependencies_left", condition=Q(done=False))]
        constraints = [models.UniqueConstraint(fields=["handoff", "depends_on"], name="handoff_dependencies_once")]

    def __str__(self) -> str:
        return f"{self.handoff_id} after {self.depends_on_id}"


def can_start() -> Combinable:
    """Return the condition that all a handoff depends on is completed."""
    return ~Exists(Dependency.objects.filter(handoff=OuterRef("pk"), done=False))


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


class ReviewedChecks(models.Model):
    """The checks of a project's `nexus.toml`, as an operator approved them."""

    workspace = models.OneToOneField(Workspace, on_delete=models.CASCADE, primary_key=True, related_name="checks")
    digest = models.CharField(max_length=64)  # of the checks in the file
    checks = models.JSONField()  # command, time limit and network, by name
    reviewed_by = models.CharField(max_length=ID_LENGTH)
    reviewed_at = models.DateTimeField()

    class Meta:
        db_table = "handoff_reviewed_checks"
        verbose_name_plural = "reviewed checks"

    def __str__(self) -> str:
        return f"checks of {self.workspace_id}"


class CheckState(models.TextChoices):
    """The states of the checks of one result."""

    WAITING = "waiting"  # for a process that can run them; `why` says what is missing
    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"
    DROPPED = "dropped"  # the result got its verdict without them


UNFINISHED = (CheckState.WAITING, CheckState.RUNNING)


class CheckedWork(NamedTuple):
    """Work whose result is checked."""

    workspace: Workspace
    criteria: Sequence[str]
    doer: str | None  # the agent that did it
    since: datetime  # when that agent began


class CheckRunQuerySet(models.QuerySet[Any]):
    """Runs of checks, of either kind of work."""

    def drop(self) -> None:
        """End those that go on: their results got a verdict without them, or are withdrawn. Call it inside a
        transaction. A process that runs them notices it by the epoch."""
        going_on = self.filter(state__in=UNFINISHED)
        going_on.update(state=CheckState.DROPPED, epoch=F("epoch") + 1, ended_at=now())


class AbstractCheckRun(models.Model):
    """The checks of one result, and what came of each criterion. Each kind of work has a table of its own."""

    claim_epoch = models.PositiveIntegerField()  # of the claim whose result it is
    state = models.CharField(max_length=16, choices=CheckState)
    epoch = models.PositiveIntegerField(default=0)  # grows with each process that begins to run them
    due_at = models.DateTimeField()  # when a process may take them, also from one that gave no sign of life since
    why = models.TextField(null=True)  # why the last process could not run them
    receipts = models.JSONField(default=list)  # `check_runs.CriterionResult`s
    facts = models.JSONField(null=True)  # `check_runs.Facts`
    created_at = models.DateTimeField()
    began_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    objects = CheckRunQuerySet.as_manager()

    class Meta:
        abstract = True

    @property
    def work(self) -> CheckedWork:
        """The work whose result it is."""
        raise NotImplementedError

    @classmethod
    def unpassed(cls, work: str) -> Combinable:
        """Return the condition that the latest result of a work, which is the column `work`, has not passed its checks,
        so that no agent's verdict is due."""
        of = cls._default_manager.filter(**{work: OuterRef("pk")}, claim_epoch=OuterRef("claim_epoch"))
        return Exists(of.exclude(state=CheckState.PASSED))


class CheckRun(AbstractCheckRun):
    """The checks of one submitted handoff."""

    handoff = models.ForeignKey(Handoff, on_delete=models.CASCADE, related_name="check_runs")

    class Meta:
        db_table = "handoff_check_runs"
        indexes = [
            models.Index(fields=["due_at"], name="handoff_check_runs_open", condition=Q(state__in=UNFINISHED)),
        ]
        constraints = [
            models.UniqueConstraint(fields=["handoff", "claim_epoch"], name="handoff_check_runs_once"),
            one_of("handoff_check_runs", "state", CheckState),
        ]

    def __str__(self) -> str:
        return f"{self.state} checks of {self.handoff_id}"

    @property
    def work(self) -> CheckedWork:
        """The handoff whose result it is."""
        handoff = self.handoff
        since = handoff.claimed_at or self.created_at
        return CheckedWork(handoff.workspace, handoff.acceptance_criteria or (), handoff.claimed_by, since)


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


# Titles of handoffs whose creator gave none.
NAMING = ("title", "task", "instructions", "summary")  # members of a JSON payload that say what the work is
READ = 65_536  # characters of a payload's text that are looked into

ACTING = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # on terminals, or which way text runs


def title_of(payload: str | None, target: Target) -> str:
    """Return the first line of a payload's text, or the name within its JSON; else whom the work is for."""
    text = payload or ""
    named = _name_in_json(text)
    return single_line(text if named is None else named) or single_line(f"Work for {describe(target)}")


def in_quotes(title: str) -> str:
    """Quote a title within a sentence, so that a reader sees where text by an agent ends."""
    return f"“{title}”"


def _name_in_json(text: str) -> str | None:
    """Return the name within a JSON object, empty where it has none and for a JSON list; None for other texts."""
    if text.lstrip()[:1] not in ("{", "[") or len(text) > READ:
        return None
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    said = [value.get(name) for name in NAMING] if isinstance(value, dict) else []
    return next((text for text in said if isinstance(text, str) and text.strip()), "")


def single_line(text: str) -> str:
    """Return the first line with visible text, cut to the width of a list, without control characters that would
    affect the text around it."""
    lines = (" ".join(ACTING.sub("", line).split()) for line in text[:READ].splitlines())
    line = next((line for line in lines if any(map(_shows, line))), "")
    return line if len(line) <= MAX_TITLE else f"{line[: MAX_TITLE - 1]}…"


def _shows(character: str) -> bool:
    return unicodedata.category(character)[0] not in "CZM"


# Triggers that keep the search index current: title, payload and result of each handoff.
_ADD_TO_SEARCH = """INSERT INTO handoff_search(rowid, title, payload, result)
        VALUES (new.created_event_id, new.title, new.payload, new.result);"""
_REMOVE_FROM_SEARCH = """INSERT INTO handoff_search(handoff_search, rowid, title, payload, result)
        VALUES ('delete', old.created_event_id, old.title, old.payload, old.result);"""

SQLITE_TRIGGERS = {
    "handoff_search_added": f"""
    CREATE TRIGGER handoff_search_added AFTER INSERT ON handoffs
    BEGIN
        {_ADD_TO_SEARCH}
    END
    """,
    "handoff_search_removed": f"""
    CREATE TRIGGER handoff_search_removed AFTER DELETE ON handoffs
    BEGIN
        {_REMOVE_FROM_SEARCH}
    END
    """,
    "handoff_search_changed": f"""
    CREATE TRIGGER handoff_search_changed AFTER UPDATE OF title, payload, result ON handoffs
    WHEN new.title IS NOT old.title OR new.payload IS NOT old.payload OR new.result IS NOT old.result
    BEGIN
        {_REMOVE_FROM_SEARCH}
        {_ADD_TO_SEARCH}
    END
    """,
}

SEARCHED_WORDS = "nexus_words(concat_ws(' ', {row}.title, {row}.payload, {row}.result))"
_ADD_WORDS = f"""INSERT INTO handoff_search (document, words)
    VALUES (new.created_event_id, {SEARCHED_WORDS.format(row="new")})
    ON CONFLICT (document) DO UPDATE SET words = excluded.words;"""
POSTGRESQL_TRIGGERS = {
    "handoff_search_added": ("AFTER INSERT ON handoffs", _ADD_WORDS, "true"),
    "handoff_search_removed": (
        "AFTER DELETE ON handoffs",
        "DELETE FROM handoff_search WHERE document = old.created_event_id;",
        "true",
    ),
    "handoff_search_changed": (
        "AFTER UPDATE ON handoffs",
        _ADD_WORDS,
        "(new.title, new.payload, new.result) IS DISTINCT FROM (old.title, old.payload, old.result)",
    ),
    "handoff_search_emptied": ("AFTER TRUNCATE ON handoffs", "TRUNCATE handoff_search;", "true"),
}

TRIGGERS = {"sqlite": SQLITE_TRIGGERS, "postgresql": postgres_triggers(POSTGRESQL_TRIGGERS)}  # by database
