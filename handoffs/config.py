"""The settings of this app."""

from __future__ import annotations

from nexus.core.config import Settings, section, setting


@section
class HandoffSettings(Settings):
    """How long a claim lasts, how many handoffs may wait, and what a check may take."""

    limit_open_handoffs: int = setting(
        0, "Handoffs of one creator that nobody has taken; 0: no limit.", minimum=0, maximum=100_000
    )
    handoff_lease_ttl_seconds: int = setting(300, "Lease (s) of a claimed handoff.", minimum=1)
    handoff_check_memory_mib: int = setting(
        4096,
        "Memory (MiB) that one process of a check may take for its data; 0: no limit.",
        minimum=0,
        maximum=1_048_576,
    )
