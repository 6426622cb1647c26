"""The toolsets of the pool, whose operations JSON-RPC serves by their short names, and of questions to people."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from nexus.control.config import ControlSettings
from nexus.control.errors import ControlCode
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import NexusError
from nexus.core.operations.parameters import Id
from nexus.core.operations.registry import Operation, Requirement, Toolset
from nexus.core.operations.replies import packaged

CONTROL = Toolset(
    "control",
    "A pool of agents that Nexus runs: create one with a permission preset, send it work, watch it, cancel, end it.",
    instructions=packaged("nexus.control", "instructions"),
    modules=(  # in the order in which agents see them; not loaded for most agents
        "nexus.control.operations.agents",
        "nexus.control.operations.pool",
        "nexus.control.operations.runs",
        "nexus.control.operations.budgets",
        "nexus.control.operations.machines",
        "nexus.control.operations.permissions",
        "nexus.control.operations.questions",
        "nexus.control.operations.worktrees",
        "nexus.control.operations.reviews",
    ),
)
operation = CONTROL.operation
QUESTIONS = Toolset(  # for the many agents that ask a person and need nothing else of the pool
    "questions",
    "Ask a person, in words or for a permission, and wait for the answer.",
    instructions=packaged("nexus.control", "questions"),
    modules=("nexus.control.operations.questions",),
)
PREFIX = "pool_"  # of the operations' names; JSON-RPC omits it
CONTRACT = {"create_agent": {"worktree": False}}  # defaults of its methods: an agent works in its `cwd` itself
AgentId = Annotated[Id, Field(description="An agent of the pool.")]
RequestId = Annotated[Id, Field(description="Your own id, for cancelling and for safe retries.")]


def must_run() -> None:
    """Check that the pool runs. Raises POOL_OFF."""
    if not ControlSettings.current().control:
        raise NexusError(
            ControlCode.POOL_OFF,
            "No pool runs here: start the server with --control. If it has that, set NEXUS_CONTROL=true for this "
            "process, too: for a command, or an agent's own server over stdio.",
        )


def _check(operation: Operation[Any], params: Any, caller: Caller) -> None:
    must_run()


IN_POOL = Requirement("the pool's agents on what they created, and operators", _check)
