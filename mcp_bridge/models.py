"""The tables of MCP: tasks, which are waiting calls, and the last writes of relays."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import Q

NAME_LENGTH = 255
ID_LENGTH = 64


class TaskStatus(models.TextChoices):
    """The states of a task; all but the first are final."""

    WORKING = "working"  # it waits, but in no process: each request for it checks
    COMPLETED = "completed"  # with the result of the call, which may be an error
    CANCELLED = "cancelled"  # its agent no longer waits


class TaskQuerySet(models.QuerySet["Task"]):
    """Tasks by agent and state."""

    def of(self, agent_id: str | None) -> TaskQuerySet:
        return self.filter(agent_id=agent_id)

    def working(self) -> TaskQuerySet:
        return self.filter(status=TaskStatus.WORKING)

    def waiting(self, moment: datetime) -> TaskQuerySet:
        return self.working().filter(waits_until__gt=moment)

    def over(self, moment: datetime) -> TaskQuerySet:
        """Those that ended, and those whose end the next read will find."""
        return self.exclude(status=TaskStatus.WORKING, waits_until__gt=moment)

    def kept(self, moment: datetime) -> TaskQuerySet:
        return self.filter(expires_at__gt=moment)


class Task(models.Model):
    """A call that was made and waits: what is needed to continue it, and later its result."""

    task_id = models.CharField(primary_key=True, max_length=ID_LENGTH)  # random, so that nobody can guess one
    # its agent; without one, any trusted process may read it
    agent_id = models.CharField(max_length=NAME_LENGTH, null=True)
    toolset = models.CharField(max_length=NAME_LENGTH)
    operation = models.CharField(max_length=NAME_LENGTH)
    arguments = models.TextField()  # JSON, as given, without secrets
    answered = models.TextField()  # JSON: the call's own answer, to which the wait adds
    status = models.CharField(max_length=16, choices=TaskStatus, default=TaskStatus.WORKING)
    result = models.TextField(null=True)  # JSON: the tool's result in wire form
    size = models.PositiveIntegerField(default=0)  # of the result, in characters
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    waits_until = models.DateTimeField()
    expires_at = models.DateTimeField()  # it cannot be read afterwards

    objects = TaskQuerySet.as_manager()

    class Meta:
        db_table = "mcp_tasks"
        indexes = [
            models.Index(fields=["agent_id", "status", "updated_at"], name="mcp_tasks_by_agent"),
            models.Index(fields=["expires_at"], name="mcp_tasks_by_expiry"),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(status__in=TaskStatus.values), name="mcp_tasks_status_known"),
            models.CheckConstraint(
                condition=Q(status="completed", result__isnull=False)
                | (~Q(status="completed") & Q(result__isnull=True)),
                name="mcp_tasks_result_iff_completed",
            ),
        ]

    def __str__(self) -> str:
        return self.task_id


class RecordedCall(models.Model):
    """The last write of a relay in one of its slots: what its repetition is answered."""

    slot = models.CharField(primary_key=True, max_length=ID_LENGTH)  # the connection, and a number
    key = models.CharField(max_length=ID_LENGTH)  # a hash of the request's key and what it is for
    stage = models.PositiveSmallIntegerField()
    answer = models.BinaryField(null=True)  # encrypted with the request's key; null: unknown, or too long
    recorded_at = models.DateTimeField()

    class Meta:
        db_table = "mcp_recorded_calls"

    def __str__(self) -> str:
        return self.slot
