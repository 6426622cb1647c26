"""Plans, tasks and the history of both. The rows are the truth; `.nexus` in the project mirrors them."""

from __future__ import annotations

from collections.abc import Collection

from django.db import models
from django.db.models import Q

from coordination.models import ID_LENGTH, Workspace, not_empty, one_of
from nexus.core.database.prepared import Slot

STREAM = "planning"  # of the log


class IssueStatus(models.TextChoices):
    """The states of an issue."""

    PENDING = "pending"
    DECIDED = "decided"


class TaskStatus(models.TextChoices):
    """The states of a task; any may follow any other."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class ReusePolicy(models.TextChoices):
    """Whether whoever owns a task is started afresh for it."""

    FRESH = "fresh"
    SAME_ARTIFACT = "resume_if_same_artifact"
    RESUME = "resume"


class Plan(models.Model):
    """The plan of a workspace that is being made or carried out; an archived one stands in its cycle."""

    workspace = models.OneToOneField(Workspace, on_delete=models.CASCADE, primary_key=True, related_name="plan")
    number = models.PositiveBigIntegerField()
    topic = models.TextField()
    research_summary = models.TextField(null=True)
    created_at = models.TextField()  # as its file has it
    next_issue = models.PositiveBigIntegerField(default=1)  # an id is not given again

    class Meta:
        db_table = "plans"

    def __str__(self) -> str:
        return self.topic


class Issue(models.Model):
    """Something that a plan has to decide."""

    plan = models.ForeignKey(Plan, on_delete=models.CASCADE, related_name="issues", db_index=False)
    number = models.PositiveBigIntegerField()
    position = models.PositiveIntegerField()
    title = models.TextField()
    status = models.CharField(max_length=16, choices=IssueStatus, default=IssueStatus.PENDING)
    decision = models.TextField(null=True)
    how_agents = models.JSONField(null=True)  # who was asked
    how_summary = models.JSONField(null=True)  # by agent, what it said
    how_agent_ids = models.JSONField(null=True)  # by agent, which instance of it
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


class Board(models.Model):
    """What a workspace's tasks have in common; there while a cycle has tasks."""

    workspace = models.OneToOneField(Workspace, on_delete=models.CASCADE, primary_key=True, related_name="board")
    goal = models.TextField(default="")
    decisions = models.JSONField(default=list)

    class Meta:
        db_table = "task_boards"

    def __str__(self) -> str:
        return self.goal


class TaskQuerySet(models.QuerySet["Task"]):
    """Tasks by cycle."""

    def current(self, workspace_id: str | Slot) -> TaskQuerySet:
        """Of the cycle that is open, in their order."""
        return self.filter(workspace_id=workspace_id, closed_at=None).order_by("position", "number")

    def on_their_own(self, status: TaskStatus) -> TaskQuerySet:
        """Of open cycles, with this status, and not carried by a handoff."""
        return self.filter(closed_at=None, status=status, held_by=None)

    def owned_by(self, agents: Collection[str]) -> TaskQuerySet:
        """Whose owner is one of these: the instance where one is named."""
        return self.filter(Q(owner_agent_id__in=agents) | Q(owner_agent_id=None, owner__in=agents))


class Task(models.Model):
    """A unit of planned work; agents know it by its number in the cycle, handoffs by its key."""

    task_key = models.CharField(primary_key=True, max_length=ID_LENGTH)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="tasks", db_index=False)
    number = models.PositiveBigIntegerField()
    position = models.PositiveIntegerField()
    title = models.TextField()
    context = models.TextField()
    status = models.CharField(max_length=16, choices=TaskStatus, default=TaskStatus.PENDING)
    deps = models.JSONField(default=list)  # numbers; one that there is not is never met
    approach = models.TextField(null=True)
    acceptance = models.TextField(null=True)
    risk = models.TextField(null=True)
    plan_issue = models.BigIntegerField(null=True)
    owner = models.TextField(null=True)
    owner_agent_id = models.TextField(null=True)
    owner_reuse_policy = models.CharField(max_length=32, choices=ReusePolicy, null=True)
    stamp = models.TextField(null=True)  # created_at as its file has it
    held_by = models.CharField(max_length=ID_LENGTH, null=True)  # who claimed the handoff that carries it
    created_by = models.CharField(max_length=ID_LENGTH, null=True)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)  # with its cycle, or taken from its file

    objects = TaskQuerySet.as_manager()

    class Meta:
        db_table = "plan_tasks"
        indexes = [models.Index(fields=["workspace", "closed_at"], name="plan_tasks_by_cycle")]
        constraints = [
            *not_empty("plan_tasks", "task_key"),
            one_of("plan_tasks", "status", TaskStatus),
            models.UniqueConstraint(
                fields=["workspace", "number"], condition=Q(closed_at=None), name="plan_tasks_number_once"
            ),
        ]

    def __str__(self) -> str:
        return self.title


class CycleQuerySet(models.QuerySet["Cycle"]):
    """Cycles by whether their file has them."""

    def in_history(self) -> CycleQuerySet:
        """Those that history.json has now."""
        return self.filter(position__isnull=False)


class Cycle(models.Model):
    """A closed cycle: its plan and tasks as they were."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="cycles", db_index=False)
    position = models.PositiveIntegerField(null=True)  # in history.json; null while that lacks it, as on another branch
    digest = models.CharField(max_length=64)  # sha256 of the document
    completed_at = models.TextField()
    branch = models.TextField()
    plan_number = models.PositiveBigIntegerField(null=True)
    topic = models.TextField(null=True)
    task_count = models.PositiveIntegerField()
    document = models.TextField()  # JSON as its file has it
    words = models.TextField()  # the same without escapes, in lower case: what a search reads

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
    """What a machine's file of a workspace holds because we wrote it; anything else, somebody else wrote."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="+", db_index=False)
    machine = models.CharField(max_length=ID_LENGTH)
    name = models.CharField(max_length=64)
    ours = models.JSONField(default=list)  # sha256 of our latest texts, the newest last; "" is no file
    behind = models.BooleanField(default=False)  # the file may still have one before the newest

    class Meta:
        db_table = "plan_files"
        constraints = [models.UniqueConstraint(fields=["workspace", "machine", "name"], name="plan_files_once")]

    def __str__(self) -> str:
        return self.name
