"""What operators do about handoffs that are stuck."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from coordination.toolset import operation
from core.clock import now
from core.operations.caller import Caller
from core.operations.errors import Code
from core.operations.parameters import Id, Params
from core.operations.registry import OPERATORS_ONLY
from handoffs import steering
from handoffs.rows import HandoffRow, handoff_row

OF_ONE = (Code.VALIDATION_ERROR, Code.NOT_FOUND, Code.INVALID_TRANSITION)
STEERING = (*OF_ONE, Code.CONTENT_TOO_LARGE)


class Steered(Params):
    handoff_id: Id


class WithReason(Steered):
    reason: Annotated[str | None, Field(description="Why, for the record and whom it concerns.")] = None


@operation(WithReason, *STEERING, guards=(OPERATORS_ONLY,), tool=False)
def handoff_release(p: WithReason, caller: Caller) -> HandoffRow:
    """Take a handoff from its holder, who is told: it is open again, for whomever its target admits."""
    released = steering.release(handoff_id=p.handoff_id, reason=p.reason, operator=_operator(caller))
    return handoff_row(released, now())


@operation(Steered, *OF_ONE, guards=(OPERATORS_ONLY,), tool=False)
def handoff_release_undo(p: Steered, caller: Caller) -> HandoffRow:
    """Give a handoff back to whom it was taken from, within a minute and while nobody acted on it."""
    return handoff_row(steering.undo_release(handoff_id=p.handoff_id, operator=_operator(caller)), now())


class HandoffReassign(WithReason):
    agent_id: Annotated[Id, Field(description="Who alone may take it from now on.")]


@operation(HandoffReassign, *STEERING, guards=(OPERATORS_ONLY,), tool=False)
def handoff_reassign(p: HandoffReassign, caller: Caller) -> HandoffRow:
    """Make an open or held handoff one for an agent alone, who claims it when it is ready; that agent is told, and who
    held it."""
    reassigned = steering.reassign(
        handoff_id=p.handoff_id, agent_id=p.agent_id, reason=p.reason, operator=_operator(caller)
    )
    return handoff_row(reassigned, now())


class HandoffReoffer(Steered):
    agent_id: Annotated[Id | None, Field(description="For this agent alone; else for whom it was.")] = None


@operation(HandoffReoffer, *OF_ONE, guards=(OPERATORS_ONLY,), tool=False)
def handoff_reoffer(p: HandoffReoffer, caller: Caller) -> HandoffRow:
    """Offer the work of a rejected, cancelled or expired handoff once more: a new handoff, which the log links with
    the old one."""
    offered = steering.reoffer(handoff_id=p.handoff_id, agent_id=p.agent_id, operator=_operator(caller))
    return handoff_row(offered, now())


def _operator(caller: Caller) -> str:
    assert caller.operator is not None, "the runner lets operators alone come here"
    return caller.operator
