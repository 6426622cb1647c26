"""`nexus tail`: the event log as a stream of lines."""

from __future__ import annotations

import asyncio
import json
import math
import os
import select
import signal
import stat
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser
from django.db import DatabaseError, connection

from coordination.errors import CoordinationCode
from coordination.log import follow as log
from coordination.log.emit import streams
from coordination.log.follow import Filters, LogPage
from coordination.log.selectors import newest_event_id
from coordination.models import Event
from coordination.routing import describe
from coordination.rows import event_row
from coordination.selectors import agent_exists
from coordination.services import workspaces
from nexus.core import files
from nexus.core.cli import NexusCommand, one_line, spelled
from nexus.core.database.store import store
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.parameters import whole_number
from nexus.core.waiting import READERS, in_thread, waiter

BACKOFF_SECONDS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0)  # between tries on a busy store; then it is an error


@dataclass(frozen=True)
class TailOptions:
    """The agent that reads (None: an operator, who sees all), the filters, and the author whose lines are left out."""

    agent_id: str | None
    filters: Filters
    exclude: str | None = None  # the author whose lines are dropped
    inbox_only: bool = False

    def read(self, cursor: int) -> LogPage:
        """Return the next page after `cursor` of what the agent may see. The recipient of a message may see it."""
        caller = Caller("tail", agent_id=None if self.inbox_only else self.agent_id)
        try:
            return log.read_events(caller, self.filters, cursor)
        except DatabaseError:
            connection.close()  # the next read uses a fresh connection
            raise

    def wants(self, event: Event) -> bool:
        """Return whether a visible event is written as a line."""
        if self.inbox_only and self.agent_id not in event.payload.get("recipients", ()):
            return False
        return self.exclude is None or event.actor_agent_id != self.exclude


async def follow(
    watch: TailOptions, cursor: int, *, write: Callable[[Iterable[Event]], None], persist: Callable[[int], None]
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


STDOUT = 1


class Command(NexusCommand):
    help = (
        "Follow the event log, one line of JSON per event: all of it, or what an agent may see.\n"
        "It follows new events until it is interrupted, and does not make the agent look present."
    )
    examples = """examples:
  nexus tail --pretty                               everything, in all projects, from now on
  nexus tail --agent ana --exclude-agent ana        what the others do in this project, from now on
  nexus tail --agent ana --inbox --pretty           mail as it arrives, from any project
  nexus tail --agent ana --from beginning --cursor-file ~/.ana.cursor
                                                       everything once, across restarts

delivery:
  With --cursor-file the cursor is stored after each page of up to 100 events, once its lines are written.
  A crash between the two repeats that page; no event is left out.

exit codes:
  0  ended by SIGINT or SIGTERM, or because its reader ended
  1  refused or failed; stderr has the code and what to do"""

    def add_arguments(self, parser: CommandParser) -> None:
        help = "The project's directory. [all projects; with --agent, the current one]"
        parser.add_argument("--project", dest="project_root", metavar="DIR", help=help)
        parser.add_argument(
            "--agent", dest="agent_id", metavar="AGENT", help="The agent whose view is shown: only what it may see."
        )
        scope = parser.add_mutually_exclusive_group()
        which = f"{', '.join(streams())}. [all; with --agent, workspace]"
        scope.add_argument("--stream", help=which)
        scope.add_argument("--inbox", action="store_true", help="Only messages to the agent, from any project.")
        parser.add_argument(
            "--from",
            dest="start",
            default="latest",
            metavar="WHERE",
            help="latest (only new events), beginning, or an event_id to continue after. [latest]",
        )
        parser.add_argument("--from-agent", help="Only what this agent did.")
        parser.add_argument("--exclude-agent", help="Leave out what this agent did, such as your own acts.")
        parser.add_argument(
            "--cursor-file", type=Path, help="Keep the cursor in this file. If the file exists, --from has no effect."
        )
        parser.add_argument("--pretty", action="store_true", help="Print readable lines instead of JSON.")

    def run(self, **options: Any) -> None:
        ending = ExitOnSignal()
        watch = TailOptions(
            agent_id=options["agent_id"],
            filters=_filters(options),
            exclude=options["exclude_agent"],
            inbox_only=options["inbox"],
        )
        start = _parse_start(options["start"])
        file = CursorFile(options["cursor_file"]) if options["cursor_file"] else None
        kept = file.load() if file else None
        store().prepare()
        store().guard()
        for name in sorted({options["agent_id"], options["from_agent"], options["exclude_agent"]} - {None}):
            if not agent_exists(name):  # it may be created later, so that a monitor may start first
                self.stderr.write(f"[nexus] No agent is called {one_line(name)!r} yet. `nexus agents` lists them.")
        cursor = kept if kept is not None else newest_event_id() if start is None else start
        if file:
            file.save(cursor)  # the next follower gets what comes meanwhile, even if this one saw nothing
        line = as_text if options["pretty"] else as_json

        def write(events: Iterable[Event]) -> None:
            _write("".join(f"{line(event)}\n" for event in events).encode(), ending)

        def persist(cursor: int) -> None:
            ending.put_off()
            if file:
                file.save(cursor)
            ending.allow()

        asyncio.run(_follow(watch, cursor, write, persist))


class ExitOnSignal:
    """End the process with exit code 0 at SIGINT and SIGTERM, also during a write that nobody reads."""

    def __init__(self) -> None:
        self._wanted = self._put_off = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._end)

    def _end(self, *_: Any) -> None:
        self._wanted = True
        if not self._put_off:
            os._exit(0)  # an exception inside the event loop could lose a task that the end waits for

    def put_off(self) -> None:
        """Defer the end: lines that are written while the cursor is not stored would be written again by the next
        follower."""
        self._put_off = True

    def allow(self) -> None:
        """Allow the end, and end now if a signal arrived meanwhile."""
        self._put_off = False
        if self._wanted:
            os._exit(0)


