"""The settings of this app."""

from __future__ import annotations

from nexus.core.config import Settings, section, setting


@section
class HandoffSettings(Settings):
    """How long a claim lasts, how many handoffs may wait, and after how long idle or owed work needs a person."""

    limit_open_handoffs: int = setting(
        0, "Handoffs of one creator that nobody has taken; 0: no limit.", minimum=0, maximum=100_000
    )
    handoff_lease_ttl_seconds: int = setting(300, "Lease (s) of a claimed handoff.", minimum=1)
    handoff_untaken_after_seconds: int = setting(
        600, "A handoff that nobody took for this long (s), although an agent may, needs a person.", minimum=1
    )
    handoff_renew_leases: bool = setting(True, "Whether the holder's heartbeats and acts renew the lease of a claim.")
    handoff_check_seconds: int = setting(
        900, "The longest time (s) that one check of a result may run.", minimum=1, maximum=86_400
    )
    handoff_check_memory_mib: int = setting(
        4096,
        "Memory (MiB) that one process of a check may take for its data; 0: no limit.",
        minimum=0,
        maximum=1_048_576,
    )
    handoff_check_returns: int = setting(
        3,
        "How often a result whose checks failed returns to its holder; the next one that fails needs a person.",
        minimum=0,
        maximum=100,
    )
    debt_notice_seconds: int = setting(
        900,
        "An agent that owes work and does nothing for so long (s) is shown to operators; those who wait for it get a "
        "message.",
        minimum=1,
    )
