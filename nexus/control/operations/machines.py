"""Operations on the machines that run the pool's agents."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from nexus.control import selectors
from nexus.control.agents import machines
from nexus.control.agents.rows import MachineRow, machine_row
from nexus.control.toolset import operation
from nexus.core.operations.caller import Caller, operator_behind
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import Id, Nothing, Params
from nexus.core.operations.registry import OPERATORS_ONLY


class OfMachine(Params):
    machine: Annotated[Id, Field(description="A machine, by its name.")]


class Machines(TypedDict):
    machines: list[MachineRow]


@operation(Nothing, Code.VALIDATION_ERROR, guards=(OPERATORS_ONLY,), tool=False, read_only=True)
def pool_list_machines(p: Nothing, caller: Caller) -> Machines:
    """List the machines that run agents, with their load and their runs."""
    return {"machines": [machine_row(work) for work in selectors.machines()]}


REFUSALS = (Code.VALIDATION_ERROR, Code.NOT_FOUND)


@operation(OfMachine, *REFUSALS, guards=(OPERATORS_ONLY,), tool=False, idempotent=True)
def pool_drain_machine(p: OfMachine, caller: Caller) -> MachineRow:
    """Let a machine begin no more runs and take no new agents. Runs that have begun may end."""
    return _drain(p, caller, draining=True)


@operation(OfMachine, *REFUSALS, guards=(OPERATORS_ONLY,), tool=False, idempotent=True)
def pool_undrain_machine(p: OfMachine, caller: Caller) -> MachineRow:
    """Let a machine begin runs and take agents again."""
    return _drain(p, caller, draining=False)


def _drain(p: OfMachine, caller: Caller, *, draining: bool) -> MachineRow:
    machines.drain(p.machine, operator_behind(caller), draining=draining)
    (work,) = selectors.machines(p.machine)
    return machine_row(work)
