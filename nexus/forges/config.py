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
    retention_forge_deliveries_keep_days: int = setting(
        30,
        "Ids of a forge's webhook calls older than this (days) may be pruned; the same call after that counts anew.",
        minimum=1,
        maximum=36_500,
    )
