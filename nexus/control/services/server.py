"""The end of the server, as an administrator or the last agent asks for it: the server hears of it in the log."""

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
SERVER = "pool-server"  # of those that run its pool, a store has one at a time


def check_there() -> None:
    """Raises POOL_OFF where no server runs the store's pool now: nobody would hear, and a later one is not meant."""
    free = store().exclusive_lock(SERVER)
    if free is not None:
        free.release()
        raise NexusError(
            ControlCode.POOL_OFF,
            "No server runs this store's pool now, so none ends. One that has just started, or takes over from "
            "another, needs a second: ask again.",
        )


def ask_to_end(by: str) -> None:
    """Ask the server, whichever process it is, to end."""
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
    """Whether somebody asked for it after that event, up to this."""
    return Event.objects.filter(event_id__gt=after, event_id__lte=upto, stream=STREAM, type=END_ASKED).exists()
