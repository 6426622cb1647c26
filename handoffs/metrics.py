"""What /metrics shows of handoffs."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Count
from prometheus_client.metrics_core import Metric

from handoffs.models import LIVE, Handoff
from nexus.core.metrics import gauge


def collect() -> Iterator[Metric]:
    """Count the handoffs that are not settled, by status."""
    counted = dict(Handoff.objects.live().values_list("status").annotate(Count("pk")).order_by())
    yield gauge("nexus_handoffs", "Handoffs that are not finished.", "status", counted, LIVE)
