"""What export, retention and doctor need of reservations: kinds, retention rules and checks."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from django.db.models import QuerySet

from nexus.core.contributions import DoctorCheck, ExportKind, Finding, RetentionRule, rows_in_workspace
from nexus.core.operations.errors import NexusError
from nexus.reservations.guard import hooks
from nexus.reservations.guard.repository import find_repository
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


NAMED = 3  # hooks in one finding
ROOTS = """
    SELECT DISTINCT w.root_realpath FROM workspaces w JOIN file_reservations r ON r.workspace_id = w.workspace_id
    WHERE r.released_at IS NULL ORDER BY w.root_realpath
"""


def _guards(examination: Any) -> Iterator[Finding]:
    """Check that git can use the repositories with held files, and runs all hooks of a guard that was installed."""
    roots = examination.rows(ROOTS) if "file_reservations" in examination.tables() else []
    for (root,) in roots:
        if not Path(root).is_dir() or find_repository(root) is None:
            continue
        again = f"Run `nexus guard install --repo {shlex.quote(root)}`, which says what to do."
        try:
            where = hooks.hooks_directory(root)
            lacking = [str(hook.file) for hook in where.hooks if hook.state not in hooks.GUARDING]
        except NexusError as error:
            yield Finding(error.message.removesuffix(hooks.UNCHANGED), f"Mend that. {again}", note=True)
            continue
        if where.is_left_to_others and where.ours:
            yield Finding(f"git does not run the guard's hooks in {root}: {where.leads}.", again, note=True)
        elif len(lacking) < len(where.hooks):  # it was installed
            if lacking:
                more = f" and {len(lacking) - NAMED} more" if len(lacking) > NAMED else ""
                yield Finding(f"The guard lacks {', '.join(lacking[:NAMED])}{more}.", again, note=True)
            for why in where.left_out:
                yield Finding(why, "All commits there pass the guard. Let git use its own hooks there.", note=True)


CHECKS = (DoctorCheck("reservations of files", _reservations), DoctorCheck("commit guard", _guards))


def _ended(horizon: datetime) -> QuerySet[Reservation]:
    return Reservation.objects.filter(released_at__lt=horizon).order_by("released_at")


RETENTION_RULES = (RetentionRule("ended_file_reservations", _ended),)
