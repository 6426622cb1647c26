"""What core needs of the domain above it: one object, registered when the apps are ready."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from django.db.models import Model

    from nexus.core.operations.registry import Operation


class Domain(Protocol):
    """Credentials, the operators' trail, the stored settings, and the log of events."""

    @property
    def log(self) -> type[Model]:
        """The model of the events, keyed by their ids."""

    def credential_of_key(self, key: str) -> str:
        """What a connection keeps of its API key, to be asked for again; it tells nothing of the key."""

    def agent_of_credential(self, credential: str) -> str | None:
        """The agent that a credential binds to; None when its key is unknown or deactivated."""

    def toolsets_of(self, agent_id: str) -> Sequence[str] | None:
        """The names of the toolsets that are chosen for an agent; None when none are."""

    def check_allowed(self, agent_id: str, operation: Operation[Any]) -> None:
        """Raises NOT_ALLOWED where an operator keeps an agent from a verb; no query while none is kept from any."""

    def acting(self, operator: str | None, operation: str, **ids: str) -> AbstractContextManager[dict[str, str]]:
        """Inside the caller's transaction: append to the log that an operator, where it is one, used an agent's verb,
        unless the block fails. It is about `ids`, to which the block may add."""

    def refresh_settings(self) -> None:
        """Take over what other processes stored, and end what a wrong clock prolonged; cheap when it was done a moment
        ago."""

    def newest_event_id(self) -> int:
        """The id of the newest event; 0 when there is none."""

    def keys_of(self, event: Any) -> Collection[Hashable]:
        """Under which keys those who wait look out for an event."""

    def events_after(self, event_id: int, limit: int) -> Sequence[Any]:
        """The next events of the log, in order."""


_registered: list[Domain] = []


def register(domain: Domain) -> None:
    """Name the domain of this process."""
    _registered[:] = [domain]


def domain() -> Domain:
    """The domain of this process."""
    return _registered[0]
