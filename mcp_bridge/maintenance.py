"""What retention needs of MCP tasks: a lane.

A task belongs to no workspace, so no export holds it: it is a call whose agent comes back for the result.
"""

from __future__ import annotations

from datetime import datetime

from django.db.models import QuerySet

from mcp_bridge.models import Task
from nexus.core.contributions import RetentionLane


def _expired(horizon: datetime) -> QuerySet[Task]:
    return Task.objects.filter(expires_at__lt=horizon).order_by("expires_at")


LANES = (RetentionLane("expired_tasks", _expired, keep=1),)
