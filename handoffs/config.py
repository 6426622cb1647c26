"""The settings of this app."""

from __future__ import annotations

from core.config import Settings, section, setting


@section
class HandoffSettings(Settings):
    """How long a claim lasts."""

    handoff_lease_ttl_seconds: int = setting(300, "Lease (s) of a claimed handoff.", minimum=1)
    handoff_renew_leases: bool = setting(
        True, "Whether a claim that still runs is renewed by its holder's heartbeats and acts."
    )
