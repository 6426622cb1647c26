"""The operation on the machines that run the pool's agents."""

from __future__ import annotations

from typing_extensions import TypedDict

from nexus.control import selectors
from nexus.control.agents.rows import MachineRow, machine_row
from nexus.control.toolset import operation
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import Nothing
from nexus.core.operations.registry import OPERATORS_ONLY


class Machines(TypedDict):
    machines: list[MachineRow]


@operation(Nothing, Code.VALIDATION_ERROR, requires=(OPERATORS_ONLY,), tool=False, read_only=True)
def pool_list_machines(p: Nothing, caller: Caller) -> Machines:
    """List the machines that run agents, with their load and their runs."""
    return {"machines": [machine_row(work) for work in selectors.machines()]}
