"""The toolset of the bus: the operations of coordination, inbox, handoffs and their maintenance, answered in the
envelope."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nexus.core.operations import runner
from nexus.core.operations.caller import Caller
from nexus.core.operations.registry import Toolset
from nexus.core.operations.replies import Body, Data, packaged

COORDINATION = Toolset(
    "coordination",
    "Identities and presence, an inbox with at-least-once delivery, handoffs that one agent wins, artifacts, the event "
    "log.",
    default=True,
    instructions=packaged("coordination", "instructions"),
)
operation = COORDINATION.operation


def run(caller: Caller, name: str, arguments: Mapping[str, Any] | None) -> Body:
    """Call an operation and return its envelope; blocks while a waiting operation waits."""
    return runner.run(COORDINATION, caller, name, arguments)


async def arun(caller: Caller, name: str, arguments: Mapping[str, Any] | None) -> Body:
    """Call `run` from an event loop."""
    return await runner.arun(COORDINATION, caller, name, arguments)


def call(caller: Caller, name: str, arguments: Mapping[str, Any] | None) -> Data:
    """Call an operation and return its data. Raises its error."""
    return runner.perform(COORDINATION, caller, name, arguments).result()
