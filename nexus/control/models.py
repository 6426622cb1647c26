"""The pool: its agents and their lineage, their turns, transcripts, worktrees and questions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from django.db import models
from django.db.models import Exists, F, OuterRef, Q
from django.db.models.functions import Now

from coordination.comments import AbstractComment, answered_once_sent
from coordination.models import ID_LENGTH, not_empty, one_of
from nexus.control.faults import FaultKind
from nexus.control.permissions import rules
from nexus.control.permissions.patterns import LONGEST_PATTERN
from nexus.control.permissions.rules import LONGEST_ID, Permissions, Preset

STREAM = "pool"  # of the log
STREAMS = {STREAM: "the pool: its agents, their turns, and agents' questions"}
PATH_LENGTH = 4096
TITLE_LENGTH = 255  # of a question
NEARLY_SPENT = 0.8  # the part of a budget from which operators are told


def money(millionths: int, currency: str | None) -> str:
    """Return an amount in words, with at least two digits behind the point."""
    whole, _, rest = f"{millionths / 1_000_000:,.6f}".partition(".")
    return f"{whole}.{rest.rstrip('0').ljust(2, '0')} {currency or ''}".rstrip()


HUB = "hub"  # the machine of the server's own worker
LOST_SECONDS = 6.0  # without a beat, until a machine may count as lost


class Incarnation(NamedTuple):
    """One start of a machine's worker. What an earlier one of the name still does is refused by the epoch."""

    machine: str
    epoch: int


class MachineQuerySet(models.QuerySet["Machine"]):
    def working(self) -> MachineQuerySet:
        """Machines that have neither ended nor were lost."""
        return self.filter(ended_at=None)

    def fresh(self) -> MachineQuerySet:
        """Machines that gave a sign of life just now, by the database's clock."""
        return self.working().filter(beat_at__gt=Now() - timedelta(seconds=LOST_SECONDS))

    def silent(self) -> MachineQuerySet:
        """Machines that owe signs of life. The hub's own worker owes none: it holds a lock of the store."""
        return self.working().exclude(pk=HUB).filter(beat_at__lte=Now() - timedelta(seconds=LOST_SECONDS))


class MachineState(models.TextChoices):
    """The state of a machine."""

    WORKING = "working"
    LOST = "lost"  # it gave no sign of life
    ENDED = "ended"  # its worker was stopped


class Machine(models.Model):
    """A machine with a worker that runs turns. The row outlives the worker: a later one of the name goes on with it.

    The database writes all its times, so that the clocks of machines need not agree.
    """

    name = models.CharField(primary_key=True, max_length=ID_LENGTH)
    epoch = models.PositiveBigIntegerField()  # the number of its incarnation
    labels = models.JSONField(default=list)  # what it offers; a runner may need some
    runners = models.JSONField(default=list)  # the names in its runners.toml
    capacity = models.PositiveIntegerField()  # turns at once
    host = models.CharField(max_length=ID_LENGTH)
    pid = models.PositiveBigIntegerField()
    version = models.CharField(max_length=ID_LENGTH)  # of Nexus
    load = models.FloatField(default=0)  # processes that want to run, for each CPU
    is_lost = models.BooleanField(default=False)
    started_at = models.DateTimeField()
    beat_at = models.DateTimeField()  # the last sign of life
    ended_at = models.DateTimeField(null=True)  # it ended, or was lost

    objects = MachineQuerySet.as_manager()

    class Meta:
        db_table = "pool_machines"
        constraints = [*not_empty("pool_machines", "name", "host", "version")]

    def __str__(self) -> str:
        return self.name

    @property
    def state(self) -> MachineState:
        """Its state now."""
        if self.ended_at is not None:
            return MachineState.LOST if self.is_lost else MachineState.ENDED
        return MachineState.WORKING

    def lacks(self, labels: Sequence[str]) -> list[str]:
        """Return the labels that it does not have. Its name is one, too."""
        return [label for label in labels if label not in (*self.labels, self.name)]


class PresetChoices(models.TextChoices):
    WORKER = Preset.WORKER
    SANDBOXED = Preset.SANDBOXED
    TRUSTED = Preset.TRUSTED


class HeldChoices(models.TextChoices):
    """The limit that keeps an agent from being woken."""

    DEPTH = "depth"
    RATE = "rate"
    BUDGET = "budget"


class PoolAgentQuerySet(models.QuerySet["PoolAgent"]):
    def living(self) -> PoolAgentQuerySet:
        """Agents that have not ended."""
        return self.filter(ended_at=None)


