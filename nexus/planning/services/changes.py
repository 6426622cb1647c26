"""What every verb of planning begins with: who acts, and one transaction that leaves rows and files in step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from coordination.services import agents, workspaces
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.planning import mirror
from nexus.planning.mirror import Change


@dataclass(frozen=True)
class Actor:
    """Who acts: an agent's id where the connection has one; what is done inside `recorded`, in a transaction, is noted
    where an operator does it."""

    name: str | None = None
    recorded: Callable[[], AbstractContextManager[object]] = nullcontext
    operator: bool = False

    @property
    def signature(self) -> str | None:
        """What a decision is signed with: an agent's id, that of operators, or nothing for a nameless process."""
        return OPERATOR_AGENT if self.operator and self.name is None else self.name


@contextmanager
def changing(project_root: str, actor: Actor) -> Iterator[Change]:
    """A change of a project's plan, by somebody."""
    place = workspaces.locate(project_root)
    with mirror.changing(place) as change:
        with actor.recorded():
            yield change
        if actor.name is not None:
            agents.touch(actor.name, change.moment)
