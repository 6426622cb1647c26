"""The settings of this app."""

from __future__ import annotations

from nexus.core.config import Settings, section, setting


@section
class ForgeSettings(Settings):
    """Connected forges."""

    forge_poll_seconds: int = setting(
        60,
        "How often (s) a connected forge is asked what changed, besides the calls of its webhook.",
        minimum=5,
        maximum=86_400,
    )