class PoolAgent(models.Model):
    """An agent that Nexus runs. The row of an ended agent is history, and its name is free again."""

    pool_agent_id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    agent_id = models.CharField(max_length=LONGEST_ID + 1)  # also its identity on the bus
    parent = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="children")
    depth = models.PositiveSmallIntegerField()
    preset = models.CharField(max_length=16, choices=PresetChoices)
    cwd = models.CharField(max_length=PATH_LENGTH)
    write_paths = models.JSONField(default=list)
    disabled_tools = models.JSONField(default=list)
    runner = models.CharField(max_length=ID_LENGTH)  # by its name in runners.toml
    machine = models.CharField(max_length=ID_LENGTH, default=HUB)  # where its worker is, for all its life
    host = models.CharField(max_length=ID_LENGTH, null=True)  # of the removed kind ssh; it runs no more
    wake_on = models.JSONField(default=list)  # what starts a turn by itself: `nexus.control.agents.wake_kinds`
    wake_tokens = models.PositiveBigIntegerField(null=True)  # limit of its woken turns in a day; null: WAKE_TOKENS
    held_why = models.CharField(max_length=16, choices=HeldChoices, null=True)  # why it is not woken
    held_at = models.DateTimeField(null=True)
    resumed_at = models.DateTimeField(null=True)  # an operator resumed it: chains and tokens count from here
    is_temporary = models.BooleanField()
    should_shutdown = models.BooleanField(default=False)
    may_end_server = models.BooleanField(default=False)  # an operator said so; when all may, the server ends
    last_iterations = models.PositiveIntegerField(default=0)  # of its latest turn
    halted = models.BooleanField(default=False)  # whether that turn was ended by the limit on iterations
    entries_made = models.PositiveIntegerField(default=0)  # of its transcript: the next one's position
    entries_known = models.PositiveIntegerField(default=0)  # of those, the entries in the context
    session = models.JSONField(null=True)  # what its process told last of its session: `runners.acp_session`
    options = models.JSONField(default=dict)  # of its sessions, as an operator chose them: values by name
    instruction_tokens = models.PositiveIntegerField(default=0)  # of files, when they were read last
    created_by = models.CharField(max_length=ID_LENGTH)  # an agent, or an operator
    created_at = models.DateTimeField()
    last_action_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    objects = PoolAgentQuerySet.as_manager()

    class Meta:
        db_table = "pool_agents"
        indexes = [
            models.Index(fields=["agent_id"], name="pool_agents_by_name"),
            models.Index(fields=["ended_at"], name="pool_agents_ended", condition=Q(ended_at__isnull=False)),
        ]
        constraints = [
            *not_empty("pool_agents", "pool_agent_id", "agent_id", "cwd", "runner", "machine"),
            one_of("pool_agents", "preset", PresetChoices),
            models.CheckConstraint(
                condition=Q(held_why=None) | Q(held_why__in=HeldChoices.values), name="pool_agents_held_why_known"
            ),
            models.UniqueConstraint(fields=["agent_id"], condition=Q(ended_at=None), name="pool_agents_living_once"),
        ]

    def __str__(self) -> str:
        return self.agent_id

    @property
    def owner(self) -> str:
        """The pool_agent_id of the topmost agent of its family. Limits that agents share count a family as one. Reads
        the agents above it once."""
        agent = self
        while agent.parent is not None:
            agent = agent.parent
        return agent.pk

    @property
    def permissions(self) -> Permissions:
        """The agent's permissions."""
        return Permissions(
            Preset(self.preset), self.cwd, tuple(self.write_paths), frozenset(self.disabled_tools), self.depth
        )


class WorktreeState(models.TextChoices):
    """The state of a worktree."""

    OPEN = "open"
    KEPT = "kept"  # an operator or a parent wants to keep it
    DISCARDED = "discarded"  # with its branch


class WorktreeQuerySet(models.QuerySet["PoolWorktree"]):
    def at(self, directory: str) -> PoolWorktree | None:
        """Return the one that holds a directory, also if it was discarded."""
        return self.filter(path__in=[directory, *map(str, Path(directory).parents)]).first()

    def at_rest(self) -> WorktreeQuerySet:
        """Open ones in which no turn works or is about to, and that are not in a merge queue."""
        queued = WorktreeMerge.objects.open().order_by().filter(worktree=OuterRef("pk"))
        turns = Turn.objects.open().filter(agent=OuterRef("agent"))
        return self.filter(~Exists(turns), ~Exists(queued), state=WorktreeState.OPEN)

    def for_review(self) -> WorktreeQuerySet:
        """Those with changes that nobody approved, unless they need a person for another reason already."""
        failed = Turn.objects.needing_person().filter(agent=OuterRef("agent"))
        found = self.at_rest().filter(~Exists(failed), changed_files__gt=0)
        returned = WorktreeMerge.objects.filter(worktree=OuterRef("pk"), needs_person=True)
        return found.filter(~Exists(returned)).exclude(content=F("approved"))