def _filters(options: dict[str, Any]) -> Filters:
    """Return the filters of the options.

    Raises WORKSPACE_UNRESOLVED, INVALID_STREAM for an unknown stream, and CONFIG_ERROR for the inbox of no agent.
    """
    author, of_agent = frozenset({options["from_agent"]} - {None}), options["agent_id"] is not None
    if options["inbox"]:  # an inbox does not belong to a project
        if not of_agent:
            raise NexusError(Code.CONFIG_ERROR, "--inbox: say whose, with --agent.")
        return Filters(type=frozenset({"message.created"}), agent=author)
    stream = options["stream"] or ("workspace" if of_agent else None)
    if stream not in (None, *streams()):
        raise NexusError(CoordinationCode.INVALID_STREAM, f"--stream: use one of {', '.join(streams())}.")
    root = options["project_root"] or ("." if of_agent else None)
    workspace_ids = {workspaces.locate(root).workspace_id} if root else set()
    return Filters(workspace=frozenset(workspace_ids), stream=frozenset([stream] if stream else []), agent=author)


def _parse_start(text: str) -> int | None:
    """Return the event id after which to start, 0 for the beginning, None for the newest. Raises CONFIG_ERROR."""
    if text in ("latest", "beginning"):
        return 0 if text == "beginning" else None
    event_id = whole_number(text)
    if event_id is None:
        raise NexusError(Code.CONFIG_ERROR, "--from: use latest, beginning, or an event_id.")
    return event_id


async def _follow(
    watch: TailOptions, cursor: int, write: Callable[[Iterable[Event]], None], persist: Callable[[int], None]
) -> None:
    if stat.S_ISFIFO(os.fstat(STDOUT).st_mode):
        # A pipe without a reader is reported as readable: end then, and not at the next line.
        asyncio.get_running_loop().add_reader(STDOUT, sys.exit, 0)
    await follow(watch, cursor, write=write, persist=persist)


def _write(lines: bytes, ending: ExitOnSignal) -> None:
    """Write without Python's buffers: a reader that does not read must not delay the end.

    The end may come while nobody takes the next piece; after the last piece, only once the cursor is stored.
    """
    left = memoryview(lines)
    try:
        while left:
            ending.allow()
            select.select([], [STDOUT], [])
            ending.put_off()
            left = left[os.write(STDOUT, left[: select.PIPE_BUF]) :]  # a writable pipe takes this many bytes at once
    except BrokenPipeError:
        sys.exit(0)
