"""`nexus attach`: start a coding client in a pane of a terminal, and wake its agent by a line typed into that pane.

The command becomes the client. A process beside it lives as long as the client, and sees by the agent's signal file
that something may be new; `nexus wait` decides. The line is always the same text of ours, and is typed only while the
client is in the foreground, its screen is at rest and its input line is empty. Standard library alone.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from nexus.core import processes
from nexus.core.coding_clients import CLIENTS
from nexus.core.operations.errors import NexusError
from nexus.hooks import harness, hook_state, panes, signal_files, waiter, waking

Configure = Callable[[list[str]], tuple[Any, Sequence[str]]]

EMPTY_LINES = {each.program: each.empty_line for each in CLIENTS.values() if each.program and each.empty_line}
TICK_SECONDS = 0.5  # between two looks at the signal file
SEEN_SECONDS = 10.0  # between two looks at the screen while nothing is new: a wake need not wait for it to be at rest
QUIET_SECONDS = 1.5  # that the screen must be unchanged
NOTED_SECONDS = 60  # that it is unchanged, and its input line not empty, before the person is told why nothing is typed


def main(configure: Configure, words: list[str]) -> NoReturn:
    """Become the client whose command stands behind `--`, with a process beside it that wakes its agent."""
    split = words.index("--")
    options, command = words[:split], words[split + 1 :]
    try:
        settings, arguments = configure(options)
        call, _ = harness.parse_waiting(arguments, os.environ, "")
        if not call.is_named:
            raise ValueError("Pass --agent: the agent that works in this client.")
        pane = panes.find(_empty_line(command), os.getpid())
    except (NexusError, ValueError) as error:
        raise SystemExit(waking.refusal(error)) from None
    call = call._replace(session=f"{pane.kind} {pane.server} {pane.name}")
    processes.in_background(lambda: Watch(settings, call, options, pane).run(), 0, in_terminal=True)
    processes.become(command)


def _empty_line(command: Sequence[str]) -> str:
    """Return how the empty input line of a client looks. Raises ValueError if that is unknown."""
    found = EMPTY_LINES.get(Path(command[0]).name if command else "")
    if found is None:
        raise ValueError(
            f"Behind -- stands the command of {', '.join(EMPTY_LINES)}. Of other programs Nexus cannot tell whether "
            "their input line is empty, and does not type into them."
        )
    if shutil.which(command[0]) is None:
        raise ValueError(f"There is no program {command[0]}: give its path.")
    return found


class Watch:
    """The process beside a client."""

    def __init__(self, settings: Any, call: harness.HookCall, options: Sequence[str], pane: panes.Pane) -> None:
        self.home, self.call, self.pane = settings.home, call, pane
        self.client = os.getppid()
        self.place, self.held = hook_state.take_place(settings.home, call)
        self.pace = waking.pace(settings)
        look = ["wait", *options, "--session", f"{call.session} look", "--seconds", "0"]
        self.command = processes.python("nexus", *look)
        self.known: int | None = None  # the signal file's time at the last look at what waits
        self.look_at = 0.0  # look again by then, even without a signal
        self.waits = False  # whether that look found something, which is not typed yet

    def run(self) -> None:
        """Wake the agent each time that something comes, until the client has ended, or a newer one has the pane."""
        see_at, is_told = 0.0, False
        while os.getppid() == self.client and self._has_place():
            time.sleep(TICK_SECONDS)
            is_due, now = self._is_due(), time.monotonic()
            if not is_due and now < see_at:
                continue
            quiet, see_at = self.pane.quiet_seconds(), now + SEEN_SECONDS
            if not is_due or quiet < QUIET_SECONDS:
                is_told = False
            elif self.pane.is_free():
                self.waits = self.waits or self._look()
                if self.waits and self.pane.quiet_seconds() >= QUIET_SECONDS and self.pane.is_free():
                    self.waits = not self.pane.type_line()
            elif quiet > NOTED_SECONDS and not is_told:
                agent = self.call.agent_id
                self.pane.tell_person(f"Nexus may have news for {agent}, and types when the input line is empty.")
                is_told = True
        if self._has_place():
            self.place.unlink()

    def _has_place(self) -> bool:
        return waiter.is_place(str(self.place), self.held)

    def _is_due(self) -> bool:
        stamp = signal_files.stamp(self.home, self.call.agent_id)
        return self.waits or stamp != self.known or time.monotonic() >= self.look_at

    def _look(self) -> bool:
        """Return whether something waits for the agent that it was not told of; it counts as told then."""
        self.known = signal_files.stamp(self.home, self.call.agent_id)  # before the look, so that none is missed
        done = processes.in_foreground(self.command, env=processes.own_environment(), captured=True)
        has_failed = done.code not in (0, waiter.OVER)  # `nexus doctor` tells why
        self.look_at = time.monotonic() + (waking.HELD_SECONDS if has_failed else self.pace)
        return bool(done.output)
