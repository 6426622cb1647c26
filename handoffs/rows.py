"""The rows of this app as every transport shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from coordination.provenance import Behalf, FromProof, OnBehalfOf, provenance_row
from handoffs import selectors
from handoffs.lifecycle import serialize_verifier
from handoffs.models import Handoff, HandoffStatus, Remark, RemarkKind
from nexus.core.clock import iso
from nexus.core.operations.parameters import Time, one_of

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
    claimed_at: Time | None
    claim_epoch: Annotated[int, Field(description="Grows with each claim; steps of a former one are refused by it.")]
    lease_expires_at: Time | None
    blocked_reason: str | None
    deadline_at: Annotated[Time | None, Field(description="When it expires if nobody claims it.")]
    verifier: Annotated[Any, Field(description="Who accepts the result, as handoff_create takes it.")]
    acceptance_criteria: list[str] | None
    trace_id: str | None
    from_proof: NotRequired[FromProof]
    payload: str | None
    task_id: Annotated[int | None, Field(description="The planned task it carries.")]
    result: str | None
    rejected_reason: str | None
    created_at: Time
    updated_at: Time


def handoff_row(handoff: Handoff, moment: datetime) -> HandoffRow:
    """Return the row of a handoff with its state at `moment`: a claim whose lease expired counts as open."""
    handoff = selectors.with_current_status(handoff, moment)
    return {
        "handoff_id": handoff.handoff_id,
        "workspace_id": handoff.workspace_id,
        "title": handoff.title,
        "status": str(handoff.status),
        "from_agent_id": handoff.from_agent_id,
        "target": handoff.target,
        "visibility": handoff.visibility,
        "claimed_by": handoff.claimed_by,
        "claimed_at": iso(handoff.claimed_at),
        "claim_epoch": handoff.claim_epoch,
        "lease_expires_at": iso(handoff.lease_expires_at),
        "blocked_reason": handoff.blocked_reason,
        "deadline_at": iso(handoff.deadline_at),
        "verifier": serialize_verifier(handoff.verifier),
        "acceptance_criteria": handoff.acceptance_criteria,
        "trace_id": handoff.trace_id,
        "payload": handoff.payload,
        "task_id": handoff.task_id,
        "result": handoff.result,
        "rejected_reason": handoff.rejected_reason,
        "created_at": iso(handoff.created_at),
        "updated_at": iso(handoff.updated_at),
        **provenance_row(handoff),  # type: ignore[typeddict-item]  # which holds no other key
    }


class RemarkRow(TypedDict):
    """A remark on a handoff beside its outcome."""

    agent_id: str
    kind: Annotated[str, one_of(RemarkKind)]
    text: str | None
    created_at: Time


def remark_row(remark: Remark) -> RemarkRow:
    return {
        "agent_id": remark.agent_id,
        "kind": remark.kind,
        "text": remark.text,
        "created_at": iso(remark.created_at),
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
    acceptance_criteria: NotRequired[list[str]]
    trace_id: NotRequired[str]
    from_proof: NotRequired[FromProof]
    on_behalf_of: NotRequired[OnBehalfOf]
    created_at: Time


def offer_row(handoff: Handoff, behalf: Behalf) -> OfferRow:
    row: OfferRow = {
        "handoff_id": handoff.handoff_id,
        "title": handoff.title,
        "status": HandoffStatus.OPEN.value,  # also where a lease has lapsed and nobody recorded it yet
        "target": handoff.target,
        "visibility": handoff.visibility,
        "from_agent_id": handoff.from_agent_id,
        "payload": handoff.payload,
        "created_at": iso(handoff.created_at),
        **provenance_row(handoff, behalf),  # type: ignore[typeddict-item]  # which holds no other key
    }
    if handoff.task_id is not None:
        row["task_id"] = handoff.task_id
    if handoff.acceptance_criteria:
        row["acceptance_criteria"] = handoff.acceptance_criteria
    if handoff.trace_id is not None:
        row["trace_id"] = handoff.trace_id
    return row
