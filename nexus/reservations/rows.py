"""The rows of reservations as every transport returns them."""

from __future__ import annotations

from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from nexus.core.clock import iso
from nexus.core.operations.parameters import Time, one_of
from nexus.reservations.models import Outcome, Reservation
from nexus.reservations.selectors import Conflict


class ReservationRow(TypedDict):
    """A reservation, held or ended."""

    reservation_id: str
    pattern: Annotated[str, Field(description="As gitignore has it, relative to the project.")]
    exclusive: bool
    agent_id: Annotated[str, Field(description="Who holds it, or held it.")]
    reason: str | None
    handoff_id: str | None
    task_id: int | None
    created_at: Time
    expires_at: Annotated[Time, Field(description="When it ends without an act of its holder.")]
    asked_by: NotRequired[Annotated[list[str], Field(description="Who asked for the files.")]]
    released_at: NotRequired[Annotated[Time, Field(description="When it ended.")]]
    outcome: NotRequired[Annotated[str, one_of(Outcome.values, "How it ended.")]]


class RefusedRow(TypedDict):
    """A path that was not reserved, and the reservation in its way."""

    path: Annotated[str, Field(description="The pattern asked for.")]
    held: ReservationRow


def reservation_row(reservation: Reservation) -> ReservationRow:
    """Return the row of a reservation."""
    row: ReservationRow = {
        "reservation_id": reservation.reservation_id,
        "pattern": reservation.pattern,
        "exclusive": reservation.exclusive,
        "agent_id": reservation.agent_id,
        "reason": reservation.reason,
        "handoff_id": reservation.handoff_id,
        "task_id": reservation.task_id,
        "created_at": iso(reservation.created_at),
        "expires_at": iso(reservation.expires_at),
    }
    if reservation.asked_by:
        row["asked_by"] = reservation.asked_by
    if reservation.released_at is not None and reservation.outcome is not None:
        row["released_at"], row["outcome"] = iso(reservation.released_at), reservation.outcome
    return row


def refused_row(conflict: Conflict) -> RefusedRow:
    """Return the row of a conflict."""
    return {"path": conflict.pattern, "held": reservation_row(conflict.held)}