class PoolWorktree(models.Model):
    """An agent's own branch and worktree, below the home."""

    worktree_id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    agent = models.OneToOneField(PoolAgent, on_delete=models.CASCADE, related_name="worktree")
    path = models.CharField(max_length=PATH_LENGTH)
    git_dir = models.CharField(max_length=PATH_LENGTH)
    branch = models.CharField(max_length=ID_LENGTH)
    base = models.CharField(max_length=64)  # the commit that it began at
    origin = models.CharField(max_length=PATH_LENGTH)  # the work tree that it was made from, and merges into
    origin_git_dir = models.CharField(max_length=PATH_LENGTH)
    borrowed = models.JSONField(default=list)  # the object directories that it borrows from
    local_files = models.JSONField(default=dict)  # that it was made with: for each path where it links to, or empty
    lacks = models.TextField(blank=True)  # a sentence on the local files that it should have, and was made without
    state = models.CharField(max_length=16, choices=WorktreeState, default=WorktreeState.OPEN)
    created_at = models.DateTimeField()
    merged_at = models.DateTimeField(null=True)  # the latest merge
    looked_at = models.DateTimeField(null=True)  # when the hub last read what it holds, after a turn
    content = models.CharField(max_length=64, blank=True)  # then, git's id of the tree that its merge makes
    changed_files = models.PositiveIntegerField(default=0)  # of that merge
    added = models.PositiveBigIntegerField(default=0)  # lines of that merge
    removed = models.PositiveBigIntegerField(default=0)  # likewise
    approved = models.CharField(max_length=64, blank=True)  # the content that was approved or merged last

    objects = WorktreeQuerySet.as_manager()

    class Meta:
        verbose_name = "worktree"
        db_table = "pool_worktrees"
        constraints = [
            *not_empty("pool_worktrees", "worktree_id", "path", "git_dir", "branch", "base", "origin"),
            one_of("pool_worktrees", "state", WorktreeState),
        ]

    def __str__(self) -> str:
        return self.branch


class MergeState(models.TextChoices):
    """The state of an entry of the merge queue."""

    WAITING = "waiting"
    RUNNING = "running"
    MERGED = "merged"
    RETURNED = "returned"  # to its agent, with what has to change
    WITHDRAWN = "withdrawn"


class MergeStep(models.TextChoices):
    """What is done for a running entry."""

    MERGING = "merging"  # onto the head, outside of every work tree
    CHECKING = "checking"
    TAKING = "taking"  # the branch moves


class ReturnCause(models.TextChoices):
    """Why an entry came back."""

    CONFLICT = "conflict"
    CHECKS = "checks"
    CHANGED = "changed"  # the branch moved, and the merge is another than was approved
    REFUSED = "refused"  # git, or the state of the repository, does not allow it


class MergeQuerySet(models.QuerySet["WorktreeMerge"]):
    def open(self) -> MergeQuerySet:
        """Entries that are not over, in their order."""
        return self.filter(state__in=(MergeState.WAITING, MergeState.RUNNING)).order_by("merge_id")


