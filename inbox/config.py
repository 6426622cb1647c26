"""The settings of this app."""

from __future__ import annotations

from core.config import Settings, section, setting


@section
class InboxSettings(Settings):
    """How long a pulled delivery is leased, and an acknowledged one kept."""

    inbox_lease_ttl_seconds: int = setting(300, "Default lease (s) of pulled deliveries.", minimum=1)
    retention_read_deliveries_keep_days: int = setting(
        14, "Acknowledged deliveries older than this (days) may be pruned.", minimum=0, maximum=36_500
    )
