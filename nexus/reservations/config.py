"""Settings of the reservations app."""

from __future__ import annotations

from nexus.core.config import Settings, section, setting

LEAST_SECONDS, MOST_SECONDS = 10, 86_400  # of a reservation's lease


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


@section
class FilesSettings(Settings):
    """Settings of reservations."""

    file_reservation_ttl_seconds: int = setting(
        900,
        "How long (s) a reservation without a time of its own lasts after its holder's latest act.",
        minimum=LEAST_SECONDS,
        maximum=MOST_SECONDS,
    )

    retention_ended_file_reservations_keep_days: int = setting(
        90,
        "Reservations of files that ended longer ago than this (days) may be pruned.",
        minimum=0,
        maximum=36_500,
    )
