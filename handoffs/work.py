"""The planned work that handoffs carry: the app whose tasks they are registers itself here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

from coordination.services.workspaces import ProjectDirectory
from nexus.core.operations.errors import not_found


class Work(Protocol):
    """Tasks, known to agents by their number in the cycle that is open, and for good by their key."""

    STREAM: str  # of the log: its events tell of tasks that can begin

    def refresh(self, place: ProjectDirectory) -> None:
        """Before the transaction in which a handoff's task changes: what others wrote of the tasks is taken in."""

    def find(self, workspace_id: str, task_id: int) -> str:
        """The key of a task of the open cycle. Raises NOT_FOUND."""

    def ready(self, workspace_id: str) -> set[str]:
        """The keys of the tasks that could begin."""

    def started(self, task_key: str, place: ProjectDirectory, agent_id: str, moment: datetime) -> None:
        """Inside a transaction: an agent claimed the handoff that carries it."""

    def completed(self, task_key: str, place: ProjectDirectory, agent_id: str, moment: datetime) -> None:
        """Inside a transaction: the handoff was completed."""

    def returned(
        self, task_key: str, place: ProjectDirectory, holder: str | None, actor: str | None, moment: datetime
    ) -> None:
        """Inside a transaction: the claim of `holder` ended without a result."""


_registered: list[Callable[[], Any]] = []


def register(work: Callable[[], Any]) -> None:
    """Name what has the tasks; it is loaded with the first handoff that carries one."""
    _registered[:] = [work]


def work() -> Work:
    """What has the tasks. Raises NOT_FOUND where nothing does."""
    if not _registered:
        raise not_found("system of tasks", "planning")
    found: Work = _registered[0]()
    return found


def streams() -> set[str]:
    """The streams whose events tell of tasks that can begin."""
    return {work().STREAM} if _registered else set()
