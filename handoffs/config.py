"""The settings of this app."""

from __future__ import annotations

from core.config import Settings, section, setting


@section
class HandoffSettings(Settings):
    """How long a claim lasts, and when work that nobody takes needs a person."""

    handoff_lease_ttl_seconds: int = setting(300, "Lease (s) of a claimed handoff.", minimum=1)
    handoff_untaken_after_seconds: int = setting(
        600, "A handoff that lies for longer (s), although somebody may take it, needs a person.", minimum=1
    )
    handoff_renew_leases: bool = setting(
        True, "Whether a claim that still runs is renewed by its holder's heartbeats and acts."
    )
