"""What /metrics tells of agents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from coordination.presence import Presence, agent_states
from nexus.core.clock import now
from nexus.core.metrics import gauge


def collect() -> Iterator[Metric]:
    """Count the agents by presence, as the commands and the dashboard do."""
    counted = Counter(state.presence.value for state in agent_states(now()))
    yield gauge("nexus_agents", "Agents by presence: any act of an agent counts.", "presence", counted, Presence)
