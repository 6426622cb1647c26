"""The interface to the domain above core: one object, registered when the apps are ready."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from django.db.models import Model

    from nexus.core.operations.registry import Operation


ANY = ("any",)  # in a key, a part that may have any value; a tuple, so that no text equals it


class Domain(Protocol):
    """Credentials, the audit of operators' calls, the stored settings, and the event log."""

    @property
    def log(self) -> type[Model]:
        """The model of the events, keyed by their ids."""

    def credential_of_key(self, key: str) -> str:
        """Return what a connection keeps to verify its API key again; it does not reveal the key."""

    def agent_of_credential(self, credential: str) -> str | None:
        """Return the agent that a credential binds to; None if its key is unknown or deactivated."""

    def toolsets_of(self, agent_id: str) -> Sequence[str] | None:
        """Return the names of the toolsets that are chosen for an agent; None if none are."""

    def check_allowed(self, agent_id: str, operation: Operation[Any]) -> None:
        """Check that no operator forbids the agent this operation; no query while nothing is forbidden to anybody.
        Raises NOT_ALLOWED."""

    def acting(self, operator: str | None, operation: str, **ids: str) -> AbstractContextManager[dict[str, str]]:
        """Record in the event log that an operator, if it is one, called an agent's operation, unless the block fails.
        Call it inside the transaction. The event is about `ids`, to which the block may add."""

    def refresh_settings(self) -> None:
        """Read the settings that other processes stored, and end what a wrong clock prolonged; cheap if it was done a
        moment ago."""

    def newest_event_id(self) -> int:
        """Return the id of the newest event; 0 if there is none."""

    def keys_of(self, event: Any) -> Collection[Hashable]:
        """Return the keys under which waits look out for an event: tuples of its values, and each of them with ANY in
        place of the values that a wait may leave open."""

    def events_after(self, event_id: int, limit: int) -> Sequence[Any]:
        """Return the next events of the log, in order."""


_registered: list[Domain] = []


def register(domain: Domain) -> None:
    """Set the domain of this process."""
    _registered[:] = [domain]


def domain() -> Domain:
    """Return the domain of this process."""
    return _registered[0]
