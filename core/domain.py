"""What core needs of the domain above it: one object, registered when the apps are ready."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from core.operations.registry import Operation


class Domain(Protocol):
    """Credentials, the operators' trail, the stored settings, and the log of events."""

    def credential_of_key(self, key: str) -> str:
        """What a connection keeps of its API key, to be asked for again; it tells nothing of the key."""

    def agent_of_credential(self, credential: str) -> str | None:
        """The agent that a credential binds to; None when its key is unknown or deactivated."""

    def toolsets_of(self, agent_id: str) -> Sequence[str] | None:
        """The names of the toolsets that are chosen for an agent; None when none are."""

    def check_allowed(self, agent_id: str, operation: Operation[Any]) -> None:
        """Raises NOT_ALLOWED where an operator keeps an agent from a verb; no query while none is kept from any."""

    def record_act(self, operator: str, operation: str, ids: Mapping[str, str], *, since: int) -> None:
        """Append to the log, inside the caller's transaction, that an operator used an agent's verb; what the log has
        behind the event `since` tells of the same."""

    def refresh_settings(self) -> None:
        """Take over what other processes stored; cheap when it was done a moment ago."""

    def newest_event_id(self) -> int:
        """The id of the newest event; 0 when there is none."""

    def events_after(self, event_id: int, limit: int) -> Sequence[Any]:
        """The next events of the log, in order."""


_registered: list[Domain] = []


def register(domain: Domain) -> None:
    """Name the domain of this process."""
    _registered[:] = [domain]


def domain() -> Domain:
    """The domain of this process."""
    return _registered[0]
