"""Events of reservations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from coordination.log.emit import emit
from nexus.core.clock import iso
from nexus.reservations.models import STREAM, Reservation

NAMED = 20  # patterns that an event or a message names; the rest is counted


def by_holder(reservations: Iterable[Reservation]) -> list[list[Reservation]]:
    """Group reservations by agent and workspace."""
    grouped: dict[tuple[str, str], list[Reservation]] = {}
    for reservation in reservations:
        grouped.setdefault((reservation.workspace_id, reservation.agent_id), []).append(reservation)
    return list(grouped.values())


def emit_event(
    type: str, actor: str | None, reservations: Sequence[Reservation], moment: datetime, **more: Any
) -> None:
    """Append an event about reservations of one agent in one workspace."""
    first = reservations[0]
    ends = max(reservation.expires_at for reservation in reservations)
    about = {"expires_at": iso(ends), "handoff_id": first.handoff_id, "task_id": first.task_id, **more}
    emit(
        workspace_id=first.workspace_id,
        stream=STREAM,
        type=f"file.{type}",
        actor=actor,
        payload={
            "patterns": [reservation.pattern for reservation in reservations[:NAMED]],
            "count": len(reservations),
            **{name: value for name, value in about.items() if value is not None},
        },
        moment=moment,
        handoff_id=first.handoff_id,
    )
