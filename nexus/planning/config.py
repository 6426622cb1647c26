"""Settings of the planning app."""

from __future__ import annotations

from nexus.core.config import Settings, section, setting


@section
class PlanningSettings(Settings):
    """Settings of the planning hooks."""

    planning_gate_edits: bool = setting(
        False,
        "Whether hooks refuse edits of a project's files while the project has no tasks (no tasks.json).",
        live=False,  # a hook reads it without the store
    )
