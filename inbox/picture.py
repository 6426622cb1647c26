"""What is looked at for a page or a command, read once and shared by all that ask what needs a person."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

from coordination.presence import AgentState, agent_states
from inbox.monitoring import Inbox, inboxes

T = TypeVar("T")


class Picture:
    """The team at a moment."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment
        self._read: dict[Callable[[Picture], Any], Any] = {}

    @cached_property
    def agents(self) -> list[AgentState]:
        """Every agent with its presence."""
        return agent_states(self.moment)

    @cached_property
    def inboxes(self) -> dict[str, Inbox]:
        """Every inbox that holds mail which is not done with, by agent."""
        return inboxes(self.moment)

    def once(self, read: Callable[[Picture], T]) -> T:
        """What `read` makes of it; read once, however many ask."""
        if read not in self._read:
            self._read[read] = read(self)
        found: T = self._read[read]
        return found