class WorktreeMerge(models.Model):
    """An entry of the merge queue of a repository and a branch, which takes its entries in the order of their ids."""

    merge_id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    worktree = models.ForeignKey(PoolWorktree, on_delete=models.CASCADE, related_name="merges")
    repository = models.CharField(max_length=PATH_LENGTH)  # the git directory of all its work trees
    target = models.CharField(max_length=PATH_LENGTH)  # the branch
    commit = models.CharField(max_length=64)  # the work, as it was approved
    approved = models.CharField(max_length=64, blank=True)  # its merge then; empty: in conflict, or of an older version
    state = models.CharField(max_length=16, choices=MergeState, default=MergeState.WAITING)
    step = models.CharField(max_length=16, choices=MergeStep, null=True)
    epoch = models.PositiveIntegerField(default=0)  # how often it was claimed: a hub that lost it changes nothing
    held_by = models.CharField(max_length=PATH_LENGTH, blank=True)  # the home of the hub that works on it
    held_until = models.DateTimeField(null=True)  # for hubs of other homes
    onto = models.CharField(max_length=64, null=True)  # the head that it was merged onto
    result = models.CharField(max_length=64, null=True)  # the merge
    cause = models.CharField(max_length=16, choices=ReturnCause, null=True)
    why = models.TextField(blank=True)
    conflicts = models.JSONField(default=list)
    needs_person = models.BooleanField(default=False)  # it came back, or waits, and its agent alone does not get on
    queued_by = models.CharField(max_length=ID_LENGTH)
    queued_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    objects = MergeQuerySet.as_manager()

    class Meta:
        verbose_name = "merge"
        db_table = "pool_merges"
        constraints = [
            *not_empty("pool_merges", "merge_id", "repository", "target", "commit"),
            one_of("pool_merges", "state", MergeState),
            models.UniqueConstraint(
                fields=["worktree"], condition=Q(state__in=["waiting", "running"]), name="pool_merges_open_once"
            ),
            models.UniqueConstraint(
                fields=["repository", "target"], condition=Q(state="running"), name="pool_merges_one_runs"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.worktree.branch} into {self.target}"


class DiffSide(models.TextChoices):
    """The side of a diff that a line is on."""

    OLD = "old"
    NEW = "new"


class ReviewComment(AbstractComment):
    """A person's comment on lines of a worktree's diff, on a file, or on all of it. It quotes the hunk; its
    recipient is a pool_agent_id."""

    worktree = models.ForeignKey(PoolWorktree, on_delete=models.CASCADE, related_name="comments")
    path = models.CharField(max_length=PATH_LENGTH, blank=True)  # empty: all of the work
    side = models.CharField(max_length=16, choices=DiffSide, null=True)  # null: the whole file
    first_line = models.PositiveIntegerField(null=True)
    last_line = models.PositiveIntegerField(null=True)
    content = models.CharField(max_length=64, blank=True)  # git's id of what the diff showed
    run_id = models.CharField(max_length=ID_LENGTH, null=True)  # the turn that it was sent in

    class Meta:
        db_table = "pool_review_comments"
        constraints = [
            *not_empty("pool_review_comments", "comment_id", "text", "author"),
            models.CheckConstraint(
                condition=Q(side=None, first_line=None, last_line=None)
                | Q(side__in=DiffSide.values, first_line__gte=1, last_line__gte=F("first_line")) & ~Q(path=""),
                name="pool_review_comments_lines_fit",
            ),
            answered_once_sent("pool_review_comments"),
        ]

    def __str__(self) -> str:
        return f"{self.where}: {self.text[:60]}"

    @property
    def where(self) -> str:
        """What it is about, in words; a path is quoted, whatever it holds."""
        if not self.path:
            return "all of it"
        if self.first_line is None:
            return repr(self.path)
        lines = (
            f"line {self.first_line}"
            if self.first_line == self.last_line
            else (f"lines {self.first_line} to {self.last_line}")
        )
        return f"{self.path!r}, {lines}{' before the change' if self.side == DiffSide.OLD else ''}"


class TurnStatus(models.TextChoices):
    """The status of a turn."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"  # its runner could not finish it
    INTERRUPTED = "interrupted"  # the server or its worker ended in the middle


OVER = tuple(status for status in TurnStatus if status not in (TurnStatus.QUEUED, TurnStatus.RUNNING))
IN_VAIN = (TurnStatus.FAILED, TurnStatus.INTERRUPTED)


class Cause(models.TextChoices):
    """Why a turn failed, or does not go on, where a run says more than its status."""

    REFUSED = "refused"  # the agent, or its model, does not go on
    STUCK = "stuck"  # it runs, and nothing happens, or always the same
    OUT_OF_BUDGET = "out_of_budget"  # it was not started


class RunOutcome(models.TextChoices):
    """The state of a run, in the words of operators: its turn's status, or why that failed."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"
    REFUSED = "refused"
    STUCK = "stuck"
    OUT_OF_BUDGET = "out_of_budget"
    LOST = "lost"  # the server or its worker ended in the middle


class TurnQuerySet(models.QuerySet["Turn"]):
    def open(self) -> TurnQuerySet:
        """Turns that have not ended."""
        return self.filter(ended_at=None)

    def queued(self) -> TurnQuerySet:
        """Turns that wait to be started; uses the index of open turns."""
        return self.open().filter(status=TurnStatus.QUEUED)

    def ended(self) -> TurnQuerySet:
        """Turns that have ended."""
        return self.exclude(ended_at=None)

    def needing_person(self) -> TurnQuerySet:
        """Turns of living agents that failed or are stuck, and that nobody has retried or dismissed."""
        return self.filter(needs_person_since__isnull=False, agent__ended_at=None)

    def with_outcome(self, outcome: str) -> TurnQuerySet:
        """Turns that have this outcome."""
        if outcome == RunOutcome.LOST:
            return self.filter(status=TurnStatus.INTERRUPTED)
        if outcome in Cause.values:
            return self.filter(cause=outcome)
        return self.filter(status=outcome, cause=None)


class Turn(models.Model):
    """A message to an agent, and its outcome. The row is the intent: a worker starts it, and settles it once."""

    turn_id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    agent = models.ForeignKey(PoolAgent, on_delete=models.CASCADE, related_name="turns", db_index=False)
    request_id = models.CharField(max_length=ID_LENGTH)  # the sender's name for it
    content = models.TextField()
    source = models.CharField(max_length=ID_LENGTH)  # how it was sent: rpc, mail, …
    source_agent_id = models.CharField(max_length=ID_LENGTH, null=True)  # the sending agent, if one sent it
    depth = models.PositiveIntegerField(default=0)  # in a chain of turns that woke one another; 0: it was sent
    runner = models.CharField(max_length=ID_LENGTH, null=True)  # the fallback that took it; null: its agent's
    status = models.CharField(max_length=16, choices=TurnStatus)
    epoch = models.PositiveBigIntegerField(default=0)  # of the incarnation of its agent's machine that started it last
    queued_at = models.DateTimeField()
    awaited_until = models.DateTimeField(null=True)  # somebody waits for its answer until then
    due_at = models.DateTimeField(null=True)  # it is not started before
    put_back = models.PositiveSmallIntegerField(default=0)  # how often a fault of its provider queued it again
    started_at = models.DateTimeField(null=True)  # the last time
    cancel_requested_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    answer = models.TextField(null=True)
    why = models.TextField(null=True)  # the reason of a failure, of being stuck or put back, for operators
    cause = models.CharField(max_length=16, choices=Cause, null=True)
    retry_of = models.CharField(max_length=ID_LENGTH, null=True)  # the turn that it repeats
    needs_person_since = models.DateTimeField(null=True)  # it failed or is stuck; null when retried or dismissed
    iterations = models.PositiveIntegerField(default=0)
    halted = models.BooleanField(default=False)  # by the limit on iterations
    input_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    cached_tokens = models.PositiveBigIntegerField(null=True)  # of the input, from the provider's cache
    cost = models.PositiveBigIntegerField(null=True)  # in millionths of the currency; null: unknown
    currency = models.CharField(max_length=3, null=True)
    cost_source = models.CharField(max_length=64, null=True)  # its agent, or the price table

    objects = TurnQuerySet.as_manager()

    class Meta:
        verbose_name = "run"  # for operators
        db_table = "pool_turns"
        indexes = [
            models.Index(fields=["agent", "turn_id"], name="pool_turns_open", condition=Q(ended_at=None)),
            models.Index(
                fields=["ended_at", "started_at", "agent", "status"],
                name="pool_turns_when",
                condition=Q(ended_at__isnull=False),
            ),
            models.Index(
                fields=["needs_person_since"], name="pool_turns_need", condition=Q(needs_person_since__isnull=False)
            ),
            models.Index(fields=["retry_of"], name="pool_turns_retries", condition=Q(retry_of__isnull=False)),
            models.Index(  # covers finding the last turn and summing up tokens
                fields=["agent", "ended_at", "depth", "input_tokens", "output_tokens"], name="pool_turns_spent"
            ),
        ]
        constraints = [
            *not_empty("pool_turns", "turn_id", "request_id"),
            one_of("pool_turns", "status", TurnStatus),
            models.CheckConstraint(
                condition=(
                    Q(status=TurnStatus.QUEUED, ended_at=None)
                    | Q(status=TurnStatus.RUNNING, started_at__isnull=False, ended_at=None)
                    | (~Q(status__in=(TurnStatus.QUEUED, TurnStatus.RUNNING)) & Q(ended_at__isnull=False))
                ),
                name="pool_turns_times_fit",
            ),
            models.UniqueConstraint(fields=["agent", "request_id"], name="pool_turns_named_once"),
            models.UniqueConstraint(
                fields=["agent"], condition=Q(status=TurnStatus.RUNNING), name="pool_turns_one_at_a_time"
            ),
        ]

    def __str__(self) -> str:
        return self.request_id

    @property
    def outcome(self) -> RunOutcome:
        """The state of the run."""
        if self.status == TurnStatus.INTERRUPTED:
            return RunOutcome.LOST
        return RunOutcome(self.cause or self.status)

    def is_awaited(self, moment: datetime) -> bool:
        """Return whether somebody waits for its answer: then it fails at once, where it would be tried again."""
        return self.awaited_until is not None and self.awaited_until > moment

    @property
    def took(self) -> timedelta | None:
        """The time from start to end; None unless both are known."""
        return self.ended_at - self.started_at if self.started_at and self.ended_at else None

    @property
    def money(self) -> str:
        """The cost in words; empty if it is unknown."""
        return "" if self.cost is None else money(self.cost, self.currency)


class FaultChoices(models.TextChoices):
    """The fault of a provider that is out."""

    OVERLOADED = FaultKind.OVERLOADED
    FAILING = FaultKind.FAILING
    UNREACHABLE = FaultKind.UNREACHABLE
    QUOTA = FaultKind.QUOTA
    KEY = FaultKind.KEY


class OutageQuerySet(models.QuerySet["Outage"]):
    def met(self) -> OutageQuerySet:
        """Those that are not over, the longest first."""
        return self.filter(reset_at=None).order_by("since")


class Outage(models.Model):
    """A runner whose provider failed. The row is deleted when that is over.

    The first agent's word is no outage yet: another agent that it did not create has to meet the fault, too.
    """

    runner = models.CharField(primary_key=True, max_length=ID_LENGTH)
    key = models.CharField(max_length=ID_LENGTH)  # a digest of its configuration and its key
    fault = models.CharField(max_length=16, choices=FaultChoices)
    why = models.TextField()  # what the provider said last, for operators
    failures = models.PositiveIntegerField()  # how often in a row it was confirmed
    since = models.DateTimeField()
    until = models.DateTimeField()  # then turns try it
    met_by = models.CharField(max_length=ID_LENGTH)  # the topmost agent of the family that met it first
    is_confirmed = models.BooleanField(default=False)
    reset_at = models.DateTimeField(null=True)  # a person ended it; turns that started before do not count

    objects = OutageQuerySet.as_manager()

    class Meta:
        db_table = "pool_outages"
        constraints = [*not_empty("pool_outages", "runner", "key"), one_of("pool_outages", "fault", FaultChoices)]

    def __str__(self) -> str:
        return self.runner

    def is_out(self, moment: datetime) -> bool:
        """Return whether no turn starts on the runner."""
        return self.is_confirmed and self.until > moment


class Wake(models.Model):
    """One item that woke an agent, and the turn that it started."""

    wake_id = models.BigAutoField(primary_key=True)
    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="wakes")
    kind = models.CharField(max_length=16)  # mail, or of `nexus.core.contributions.WakeKind`
    item = models.CharField(max_length=ID_LENGTH)  # its id
    sender = models.CharField(max_length=ID_LENGTH, null=True)

    class Meta:
        db_table = "pool_wakes"
        indexes = [models.Index(fields=["kind", "item"], name="pool_wakes_of_item")]
        constraints = [*not_empty("pool_wakes", "kind", "item")]

    def __str__(self) -> str:
        return f"{self.kind} {self.item}"


