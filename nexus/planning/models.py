"""Plans, tasks and their history. The rows are the truth; `.nexus` in the project mirrors them.

A task is verified like a handoff (`handoffs.verification`). It differs in what its file says: its dependencies are
numbers, which may name no task or lead in a circle; whoever begins it makes the claims before stale, and has neither a
lease nor a deadline.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from django.db import models
from django.db.models import Q

from coordination.comments import AbstractComment, answered_once_sent
from coordination.models import ID_LENGTH, Workspace, not_empty, one_of
from handoffs import checks
from handoffs.models import UNFINISHED, AbstractCheckRun, CheckedWork, CheckState, VerifiedWork

STREAM = "planning"  # of the event log
STREAMS = {STREAM: "plans, tasks and cycles"}


class IssueStatus(models.TextChoices):
    """The states of an issue."""

    PENDING = "pending"
    DECIDED = "decided"


class TaskStatus(models.TextChoices):
    """The states of a task; every change of state is allowed."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class ReusePolicy(models.TextChoices):
    """Whether the owner of a task gets a fresh session for it."""

    FRESH = "fresh"
    SAME_ARTIFACT = "resume_if_same_artifact"
    RESUME = "resume"


class Plan(models.Model):
    """The active plan of a workspace; an archived one is in its cycle."""

    workspace = models.OneToOneField(Workspace, on_delete=models.CASCADE, primary_key=True, related_name="plan")
    number = models.PositiveBigIntegerField()
    topic = models.TextField()
    research_summary = models.TextField(null=True)
    created_at = models.TextField()  # as in its file
    next_issue = models.PositiveBigIntegerField(default=1)  # ids are not reused
    started_by = models.CharField(max_length=ID_LENGTH, null=True)  # the agent that holds it, if that is known
    extra = models.JSONField(null=True)  # further fields of its file

    class Meta:
        db_table = "plans"

    def __str__(self) -> str:
        return self.topic


class Issue(models.Model):
    """A question that a plan has to decide."""

    plan = models.ForeignKey(Plan, on_delete=models.CASCADE, related_name="issues", db_index=False)
    number = models.PositiveBigIntegerField()
    position = models.PositiveIntegerField()
    title = models.TextField()
    status = models.CharField(max_length=16, choices=IssueStatus, default=IssueStatus.PENDING)
    decision = models.TextField(null=True)
    how_agents = models.JSONField(null=True)  # the agents that were asked
    how_summary = models.JSONField(null=True)  # the answer of each agent
    how_agent_ids = models.JSONField(null=True)  # the instance of each agent
    extra = models.JSONField(null=True)  # further fields of its file
    decided_by = models.CharField(max_length=ID_LENGTH, null=True)
    decided_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "plan_issues"
        constraints = [
            models.UniqueConstraint(fields=["plan", "number"], name="plan_issues_number_once"),
            one_of("plan_issues", "status", IssueStatus),
        ]

    def __str__(self) -> str:
        return self.title


class PlanComment(AbstractComment):
    """A person's comment on an issue of a plan, or on all of it. It quotes the issue, and stays when that or the plan
    goes."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="+", db_index=False)
    plan_number = models.PositiveBigIntegerField()
    issue_number = models.PositiveBigIntegerField(null=True)

    class Meta:
        db_table = "plan_comments"
        indexes = [models.Index(fields=["workspace", "plan_number"], name="plan_comments_by_plan")]
        constraints = [
            *not_empty("plan_comments", "comment_id", "text", "author"),
            answered_once_sent("plan_comments"),
        ]

    def __str__(self) -> str:
        return f"{self.where}: {self.text[:60]}"

    @property
    def where(self) -> str:
        """What it is about, in words."""
        return "all of it" if self.issue_number is None else f"issue {self.issue_number}"


class Board(models.Model):
    """The common fields of a workspace's tasks; it exists while the cycle has tasks."""

    workspace = models.OneToOneField(Workspace, on_delete=models.CASCADE, primary_key=True, related_name="board")
    goal = models.TextField(default="")
    decisions = models.JSONField(default=list)
    extra = models.JSONField(null=True)  # further fields of its file

    class Meta:
        db_table = "task_boards"

    def __str__(self) -> str:
        return self.goal


class TaskQuerySet(models.QuerySet["Task"]):
    """Tasks by cycle."""

    def current(self, workspace_id: str) -> TaskQuerySet:
        """Those of the open cycle, in their order."""
        return self.filter(workspace_id=workspace_id, closed_at=None).order_by("position", "number")

    def on_their_own(self, status: TaskStatus) -> TaskQuerySet:
        """Those of open cycles with this status and without a handoff."""
        return self.filter(closed_at=None, status=status, held_by=None)

    def submitted(self) -> TaskQuerySet:
        """Those of open cycles whose result waits for its checks or its verifier."""
        return self.filter(closed_at=None, status=TaskStatus.IN_PROGRESS, submitted_at__isnull=False)

    def owned_by(self, agents: Collection[str]) -> TaskQuerySet:
        """Those whose owner is one of these agents: the instance where one is named."""
        return self.filter(Q(owner_agent_id__in=agents) | Q(owner_agent_id=None, owner__in=agents))


