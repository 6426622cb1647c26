"""Operators' operations on limits and on the operations that agents may use."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from coordination.models import AgentLimits, LimitScope
from coordination.services import limits
from coordination.toolset import operation
from nexus.core.operations.caller import Caller, operator_behind
from nexus.core.operations.errors import Code, invalid
from nexus.core.operations.parameters import MAX_INTEGER, Id, Label, Nothing, Params
from nexus.core.operations.registry import OPERATORS_ONLY
from nexus.core.operations.schemas import one_of

Names = Annotated[list[Label] | None, Field(min_length=1, max_length=1_000)]


class LimitsRow(TypedDict):
    scope: Annotated[str, one_of(LimitScope)]
    name: Annotated[str, Field(description="The agent, or the role.")]
    limits: dict[str, int]
    allowed: list[str] | None
    refused: list[str] | None


class LimitsList(TypedDict):
    for_all: Annotated[dict[str, int], Field(description="The settings limit_…; 0 is no limit.")]
    stored: list[LimitsRow]


@operation(Nothing, guards=(OPERATORS_ONLY,), tool=False, read_only=True)
def limits_list(p: Nothing, caller: Caller) -> LimitsList:
    """Every limit: for all, and what is stored for roles and agents."""
    stored = AgentLimits.objects.order_by("scope", "name")
    return {"for_all": {name: limits.for_all(name) for name in limits.names()}, "stored": [_row(row) for row in stored]}


class LimitsUpdate(Params):
    agent_id: Id | None = None
    role: Label | None = None
    limits: Annotated[
        dict[str, Annotated[int, Field(ge=0, le=MAX_INTEGER)] | None],
        Field(max_length=100, description="By name; 0: none, null: what holds for the role, or for all."),
    ] = {}
    allowed: Annotated[Names, Field(description="Toolsets and verbs that may be used, and no others.")] = None
    refused: Annotated[Names, Field(description="Toolsets and verbs that may not.")] = None

    @property
    def given(self) -> dict[str, Any]:
        """The parameters that the call named."""
        named = {name: getattr(self, name) for name in self.model_fields_set & {"allowed", "refused"}}
        return {"values": self.limits, **named}


@operation(LimitsUpdate, Code.VALIDATION_ERROR, guards=(OPERATORS_ONLY,), tool=False, idempotent=True)
def limits_update(p: LimitsUpdate, caller: Caller) -> LimitsRow:
    """Set what an agent, or whoever has a role, may do at most and which verbs it may use. What is left out keeps its
    value. It counts in every process within about a second."""
    if (p.agent_id is None) == (p.role is None):
        raise invalid("Name an agent_id or a role.", field="agent_id")
    scope = LimitScope.AGENT if p.agent_id is not None else LimitScope.ROLE
    row = limits.update(scope=scope, name=p.agent_id or p.role or "", given=p.given, operator=operator_behind(caller))
    return _row(row)


def _row(row: AgentLimits) -> LimitsRow:
    return {
        "scope": row.scope,
        "name": row.name,
        "limits": row.values,
        "allowed": row.allowed,
        "refused": row.refused,
    }