class QuestionKind(models.TextChoices):
    """The kind of a question to the operators."""

    PERMISSION = "permission"  # may this be done?
    QUESTION = "question"  # it is answered in words


class QuestionStatus(models.TextChoices):
    """The status of a question."""

    ASKED = "asked"
    ALLOWED = "allowed"
    REFUSED = "refused"
    ANSWERED = "answered"  # in words
    EXPIRED = "expired"  # nobody answered in time: that is a refusal
    WITHDRAWN = "withdrawn"  # its asker stopped waiting


class ActionKind(models.TextChoices):
    """What a permission is about."""

    READ = rules.Kind.READ  # files
    WRITE = rules.Kind.WRITE  # files
    RUN = rules.Kind.RUN  # a command
    NETWORK = rules.Kind.NETWORK  # a page of it
    OTHER = rules.Kind.OTHER  # what an agent asks about in words of its own


class QuestionQuerySet(models.QuerySet["Question"]):
    def with_parents(self) -> QuestionQuerySet:
        """Questions with their askers and the askers' parents."""
        return self.select_related("pool_agent__parent")

    def open(self) -> QuestionQuerySet:
        """Questions that nobody has answered, expired or not."""
        return self.filter(status=QuestionStatus.ASKED)

    def waiting(self, moment: datetime) -> QuestionQuerySet:
        """Questions that can be answered."""
        return self.open().filter(expires_at__gt=moment)

    def due(self, moment: datetime) -> QuestionQuerySet:
        """Questions that have expired, which is not recorded yet."""
        return self.open().filter(expires_at__lte=moment)

    def left_unanswered(self, moment: datetime) -> QuestionQuerySet:
        """Questions that expired within a day, and that no operator has looked after since."""
        since = moment - timedelta(days=1)
        recorded = Q(status=QuestionStatus.EXPIRED, ended_at__gt=since)
        due = Q(status=QuestionStatus.ASKED, expires_at__lte=moment, expires_at__gt=since)
        return self.filter(recorded | due, answered_by=None)

    def unheard(self, agent_id: str, moment: datetime) -> QuestionQuerySet:
        """Questions of an agent outside of the pool that were answered within a day, while no call waited."""
        answered = (QuestionStatus.ALLOWED, QuestionStatus.REFUSED, QuestionStatus.ANSWERED)
        since = moment - timedelta(days=1)
        return self.filter(
            agent_id=agent_id, pool_agent=None, status__in=answered, ended_at__gt=since, heard_at=None
        ).order_by("ended_at")

    def of(self, agent_id: str, pool_agent: PoolAgent | None) -> QuestionQuerySet:
        """Questions of one agent. For a pool agent, those of an earlier agent of the same name are left out."""
        return self.filter(agent_id=agent_id, pool_agent=pool_agent)


