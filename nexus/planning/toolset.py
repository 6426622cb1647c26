"""The toolset of planning, with the names that consumers of `.nexus` know."""

from __future__ import annotations

from nexus.core.operations.registry import Toolset
from nexus.core.operations.replies import packaged

PLANNING = Toolset(
    "planning",
    "Plans whose issues are decided with their reasons, tasks with dependencies, and a searchable history of both.",
    instructions=packaged("nexus.planning", "instructions"),
    modules=("nexus.planning.operations", "nexus.planning.comment_operations"),  # most agents do not need it
)
operation = PLANNING.operation
