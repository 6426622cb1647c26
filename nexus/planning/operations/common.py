"""Helpers that the operations of planning share."""

from __future__ import annotations

from functools import partial

from coordination.parameters import IN_WORKSPACE, ProjectRoot
from nexus.core.domain import domain
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import Params
from nexus.planning.errors import PlanningCode
from nexus.planning.services.changes import Actor

READING = (
    *IN_WORKSPACE,
    PlanningCode.STATE_FILE_INVALID,
    PlanningCode.STATE_UNAVAILABLE,
    PlanningCode.STATE_BUSY,
)
CHANGING = (*READING, Code.CONTENT_TOO_LARGE)


class OfProject(Params):
    project_root: ProjectRoot


def actor(caller: Caller, operation: str, **ids: str) -> Actor:
    """Return who acts. An operator's act is recorded in the transaction that does it."""
    recorded = partial(domain().acting, caller.operator, operation, **ids)
    return Actor(caller.agent_id, recorded, operator=caller.operator is not None)
