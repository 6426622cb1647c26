"""Following the event log as lines, for `nexus tail` (docs/how-to/follow-the-log.md).

It only reads: a monitor that runs beside an idle agent does not make that agent look alive.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from django.db import DatabaseError, connection

from coordination.log import follow as log
from coordination.log.follow import Filters, Page
from coordination.models import Event
from coordination.routing import describe
from coordination.rows import event_row
from nexus.core import files
from nexus.core.cli import one_line, spelled
from nexus.core.database.store import store
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.parameters import whole_number
from nexus.core.waiting import READERS, in_thread, waiter

BACKOFF_SECONDS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0)  # between tries on a busy store; then it is an error


@dataclass(frozen=True)
class Watch:
    """The agent that reads (None: an operator, who sees all), the filters, and the author whose lines are left out."""

    agent_id: str | None
    filters: Filters
    exclude: str | None = None  # the author whose lines are dropped
    inbox_only: bool = False

    def read(self, cursor: int) -> Page:
        """Return the next page after `cursor` of what the agent may see. The recipient of a message may see it."""
        caller = Caller("tail", agent_id=None if self.inbox_only else self.agent_id)
        try:
            return log.read(caller, self.filters, cursor)
        except DatabaseError:
            connection.close()  # the next read uses a fresh connection
            raise

    def wants(self, event: Event) -> bool:
        """Return whether a visible event is written as a line."""
        if self.inbox_only and self.agent_id not in event.payload.get("recipients", ()):
            return False
        return self.exclude is None or event.actor_agent_id != self.exclude


async def follow(
    watch: Watch, cursor: int, *, write: Callable[[Iterable[Event]], None], persist: Callable[[int], None]
) -> None:
    """Write every event after `cursor`, page by page, and persist the cursor after each; until cancelled.

    Raises DB_ERROR at once when the store fails, and after about ten seconds when it stays busy. The cursor only passes
    events that were written, so none is skipped.
    """
    failures = 0
    while True:
        try:
            async with waiter().park(watch.filters.interest(None)) as parked:
                page = await in_thread(READERS, partial(watch.read, cursor))
                failures = 0
                write(filter(watch.wants, page.events))
                cursor = page.cursor
                if page.events:
                    persist(cursor)
                if not page.more:
                    await parked.wait(math.inf)
        except DatabaseError as error:
            if not store().is_busy(error) or failures == len(BACKOFF_SECONDS):
                raise store().failure(error) or NexusError(
                    Code.DB_ERROR, "The store failed; run `nexus doctor`."
                ) from None
            await asyncio.sleep(BACKOFF_SECONDS[failures])
            failures += 1


def as_json(event: Event) -> str:
    """Return an event as one line of JSON, in ASCII: no character of it can end the line early or control a
    terminal."""
    return json.dumps(event_row(event), separators=(",", ":"))


def as_text(event: Event) -> str:
    """Return an event as one line for people."""
    columns = {"agent_id", "from_agent_id", "subject", "recipients"}
    rest = " ".join(
        f"{name}={describe(value) if name == 'target' else spelled(value)}"
        for name, value in event.payload.items()
        if name not in columns and value not in (None, [], {})
    )
    recipients = ", ".join(event.payload.get("recipients", ()))
    parts = [
        f"{event.created_at.astimezone():%Y-%m-%d %H:%M:%S}  {event.event_id:>6}  {event.type:<18}",
        (event.actor_agent_id or "-") + (f" → {recipients}" if recipients else ""),
        event.payload.get("subject", ""),
        rest,
    ]
    return one_line("  ".join(filter(None, parts)), widest=500)


class CursorFile:
    """The file with a follower's cursor: the last event id it has written, as decimal text."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> int | None:
        """Return the stored cursor; None where there is no file. Raises CONFIG_ERROR for a file that holds no
        cursor."""
        try:
            text = self.path.read_text("ascii").strip()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeError):
            text = ""
        cursor = whole_number(text)
        if cursor is None:
            raise NexusError(
                Code.CONFIG_ERROR,
                f"--cursor-file: {self.path} holds no cursor. Remove it to start from --from, or name another file.",
            )
        return cursor

    def save(self, cursor: int) -> None:
        """Replace the file atomically and durably. Raises CONFIG_ERROR where it cannot be written."""
        try:
            files.replace(self.path, f"{cursor}\n".encode(), durable=True)
        except OSError as error:
            raise NexusError(
                Code.CONFIG_ERROR, f"--cursor-file: {self.path} cannot be written: {error.strerror}."
            ) from None