class Question(models.Model):
    """A question of an agent, of the pool or not, to the operators; answered once."""

    question_id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    agent_id = models.CharField(max_length=ID_LENGTH)  # the asker
    pool_agent = models.ForeignKey(PoolAgent, on_delete=models.CASCADE, null=True, related_name="questions")
    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, null=True, related_name="questions")
    client_id = models.CharField(max_length=ID_LENGTH, null=True)  # the asker's name for it
    kind = models.CharField(max_length=16, choices=QuestionKind)
    title = models.CharField(max_length=TITLE_LENGTH)
    detail = models.TextField(blank=True)  # what an operator must know to answer
    subject = models.TextField(blank=True)  # what it asks about, in a line
    action = models.CharField(
        max_length=16, choices=ActionKind, default=ActionKind.OTHER
    )  # what it asks permission for
    patterns = models.JSONField(default=list)  # of the rules that "allow always" writes; none if no rule can hold
    status = models.CharField(max_length=16, choices=QuestionStatus, default=QuestionStatus.ASKED)
    always = models.BooleanField(default=False)  # the answer wrote rules
    rule = models.PositiveBigIntegerField(null=True)  # the number of the rule that answered it
    words = models.TextField(null=True)  # an answer, or why it was refused
    answered_by = models.CharField(max_length=ID_LENGTH, null=True)  # an operator
    asked_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    heard_at = models.DateTimeField(null=True)  # when a call of its asker returned how it ended

    objects = QuestionQuerySet.as_manager()

    class Meta:
        db_table = "pool_questions"
        indexes = [
            models.Index(fields=["expires_at"], name="pool_questions_open", condition=Q(status=QuestionStatus.ASKED)),
            models.Index(fields=["ended_at"], name="pool_questions_ended", condition=Q(ended_at__isnull=False)),
            models.Index(
                fields=["agent_id", "ended_at"],
                name="pool_questions_unheard",
                condition=Q(pool_agent=None, ended_at__isnull=False, heard_at=None),
            ),
        ]
        constraints = [
            *not_empty("pool_questions", "question_id", "agent_id", "title"),
            one_of("pool_questions", "kind", QuestionKind),
            one_of("pool_questions", "status", QuestionStatus),
            one_of("pool_questions", "action", ActionKind),
            models.UniqueConstraint(
                fields=["pool_agent", "client_id"],
                condition=Q(pool_agent__isnull=False),
                name="pool_questions_once_in_pool",
            ),
            models.UniqueConstraint(
                fields=["agent_id", "client_id"], condition=Q(pool_agent=None), name="pool_questions_once_outside"
            ),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def parent_name(self) -> str | None:
        """The agent of the pool that the asker is below; None if it is below none."""
        parent = self.pool_agent.parent if self.pool_agent else None
        return parent.agent_id if parent else None

    @property
    def always_allows(self) -> list[str]:
        """What the rules allow that "allow always" writes, in words."""
        return [rules.describe_actions(self.action, pattern) for pattern in self.patterns]

    @property
    def is_allowed(self) -> bool:
        """Whether the agent may go on: a permission was given, or the question was answered."""
        answered = self.kind == QuestionKind.QUESTION and self.status == QuestionStatus.ANSWERED
        return answered or self.status == QuestionStatus.ALLOWED


class Role(models.TextChoices):
    """The author of an entry in a transcript."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class EntryQuerySet(models.QuerySet["Entry"]):
    def in_context(self) -> EntryQuerySet:
        """Entries that the agent still knows: those that were not compacted."""
        return self.filter(compacted_at=None).order_by("position")


class Entry(models.Model):
    """One message of an agent's transcript. Append-only, except that compaction takes it out of the context."""

    entry_id = models.BigAutoField(primary_key=True)
    agent = models.ForeignKey(PoolAgent, on_delete=models.CASCADE, related_name="entries", db_index=False)
    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, null=True, related_name="entries")
    position = models.PositiveIntegerField()  # in the agent's transcript, from 0
    role = models.CharField(max_length=16, choices=Role)
    content = models.TextField(blank=True)
    tool_call_id = models.CharField(max_length=ID_LENGTH, null=True)  # of the call that a tool answers
    meta = models.JSONField(null=True)  # such as the calls that an assistant makes, and who sent it
    tokens = models.PositiveIntegerField()  # estimated if the runner does not report it
    created_at = models.DateTimeField()
    compacted_at = models.DateTimeField(null=True)

    objects = EntryQuerySet.as_manager()

    class Meta:
        db_table = "pool_entries"
        indexes = [
            models.Index(  # covers counting the context, however much was compacted
                fields=["agent", "compacted_at", "position", "role", "tokens"], name="pool_entries_known"
            ),
        ]
        constraints = [
            one_of("pool_entries", "role", Role),
            models.UniqueConstraint(fields=["agent", "position"], name="pool_entries_in_order"),
        ]

    def __str__(self) -> str:
        return f"{self.role}: {self.content[:60]}"


