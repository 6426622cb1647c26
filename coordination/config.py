"""Settings of the coordination app."""

from __future__ import annotations

from nexus.core.config import Settings, section, setting


def pairs(text: str) -> list[tuple[str, str]]:
    """Return the paths in containers and those here that a text maps them to, inner directories first. Raises
    ValueError."""
    found = []
    for each in text.split(",") if text else ():
        inside, equals, here = (part.strip() for part in each.partition("="))
        if not equals or not inside.startswith("/") or not here.startswith("/"):
            raise ValueError(
                "use pairs of absolute paths, separated by commas, such as /workspaces/shop=/home/ann/shop"
            )
        found.append((inside.rstrip("/"), here.rstrip("/")))
    return sorted(found, key=lambda pair: -len(pair[0]))


@section
class CoordinationSettings(Settings):
    """Settings of presence, trust and limits of the event log."""

    project_paths: str = setting(
        "",
        "Where the projects of agents in containers are on the hub's machine: pairs such as "
        "/workspaces/shop=/home/ann/shop, separated by commas.",
        check=pairs,
    )
    trust_mode: str = setting(
        "open",
        "strict: sensitive operations need session_id and session_secret. open: these are checked only if they are "
        "given.",
        choices=("open", "strict"),
    )
    session_stale_ttl_seconds: int = setting(60, "A session without a heartbeat for this long (s) is stale.", minimum=1)
    presence_ttl_seconds: int = setting(
        1800, "Broadcasts reach an agent whose last heartbeat is at most this old (s).", minimum=1
    )
    session_reap_seconds: int = setting(86_400, "A session without a heartbeat for longer (s) is closed.", minimum=1)
    max_event_limit: int = setting(1000, "The largest page of event_get and event_wait.", minimum=1)
    max_shared_md_events: int = setting(1000, "The largest limit_events of shared_md_render.", minimum=1)
    retention_events_keep_days: int = setting(
        30, "Events older than this (days) may be pruned.", minimum=0, maximum=36_500
    )
    retention_closed_sessions_keep_days: int = setting(
        7, "Sessions closed for longer than this (days) may be pruned.", minimum=0, maximum=36_500
    )
