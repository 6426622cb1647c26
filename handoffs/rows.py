"""The rows of this app as every transport shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from core.clock import iso
from core.operations.shapes import Time, one_of
from handoffs import lifecycle
from handoffs.models import Handoff, HandoffStatus

HandoffState = Annotated[str, one_of(HandoffStatus)]


class HandoffRow(TypedDict):
    handoff_id: str
    workspace_id: str
    title: str
    status: HandoffState
    from_agent_id: str
    target: dict[str, Any]
    visibility: str
    claimed_by: str | None
    lease_expires_at: Time | None
    payload: str | None
    task_id: Annotated[int | None, Field(description="The planned task it carries.")]
    result: str | None
    rejected_reason: str | None
    created_at: Time
    updated_at: Time


def handoff_row(handoff: Handoff, moment: datetime) -> HandoffRow:
    """As it counts at `moment`: a claim that has lapsed is no claim, whether or not that was recorded yet."""
    open_again = lifecycle.lapsed(lease_expires_at=handoff.lease_expires_at, now=moment)
    return {
        "handoff_id": handoff.handoff_id,
        "workspace_id": handoff.workspace_id,
        "title": handoff.title,
        "status": HandoffStatus.OPEN.value if open_again else handoff.status,
        "from_agent_id": handoff.from_agent_id,
        "target": handoff.target,
        "visibility": handoff.visibility,
        "claimed_by": None if open_again else handoff.claimed_by,
        "lease_expires_at": None if open_again else iso(handoff.lease_expires_at),
        "payload": handoff.payload,
        "task_id": handoff.task_id,
        "result": handoff.result,
        "rejected_reason": handoff.rejected_reason,
        "created_at": iso(handoff.created_at),
        "updated_at": iso(handoff.updated_at),
    }


class OfferRow(TypedDict):
    """A handoff that may be claimed."""

    handoff_id: str
    title: str
    status: HandoffState
    target: dict[str, Any]
    visibility: str
    from_agent_id: str
    payload: str | None
    task_id: NotRequired[int]
    created_at: Time


def offer_row(handoff: Handoff) -> OfferRow:
    row: OfferRow = {
        "handoff_id": handoff.handoff_id,
        "title": handoff.title,
        "status": HandoffStatus.OPEN.value,  # also where a lease has lapsed and nobody recorded it yet
        "target": handoff.target,
        "visibility": handoff.visibility,
        "from_agent_id": handoff.from_agent_id,
        "payload": handoff.payload,
        "created_at": iso(handoff.created_at),
    }
    if handoff.task_id is not None:
        row["task_id"] = handoff.task_id
    return row
