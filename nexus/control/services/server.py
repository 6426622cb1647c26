"""Requests to end the server, by an administrator or the last agent. The server reads them in the event log."""

from __future__ import annotations

from coordination.log.emit import emit
from coordination.models import Event, VisibilityChoices
from coordination.services.audit import NOBODY
from nexus.control.errors import ControlCode
from nexus.control.models import STREAM
from nexus.core.clock import now
from nexus.core.database.store import store, write
from nexus.core.operations.errors import NexusError

END_ASKED = "pool.end_asked"
SERVER = "pool-server"  # the lock's kind: one server at a time runs a store's pool


def check_running() -> None:
    """Check that a server runs the store's pool now. Raises POOL_OFF: otherwise a later server would read the request,
    which is not meant for it."""
    free = store().exclusive_lock(SERVER)
    if free is not None:
        free.release()
        raise NexusError(
            ControlCode.POOL_OFF,
            "No server runs this store's pool now, so none ends. One that has just started, or takes over from "
            "another, needs a second: ask again.",
        )


def ask_to_end(by: str) -> None:
    """Ask the server, in whichever process it is, to end."""
    with write():
        emit(
            workspace_id=None,
            stream=STREAM,
            type=END_ASKED,
            actor=None,
            payload={"by": by},
            moment=now(),
            visibility=VisibilityChoices.PRIVATE,
            target=NOBODY,
        )


def is_asked_to_end(after: int, upto: int) -> bool:
    """Return whether the end was requested after event `after`, up to event `upto`."""
    return Event.objects.filter(event_id__gt=after, event_id__lte=upto, stream=STREAM, type=END_ASKED).exists()
