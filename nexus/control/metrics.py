"""What /metrics shows of the pool."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Min
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from nexus.control import monitoring
from nexus.control.models import Question, Turn
from nexus.core.clock import now
from nexus.core.metrics import gauge


def collect() -> Iterator[Metric]:
    """Yield the counts of agents, open turns and waiting questions, and the age of the oldest queued turn."""
    counts, moment = monitoring.counts(), now()
    agents = {"free": counts.agents - counts.held, "held": counts.held}
    yield gauge("nexus_pool_agents", "Living agents of the pool; those that are held are not woken.", "state", agents)
    turns = {"queued": counts.waiting, "running": counts.running}
    yield gauge("nexus_pool_turns", "Turns that have not ended, by state.", "status", turns)
    oldest = Turn.objects.queued().aggregate(at=Min("queued_at"))["at"]
    age = max(0.0, (moment - oldest).total_seconds()) if oldest else 0.0
    yield GaugeMetricFamily("nexus_oldest_queued_turn_seconds", "Age of the turn that waits longest.", value=age)
    asked = Question.objects.waiting(moment).count()
    yield GaugeMetricFamily("nexus_pool_questions", "Questions of agents that wait for a person.", value=asked)
