"""The beginning of every write of planning: who acts, and one transaction that keeps rows and files in step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from coordination.services import agents, workspaces
from coordination.services.workspaces import ProjectDirectory
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.planning import mirror
from nexus.planning.mirror import Change


@dataclass(frozen=True)
class Actor:
    """Who acts: an agent's id where the connection has one. An operator's act inside `recorded`, in a transaction, is
    recorded in the event log. `later`: whether what is new in the files is of the versions after 0.2."""

    name: str | None = None
    recorded: Callable[[], AbstractContextManager[object]] = nullcontext
    operator: bool = False
    later: bool = False

    @property
    def signature(self) -> str | None:
        """The author of a decision: an agent's id, the operators', or None for a process without a name."""
        return OPERATOR_AGENT if self.operator and self.name is None else self.name

    def names(self, project: ProjectDirectory) -> Collection[str]:
        """Return the names of a writing transaction: those of the workspace and of the agent, whose leases an act
        renews. An operator's has none, because its events are counted."""
        return () if self.operator else (project.workspace_id, *([self.name] if self.name else []))


@contextmanager
def changing(project_root: str, actor: Actor) -> Iterator[Change]:
    """Open a change of a project's plan by an actor."""
    project = workspaces.locate(project_root)
    with mirror.changing(project, names=actor.names(project)) as change:
        with actor.recorded():
            yield change
        if actor.name is not None:
            agents.touch(actor.name, change.moment)
