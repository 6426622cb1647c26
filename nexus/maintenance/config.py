"""The settings of this app."""

from __future__ import annotations

from nexus.core.config import Settings, section, setting


@section
class MaintenanceSettings(Settings):
    """Settings of retention, and of the start of a server."""

    retention_keep_days: int = setting(
        90,
        "Closed topics with their messages, ended reservations, questions, agents of the pool and their turns, and "
        "compacted entries of transcripts, older than this (days), may be pruned.",
        minimum=0,
        maximum=36_500,
    )
    auto_prune_on_start: bool = setting(False, "Prune once, within bounds, when a server starts.")
