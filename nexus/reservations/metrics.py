"""What /metrics shows of reservations."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Count
from prometheus_client.metrics_core import Metric

from nexus.core.clock import now
from nexus.core.metrics import gauge
from nexus.reservations import selectors


def collect() -> Iterator[Metric]:
    """Count the reservations that are held now, exclusive and shared."""
    counted = dict(selectors.held(now()).values_list("exclusive").annotate(Count("pk")).order_by())
    by_mode = {"exclusive": counted.get(True, 0), "shared": counted.get(False, 0)}
    yield gauge("nexus_file_reservations", "Reservations of files that are held.", "mode", by_mode)
