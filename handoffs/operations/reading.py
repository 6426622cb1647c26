"""Operations that read: what an agent holds and owes, and one handoff in full."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from coordination import debts
from coordination.debts import DebtRow, debt_row
from coordination.parameters import IN_WORKSPACE, ProjectRoot
from coordination.services import workspaces
from coordination.toolset import operation
from handoffs import selectors, services
from handoffs.models import Handoff
from handoffs.operations.common import OF_ONE, HandoffRef, remarks_of
from handoffs.rows import HandoffRow, HandoffState, RemarkRow, handoff_row
from nexus.core.clock import iso, now
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import Id, Params
from nexus.core.operations.schemas import Time


class HandoffMine(Params):
    agent_id: Id
    project_root: Annotated[ProjectRoot | None, Field(description="Only this project's.")] = None


class MyHandoff(TypedDict):
    handoff_id: str
    title: str
    status: HandoffState
    from_agent_id: str
    project_root: str
    lease_expires_at: Time | None
    lease_seconds_left: int
    blocked_reason: str | None


class Mine(TypedDict):
    handoffs: list[MyHandoff]
    owes: Annotated[list[DebtRow], Field(description="What else you owe: mail, tasks, verdicts, answers.")]


@operation(HandoffMine, *IN_WORKSPACE, Code.NOT_OWNER, acts_as="agent_id", read_only=True)
def handoff_mine(p: HandoffMine, caller: Caller) -> Mine:
    """What you hold, and what else you owe."""
    moment = now()
    workspace_id = None if p.project_root is None else workspaces.locate(p.project_root).workspace_id
    held = selectors.held_by(p.agent_id, moment, workspace_id=workspace_id)
    owes = [debt for debt in debts.owed_by(p.agent_id) if debt.kind != "handoff"]
    return {
        "handoffs": [_mine(handoff, moment) for handoff in held],
        "owes": [debt_row(debt) for debt in owes if workspace_id in (None, debt.workspace_id)],
    }


def _mine(handoff: Handoff, moment: datetime) -> MyHandoff:
    assert handoff.lease_expires_at is not None, "what is held has a lease"
    return {
        "handoff_id": handoff.handoff_id,
        "title": handoff.title,
        "status": str(handoff.status),
        "from_agent_id": handoff.from_agent_id,
        "project_root": handoff.workspace.root_realpath,
        "lease_expires_at": iso(handoff.lease_expires_at),
        "lease_seconds_left": int((handoff.lease_expires_at - moment).total_seconds()),
        "blocked_reason": handoff.blocked_reason,
    }


class WholeHandoff(HandoffRow):
    remarks: Annotated[list[RemarkRow], Field(description="Late results, returned ones, and why they were.")]


@operation(HandoffRef, *OF_ONE, acts_as="agent_id", read_only=True)
def handoff_get(p: HandoffRef, caller: Caller) -> WholeHandoff:
    """One handoff with its status, claimant, payload, outcome and remarks."""
    handoff = services.get(project_root=p.project_root, handoff_id=p.handoff_id, agent_id=p.agent_id)
    return {**handoff_row(handoff, now()), "remarks": remarks_of(handoff)}
