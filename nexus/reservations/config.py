"""Settings of the reservations app."""

from __future__ import annotations

from nexus.core.config import Settings, section, setting

LEAST_SECONDS, SECONDS, MOST_SECONDS = 10, 900, 86_400  # of a reservation's lease; without one of its own


@section
class GuardSettings(Settings):
    """Settings of the guard: hooks of git and of clients that keep agents from files that another agent holds."""

    guard_unreadable: str = setting(
        "open",
        "What git's hooks do if they cannot read the store. open: say so and let the commit pass; closed: refuse it.",
        choices=("open", "closed"),
        live=False,  # the hooks get it when they are installed
    )
    guard_edits: str = setting(
        "tell",
        "What a client's hook does before an agent edits a file that another agent holds: off, tell or stop.",
        choices=("off", "tell", "stop"),
        live=False,  # a hook reads it without the store
    )
