"""The settings of this app."""

from __future__ import annotations

from nexus.core.config import Settings, section, setting


@section
class MaintenanceSettings(Settings):
    """Settings of the start of a server."""

    auto_prune_on_start: bool = setting(False, "Prune once, within bounds, when a server starts.")
