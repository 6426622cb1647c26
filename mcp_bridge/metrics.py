"""What /metrics shows of MCP."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Count
from prometheus_client.metrics_core import Metric

from mcp_bridge.models import Task, TaskStatus
from nexus.core.clock import now
from nexus.core.contributions import gauge


def collect() -> Iterator[Metric]:
    """Count tasks by state, without those that expired."""
    counted = dict(Task.objects.kept(now()).values_list("status").annotate(Count("pk")).order_by())
    yield gauge("nexus_mcp_tasks", "Calls over MCP that became tasks, by state.", "status", counted, TaskStatus.values)
