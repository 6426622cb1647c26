"""The settings of this app."""

from __future__ import annotations

from nexus.core.config import Settings, section, setting


@section
class HandoffSettings(Settings):
    """How long a claim lasts, how many handoffs may wait, and after how long idle or owed work needs a person."""

    limit_open_handoffs: int = setting(
        0, "Handoffs of one creator that wait to be taken; 0: no limit.", minimum=0, maximum=100_000
    )
    handoff_lease_ttl_seconds: int = setting(300, "Lease (s) of a claimed handoff.", minimum=1)
    handoff_untaken_after_seconds: int = setting(
        600, "A handoff that lies for longer (s), although somebody may take it, needs a person.", minimum=1
    )
    handoff_renew_leases: bool = setting(
        True, "Whether a claim that still runs is renewed by its holder's heartbeats and acts."
    )
    debt_notice_seconds: int = setting(
        900,
        "Who owes work and does nothing for so long (s) is shown to operators, and those who wait for it are told.",
        minimum=1,
    )
