"""Compact contexts that are nearly full, so that retention can bound the transcript."""

from __future__ import annotations

from nexus.control import selectors
from nexus.control.models import PoolAgent
from nexus.control.services import transcript


def compact_full() -> None:
    """Compact each living agent whose context is nearly full, as its runner counts."""
    for agent in PoolAgent.objects.living():
        available = selectors.runner_of(agent).available_tokens
        while selectors.is_nearly_full(agent) and transcript.compact(agent, None, available):
            pass
