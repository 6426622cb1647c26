"""Parts that the pool's operations share."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from nexus.control.config import ControlSettings
from nexus.control.errors import ControlCode
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import NexusError
from nexus.core.operations.parameters import Id
from nexus.core.operations.registry import Guard, Operation

AgentId = Annotated[Id, Field(description="An agent of the pool.")]
RequestId = Annotated[Id, Field(description="Yours, for cancelling and for safe retries.")]


def must_run() -> None:
    """Check that the pool runs. Raises POOL_OFF."""
    if not ControlSettings.current().control:
        raise NexusError(
            ControlCode.POOL_OFF,
            "No pool runs here: start the server with --control. A process beside it, such as an agent's own server "
            "over stdio, learns of its pool by NEXUS_CONTROL=true.",
        )


def _check(operation: Operation[Any], params: Any, caller: Caller) -> None:
    must_run()


IN_POOL = Guard("the pool's agents on what they created, and administrators", _check)