class Task(VerifiedWork, models.Model):
    """A unit of planned work. Agents refer to it by its number in the cycle, handoffs by its key."""

    task_key = models.CharField(primary_key=True, max_length=ID_LENGTH)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="tasks", db_index=False)
    number = models.PositiveBigIntegerField()
    position = models.PositiveIntegerField()
    title = models.TextField()
    context = models.TextField()
    status = models.CharField(max_length=16, choices=TaskStatus, default=TaskStatus.PENDING)
    deps = models.JSONField(default=list)  # numbers; an unknown one is never met
    approach = models.TextField(null=True)
    acceptance = models.TextField(null=True)
    risk = models.TextField(null=True)
    plan_issue = models.BigIntegerField(null=True)
    owner = models.TextField(null=True)
    owner_agent_id = models.TextField(null=True)
    owner_reuse_policy = models.CharField(max_length=32, choices=ReusePolicy, null=True)
    stamp = models.TextField(null=True)  # created_at as in its file
    extra = models.JSONField(null=True)  # further fields of its file
    claim_epoch = models.PositiveIntegerField(default=0, db_default=0)  # grows each time that it is begun
    begun_at = models.DateTimeField(null=True)  # when it was begun last
    held_by = models.CharField(max_length=ID_LENGTH, null=True)  # the agent that claimed the handoff that carries it
    acceptance_criteria = models.JSONField(null=True)  # a list of texts; `handoffs.checks.parse` says whom each is for
    verifier = models.TextField(null=True)  # as `handoffs.lifecycle.parse_verifier` returns it
    # When its result went to its checks and its verifier, and whose it is.
    submitted_at = models.DateTimeField(null=True)
    submitted_by = models.CharField(max_length=ID_LENGTH, null=True)
    created_by = models.CharField(max_length=ID_LENGTH, null=True)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)  # the time when its cycle closed, or when it was removed from its file

    objects = TaskQuerySet.as_manager()

    class Meta:
        db_table = "plan_tasks"
        indexes = [
            models.Index(fields=["workspace", "closed_at"], name="plan_tasks_by_cycle"),
            models.Index(  # those of all open cycles, and not through all that was ever planned
                fields=["status", "task_key"], name="plan_tasks_by_status", condition=Q(closed_at=None)
            ),
        ]
        constraints = [
            *not_empty("plan_tasks", "task_key"),
            one_of("plan_tasks", "status", TaskStatus),
            models.UniqueConstraint(
                fields=["workspace", "number"], condition=Q(closed_at=None), name="plan_tasks_number_once"
            ),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def is_checked(self) -> bool:
        """Whether its result counts only once its checks passed or its verifier accepted it."""
        return self.verifier is not None or checks.tests(self.acceptance_criteria)

    @property
    def is_submitted(self) -> bool:
        """Whether its result waits for its checks or its verifier."""
        return self.submitted_at is not None and self.status == TaskStatus.IN_PROGRESS

    @property
    def doer(self) -> str | None:
        """The agent that works on it, as far as that is known."""
        return self.submitted_by or self.held_by or self.owner_agent_id or self.owner

    @property
    def creator(self) -> str:
        """The agent that added it; empty where that is not known."""
        return self.created_by or ""

    @property
    def doers(self) -> tuple[str | None, ...]:
        """Whose work it is, the agent that works on it first."""
        return self.doer, self.submitted_by, self.owner_agent_id, self.owner

    @property
    def since(self) -> datetime:
        """When a submitted result was submitted."""
        return self.submitted_at or self.updated_at


class TaskCheckRun(AbstractCheckRun):
    """The checks of one result of a task."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="check_runs")

    class Meta:
        db_table = "plan_check_runs"
        indexes = [
            models.Index(fields=["due_at"], name="plan_check_runs_open", condition=Q(state__in=UNFINISHED)),
        ]
        constraints = [
            models.UniqueConstraint(fields=["task"], condition=Q(state__in=UNFINISHED), name="plan_check_runs_one"),
            one_of("plan_check_runs", "state", CheckState),
        ]

    def __str__(self) -> str:
        return f"{self.state} checks of {self.task_id}"

    @property
    def work(self) -> CheckedWork:
        """The task whose result it is."""
        task = self.task
        since = task.begun_at or task.created_at
        return CheckedWork(task.workspace, task.acceptance_criteria or (), task.doer, since)


class CycleQuerySet(models.QuerySet["Cycle"]):
    """Cycles, by whether history.json contains them."""

    def in_history(self) -> CycleQuerySet:
        """Those that history.json contains now."""
        return self.filter(position__isnull=False)


class Cycle(models.Model):
    """A closed cycle: its plan and tasks as they were."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="cycles", db_index=False)
    # in history.json; null while that does not contain it, as on another branch
    position = models.PositiveIntegerField(null=True)
    digest = models.CharField(max_length=64)  # sha256 of the document
    completed_at = models.TextField()
    branch = models.TextField()
    plan_number = models.PositiveBigIntegerField(null=True)
    topic = models.TextField(null=True)
    task_count = models.PositiveIntegerField()
    document = models.TextField()  # JSON as in its file
    words = models.TextField()  # the same without escapes, in lower case, for the search

    objects = CycleQuerySet.as_manager()

    class Meta:
        db_table = "plan_cycles"
        indexes = [
            models.Index(fields=["workspace", "position"], name="plan_cycles_in_order"),
            models.Index(fields=["workspace", "digest"], name="plan_cycles_by_digest"),
        ]

    def __str__(self) -> str:
        return self.topic or self.completed_at


class MirroredFile(models.Model):
    """What we wrote into a workspace's file on one machine. Any other content is foreign."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="+", db_index=False)
    machine = models.CharField(max_length=ID_LENGTH)
    name = models.CharField(max_length=64)
    ours = models.JSONField(default=list)  # sha256 of our latest texts, newest last; "" means no file
    behind = models.BooleanField(default=False)  # the file may still have a text before the newest
    extra = models.JSONField(null=True)  # further fields of history.json

    class Meta:
        db_table = "plan_files"
        constraints = [models.UniqueConstraint(fields=["workspace", "machine", "name"], name="plan_files_once")]

    def __str__(self) -> str:
        return self.name
