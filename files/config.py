"""The settings of this app."""

from __future__ import annotations

from core.config import Settings, section, setting

LEAST_SECONDS, MOST_SECONDS = 10, 86_400  # of a reservation's lease


@section
class FilesSettings(Settings):
    """Reservations of files."""

    file_reservation_ttl_seconds: int = setting(
        900,
        "How long (s) a reservation of files lasts that names no time, from its holder's latest act.",
        minimum=LEAST_SECONDS,
        maximum=MOST_SECONDS,
    )

    retention_ended_file_reservations_keep_days: int = setting(
        90,
        "Reservations of files that ended longer ago than this (days) may be pruned.",
        minimum=0,
        maximum=36_500,
    )
