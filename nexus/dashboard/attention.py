"""What operators do with agents' keys."""

from __future__ import annotations

from coordination.attention import agent_names, the_agent
from nexus.core.contributions import Action
from nexus.dashboard.views.agents import key_page

ACTIONS = (
    Action(
        "agent_key_issue",
        "Issue a key…",
        "given a new key: the one before, if any, is dead",
        ("agent", "agents"),
        the_agent,
        agent_names,
        danger=True,
        shows=key_page,
    ),
)
