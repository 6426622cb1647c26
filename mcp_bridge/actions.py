"""The actions of an operator on a waiting call."""

from __future__ import annotations

from mcp_bridge.listing import titles
from nexus.core.contributions import Action

ACTIONS = (
    Action(
        "mcp_task_cancel",
        "Cancel",
        "cancelled: it no longer waits",
        ("call that waits", "calls that wait"),
        lambda task_id: {"task_id": task_id},
        titles,
    ),
)
