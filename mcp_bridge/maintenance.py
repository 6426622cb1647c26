"""What retention and doctor need of MCP tasks: a lane, and states that no operation leaves behind.

A task belongs to no workspace, so no export holds it: it is a call whose agent comes back for the result.
"""

from __future__ import annotations

from datetime import datetime

from django.db.models import QuerySet

from mcp_bridge.models import Task
from nexus.core.contributions import ImpossibleState, RetentionLane


def _expired(horizon: datetime) -> QuerySet[Task]:
    return Task.objects.filter(expires_at__lt=horizon).order_by("expires_at")


LANES = (RetentionLane("expired_tasks", _expired, keep=1),)

IMPOSSIBLE = (
    ImpossibleState(
        "mcp_tasks",
        "completed, without a result",
        "status = 'completed' AND result IS NULL",
        "status = 'working'",
        "the next read finds their result",
    ),
    ImpossibleState(
        "mcp_tasks",
        "not completed, with a result",
        "status <> 'completed' AND result IS NOT NULL",
        "status = 'completed'",
        "they completed with it",
    ),
)
