"""The settings of this app."""

from __future__ import annotations

from core.config import Settings, section, setting


@section
class HandoffSettings(Settings):
    """How long a claim lasts, and how many handoffs wait."""

    limit_open_handoffs: int = setting(
        0, "Handoffs of one creator that wait to be taken; 0: no limit.", minimum=0, maximum=100_000
    )
    handoff_lease_ttl_seconds: int = setting(300, "Lease (s) of a claimed handoff.", minimum=1)
