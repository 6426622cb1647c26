"""`nexus tail`: the event log as a stream of lines."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import stat
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from coordination.errors import CoordinationCode
from coordination.log.emit import streams
from coordination.log.follow import Filters
from coordination.log.selectors import newest_event_id
from coordination.log.tail import CursorFile, Watch, as_json, as_text, follow
from coordination.models import Event
from coordination.selectors import agent_exists
from coordination.services import workspaces
from nexus.core.cli import NexusCommand, one_line
from nexus.core.database.store import store
from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.parameters import whole_number

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
        ending = Ending()
        watch = Watch(
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


class Ending:
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
    watch: Watch, cursor: int, write: Callable[[Iterable[Event]], None], persist: Callable[[int], None]
) -> None:
    if stat.S_ISFIFO(os.fstat(STDOUT).st_mode):
        # A pipe without a reader is reported as readable: end then, and not at the next line.
        asyncio.get_running_loop().add_reader(STDOUT, sys.exit, 0)
    await follow(watch, cursor, write=write, persist=persist)


def _write(lines: bytes, ending: Ending) -> None:
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
