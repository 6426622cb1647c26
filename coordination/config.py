"""Settings of the coordination app."""

from __future__ import annotations

from nexus.core.config import Settings, section, setting


@section
class CoordinationSettings(Settings):
    """Settings of presence, trust and limits of the event log."""

    trust_mode: str = setting(
        "open",
        "strict asks for session_id and session_secret on sensitive verbs; open checks them when given.",
        choices=("open", "strict"),
    )
    session_stale_ttl_seconds: int = setting(60, "A heartbeat older than this (s) reads as stale.", minimum=1)
    presence_ttl_seconds: int = setting(
        1800, "A session counts as present while its heartbeat is this fresh (s).", minimum=1
    )
    session_reap_seconds: int = setting(86_400, "Sessions silent for longer (s) are closed in passing.", minimum=1)
    max_event_limit: int = setting(1000, "Ceiling for the page size of event_get and event_wait.", minimum=1)
    max_shared_md_events: int = setting(1000, "Ceiling for limit_events of shared_md_render.", minimum=1)
    retention_events_keep_days: int = setting(
        30, "Events older than this (days) may be pruned.", minimum=0, maximum=36_500
    )
    retention_closed_sessions_keep_days: int = setting(
        7, "Sessions closed for longer than this (days) may be pruned.", minimum=0, maximum=36_500
    )
