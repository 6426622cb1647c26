"""The planned tasks that handoffs carry. The app that owns the tasks registers itself here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

from coordination.services.workspaces import ProjectDirectory
from nexus.core.operations.errors import not_found


class Work(Protocol):
    """Tasks, which agents know by their number in the open cycle, and rows by their key."""

    STREAM: str  # of the log: its events tell of tasks that can begin

    def refresh(self, project: ProjectDirectory) -> None:
        """Read what others wrote of the tasks, before the transaction in which a handoff's task changes."""

    def find(self, workspace_id: str, task_id: int) -> str:
        """Return the key of a task of the open cycle. Raises NOT_FOUND."""

    def ready(self, workspace_id: str) -> set[str]:
        """Return the keys of the tasks that could begin."""

    def started(self, task_key: str, project: ProjectDirectory, agent_id: str, moment: datetime) -> None:
        """Start the task of a handoff that an agent claimed. Called inside a transaction."""

    def completed(self, task_key: str, project: ProjectDirectory, agent_id: str, moment: datetime) -> None:
        """Complete the task of a completed handoff. Called inside a transaction."""

    def returned(
        self, task_key: str, project: ProjectDirectory, holder: str | None, actor: str | None, moment: datetime
    ) -> None:
        """Give back the task of a handoff whose claim ended without a result. Called inside a transaction."""


_registered: list[Callable[[], Any]] = []


def register(work: Callable[[], Any]) -> None:
    """Register the app that owns the tasks; it is loaded with the first handoff that carries one."""
    _registered[:] = [work]


def work() -> Work:
    """Return the registered tasks. Raises NOT_FOUND where no app registered any."""
    if not _registered:
        raise not_found("system of tasks", "planning")
    found: Work = _registered[0]()
    return found


def streams() -> set[str]:
    """Return the streams whose events say which tasks can begin."""
    return {work().STREAM} if _registered else set()
