"""What export, retention and doctor need of reservations: kinds, retention rules and checks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from nexus.core.contributions import DoctorCheck, ExportKind, Finding, RetentionRule, rows_in_workspace
from nexus.reservations.models import Reservation
from nexus.reservations.patterns import extension, normalized, overlap, prefix_key

KINDS = (ExportKind("file_reservation", Reservation, 85, rows_in_workspace(Reservation), agents=("agent_id",)),)

HELD = """
    SELECT workspace_id, place, pattern, exclusive, agent_id, reservation_id, extension
    FROM file_reservations WHERE released_at IS NULL ORDER BY workspace_id, place
"""


def _reservations(examination: Any) -> Iterator[Finding]:
    """Check that every reservation has the index columns of its pattern, and that no two agents hold conflicting
    ones."""
    if "file_reservations" not in examination.tables():
        return
    held = examination.rows(HELD)
    if lost := sum(not _in_place(row[2], row[1], row[6]) for row in held):
        yield Finding(
            f"{lost} reservations of files do not have the index key of their pattern.",
            "They protect nothing. End them with `nexus reservations end`, and let their holders reserve again.",
        )
    for one, other in _at_once(held):
        yield Finding(
            f"{one[4]!r} and {other[4]!r} both hold what {one[2]!r} and {other[2]!r} match, in one project.",
            f"They may edit the same file. End one: `nexus reservations end {max(one[5], other[5])}`.",
        )


def _in_place(pattern: str, where: str, kind: str) -> bool:
    try:
        return normalized(pattern) == pattern and (prefix_key(pattern), extension(pattern)) == (where, kind)
    except ValueError:
        return False


def _at_once(held: list[tuple[Any, ...]]) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Yield pairs of reservations that two agents must not hold together. Each is compared only with those above it."""
    above: list[tuple[Any, ...]] = []
    for row in held:
        above = [other for other in above if other[0] == row[0] and row[1].startswith(other[1])]
        for other in above:
            if other[4] != row[4] and (row[3] or other[3]) and overlap(row[2], other[2]):
                yield other, row
        above.append(row)


CHECKS = (DoctorCheck("reservations of files", _reservations),)


def _ended(horizon: datetime) -> QuerySet[Reservation]:
    return Reservation.objects.filter(released_at__lt=horizon).order_by("released_at")


RETENTION_RULES = (RetentionRule("ended_file_reservations", _ended),)
