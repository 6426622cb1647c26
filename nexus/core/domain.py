"""What core needs of the domain above it: one object, registered when the apps are ready."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django.db.models import Model

    from nexus.core.operations.registry import Operation


ANY = ("any",)  # in a key, a part that may have any value; a tuple, so that no text equals it


@dataclass
class Domain:
    """Credentials, the audit of operators' calls, the stored settings, and the event log."""

    log: type[Model]  #: the model of the events, keyed by their ids
    credential_of_key: Callable[[str], str]
    """Returns what a connection keeps to verify its API key again; it does not reveal the key."""
    agent_of_credential: Callable[[str], str | None]
    """Returns the agent that a credential binds to; None if its key is unknown or deactivated."""
    toolsets_of: Callable[[str], Sequence[str] | None]
    """Returns the names of the toolsets that are chosen for an agent; None if none are."""
    check_allowed: Callable[[str, Operation[Any]], None]
    """Checks that no operator forbids the agent this operation; no query while nothing is forbidden to anybody. Raises
    NOT_ALLOWED."""
    acting: Callable[..., AbstractContextManager[dict[str, str]]]
    """Given an operator (or None), an operation's name and ids: records in the event log that the operator called an
    agent's operation, unless the block fails. Call it inside the transaction. The block may add to the ids."""
    refresh_settings: Callable[[], None]
    """Reads the settings that other processes stored, and ends what a wrong clock prolonged; cheap if it was done a
    moment ago."""
    newest_event_id: Callable[[], int]
    """Returns the id of the newest event; 0 if there is none."""
    keys_of: Callable[[Any], Collection[Hashable]]
    """Returns the keys under which waits look out for an event: tuples of its values, and each of them with ANY in
    place of the values that a wait may leave open."""
    events_after: Callable[[int, int], Sequence[Any]]
    """Returns the next events of the log after an id, in order, up to a number of them."""


_registered: list[Domain] = []


def register(domain: Domain) -> None:
    """Set the domain of this process."""
    _registered[:] = [domain]


def domain() -> Domain:
    """Return the domain of this process."""
    return _registered[0]
