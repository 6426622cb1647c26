"""The settings of this app."""

from __future__ import annotations

from nexus.core.config import Settings, section, setting


@section
class PlanningSettings(Settings):
    """What hooks hold agents to."""

    planning_gate_edits: bool = setting(
        False,
        "Whether hooks keep agents from editing a project's files while it has no tasks (no tasks.json).",
        live=False,  # a hook asks it without the store
    )
