"""The settings of this app."""

from __future__ import annotations

from nexus.core.config import Settings, section, setting


@section
class InboxSettings(Settings):
    """How long a pull leases a delivery, how long an acknowledged one is kept, and the limits on sending."""

    inbox_lease_ttl_seconds: int = setting(300, "Default lease (s) of pulled deliveries.", minimum=1)
    limit_messages_per_minute: int = setting(
        0, "Messages that an agent may send within a minute; 0: no limit.", minimum=0, maximum=100_000
    )
    limit_recipients: int = setting(0, "Agents that a message may go to; 0: no limit.", minimum=0, maximum=100_000)
    limit_unread: int = setting(
        0,
        "Unread messages that an inbox accepts; 0: no limit. Notices are always accepted.",
        minimum=0,
        maximum=1_000_000,
    )
    retention_read_deliveries_keep_days: int = setting(
        14, "Acknowledged deliveries older than this (days) may be pruned.", minimum=0, maximum=36_500
    )