class BudgetScope(models.TextChoices):
    """Whose runs a budget counts."""

    AGENT = "agent"
    SUBTREE = "subtree"  # an agent, and all agents below it
    PROJECT = "project"  # agents whose directory, or whose worktree's origin, lies in this one
    POOL = "pool"  # all agents


class BudgetMeasure(models.TextChoices):
    """What a budget counts."""

    TOKENS = "tokens"
    MONEY = "money"
    TURNS = "turns"


class BudgetPeriod(models.TextChoices):
    """How long a budget lasts."""

    DAY = "day"  # it begins again at midnight, UTC
    TOTAL = "total"


class Budget(models.Model):
    """A limit of what runs may spend. The row holds the sums, so that claiming a turn reads no other turn, and
    retention changes nothing."""

    budget_id = models.CharField(primary_key=True, max_length=ID_LENGTH)  # made of the next four: a budget exists once
    scope = models.CharField(max_length=16, choices=BudgetScope)
    name = models.CharField(max_length=PATH_LENGTH, blank=True)  # of the agent, or the project's directory
    measure = models.CharField(max_length=16, choices=BudgetMeasure)
    period = models.CharField(max_length=16, choices=BudgetPeriod)
    allowed = models.PositiveBigIntegerField()  # tokens, turns, or millionths of the currency
    currency = models.CharField(max_length=3, null=True)
    spent = models.PositiveBigIntegerField(default=0)
    unknown = models.PositiveBigIntegerField(default=0)  # runs that did not tell what they spent
    day = models.DateField()  # that the sums are of, for the period of a day
    set_by = models.CharField(max_length=ID_LENGTH)
    set_at = models.DateTimeField()

    class Meta:
        db_table = "pool_budgets"
        constraints = [
            *not_empty("pool_budgets", "budget_id", "set_by"),
            one_of("pool_budgets", "scope", BudgetScope),
            one_of("pool_budgets", "measure", BudgetMeasure),
            one_of("pool_budgets", "period", BudgetPeriod),
        ]

    def __str__(self) -> str:
        whose = {BudgetScope.POOL: "the pool", BudgetScope.SUBTREE: f"{self.name} and the agents below it"}
        return f"{self.amount(self.allowed)} {self._period} for {whose.get(BudgetScope(self.scope), self.name)}"

    @property
    def _period(self) -> str:
        return "a day" if self.period == BudgetPeriod.DAY else "in total"

    def amount(self, value: int) -> str:
        """Return a value of its measure in words."""
        if self.measure == BudgetMeasure.MONEY:
            return money(value, self.currency)
        return f"{value:,} {self.measure.removesuffix('s') if value == 1 else self.measure}"

    @property
    def is_spent(self) -> bool:
        """Whether it allows no new run."""
        return self.spent >= self.allowed

    @property
    def is_nearly_spent(self) -> bool:
        """Whether most of it is spent."""
        return self.spent >= NEARLY_SPENT * self.allowed

    @property
    def percent(self) -> int:
        """The part that is spent, rounded down."""
        return min(self.spent * 100 // self.allowed, 999)

    def renew(self, day: date) -> Budget:
        """Begin again, in memory, if its day is over."""
        if self.period == BudgetPeriod.DAY and self.day != day:
            self.spent, self.unknown, self.day = 0, 0, day
        return self


class RuleEffect(models.TextChoices):
    """What a rule does."""

    ALLOW = rules.Effect.ALLOW  # nobody is asked
    ASK = rules.Effect.ASK
    DENY = rules.Effect.DENY


class RuleScope(models.TextChoices):
    """For which agents a rule holds."""

    AGENT = "agent"
    RUNNER = "runner"  # agents of this runner
    PROJECT = "project"  # agents whose directory, or whose worktree's origin, lies in this one
    POOL = "pool"  # all agents


class PermissionRule(models.Model):
    """A rule that decides what agents may do without a person, or must not do (`decide` in `permissions/rules.py`)."""

    rule_id = models.BigAutoField(primary_key=True)  # the number that people see
    effect = models.CharField(max_length=16, choices=RuleEffect)
    kind = models.CharField(max_length=16, choices=ActionKind)
    pattern = models.CharField(max_length=LONGEST_PATTERN, blank=True)  # empty: every action of the kind
    scope = models.CharField(max_length=16, choices=RuleScope)
    name = models.CharField(max_length=PATH_LENGTH, blank=True)  # of the agent or the runner, or the directory
    # An allowing rule for an agent of the pool holds for no later agent of the same name.
    pool_agent = models.ForeignKey(PoolAgent, on_delete=models.CASCADE, null=True, related_name="rules")
    question = models.ForeignKey(  # whose answer wrote it
        Question, on_delete=models.SET_NULL, null=True, related_name="rules"
    )
    written_by = models.CharField(max_length=ID_LENGTH)
    written_at = models.DateTimeField()

    class Meta:
        db_table = "pool_rules"
        constraints = [
            *not_empty("pool_rules", "written_by"),
            one_of("pool_rules", "effect", RuleEffect),
            one_of("pool_rules", "kind", ActionKind),
            one_of("pool_rules", "scope", RuleScope),
        ]

    def __str__(self) -> str:
        return f"{self.rule}, for {self.whom}"

    @property
    def whom(self) -> str:
        """The agents that it holds for, in words."""
        return describe_scope(self.scope, self.name)

    @property
    def rule(self) -> rules.Rule:
        """The rule as `decide` takes it."""
        return rules.Rule(self.rule_id, rules.Effect(self.effect), rules.Kind(self.kind), self.pattern)


def describe_scope(scope: str, name: str) -> str:
    """Return the agents that a rule holds for, in words."""
    match scope:
        case RuleScope.RUNNER:
            return f"agents of the runner {name}"
        case RuleScope.PROJECT:
            return f"agents in {name}"
    return name or "all agents"
