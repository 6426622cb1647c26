"""Agents that wake by themselves, and the bounds of that."""

from __future__ import annotations

from typing_extensions import TypedDict

from nexus.control.errors import ControlCode
from nexus.control.members import actor_of
from nexus.control.operations.agents import OfAgent
from nexus.control.operations.common import IN_POOL
from nexus.control.toolset import operation
from nexus.control.waking import services
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code
from nexus.core.operations.registry import OPERATORS_ONLY


class Resumed(TypedDict):
    agent_id: str
    resumed: bool


@operation(
    OfAgent,
    Code.VALIDATION_ERROR,
    Code.NOT_FOUND,
    ControlCode.POOL_OFF,
    guards=(OPERATORS_ONLY, IN_POOL),
    tool=False,
    idempotent=True,
)
def pool_resume(p: OfAgent, caller: Caller) -> Resumed:
    """Let an agent be woken again that a bound keeps from it: chains of turns, and their tokens, count from here."""
    services.resume(p.agent_id, actor_of(caller).name)
    return {"agent_id": p.agent_id, "resumed": True}
