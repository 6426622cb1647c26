"""The toolset of the pool: agents that Nexus runs itself. JSON-RPC serves the same operations by their short names."""

from __future__ import annotations

from nexus.core.operations.registry import Toolset
from nexus.core.operations.replies import packaged

CONTROL = Toolset(
    "control",
    "A pool of agents that Nexus runs: create one with a permission preset, send it work, watch it, cancel, end it.",
    instructions=packaged("nexus.control", "instructions"),
    modules=(  # in the order in which agents see them; not loaded for most agents
        "nexus.control.operations.agents",
        "nexus.control.operations.pool",
        "nexus.control.operations.questions",
        "nexus.control.operations.worktrees",
    ),
)
operation = CONTROL.operation
PREFIX = "pool_"  # of the operations' names; JSON-RPC omits it
