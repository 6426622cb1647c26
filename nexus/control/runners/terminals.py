"""Terminals of a turn: commands that the agent started, with a limited part of their output."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from acp import RequestError

from nexus.control.runners import processes
from nexus.control.runners.base import RunnerFailed
from nexus.control.runners.programs import with_environment
from nexus.core.waiting import OUTSIDE, in_thread

MOST = 16  # at once
MOST_OUTPUT = 1_000_000  # bytes kept of each output


class Terminal:
    """One command."""

    def __init__(self, program: processes.Running, most: int) -> None:
        self.output = processes.Tail(most)
        self._program = program
        self._reading = asyncio.create_task(self.output.fill(program.stdout))

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while the command runs. The last output may come a moment later."""
        return self._program.guardian.returncode if self._reading.done() else None

    async def ended(self) -> int:
        """Wait for the end of the command and of its output; return the exit code."""
        await asyncio.shield(self._reading)
        return await self._program.ended()

    async def end(self) -> None:
        """Kill the command and all that it started."""
        await self._program.end()
        await asyncio.wait([self._reading], timeout=processes.KILL_SECONDS)
        self._reading.cancel()


class Terminals:
    """The terminals of one turn."""

    def __init__(self, confined: Callable[[Sequence[str], str], list[str]], env: Mapping[str, str]) -> None:
        """`confined` returns the command line that runs a command in a directory; `env` is the environment of each."""
        self._confined, self._env = confined, env
        self._open: dict[str, Terminal] = {}
        self._made = 0

    async def create(self, command: Sequence[str], cwd: str, env: Mapping[str, str], most: int | None) -> str:
        """Start a command and return its terminal's id. Raises RunnerFailed."""
        if len(self._open) >= MOST:
            raise RunnerFailed(f"There are {MOST} terminals already; release one first.")
        wrong = [name for name in env if not name or "=" in name or "\0" in name + env[name]]
        if wrong or any("\0" in word for word in command):
            raise RunnerFailed("A command and its environment are texts without NUL characters.")
        self._made += 1
        terminal_id = f"terminal-{self._made}"
        begun_by = (sys.executable, "-I", "-S", with_environment.__file__) if env else ()
        line = await in_thread(OUTSIDE, partial(self._confined, [*begun_by, *command], cwd))  # reads the disk
        program = await processes.start(
            line,
            cwd=cwd,
            # Set only inside: otherwise the sandbox's own start would use the agent's paths for programs and libraries.
            env={**self._env, **{with_environment.PREFIX + name: value for name, value in env.items()}},
            stdin=processes.DEVNULL,
            merged=True,
        )
        self._open[terminal_id] = Terminal(program, MOST_OUTPUT if most is None else min(most, MOST_OUTPUT))
        return terminal_id

    def get(self, terminal_id: str) -> Terminal:
        """Return a terminal. Raises the protocol's error for an unknown id."""
        try:
            return self._open[terminal_id]
        except KeyError:
            raise RequestError.resource_not_found(terminal_id) from None

    async def release(self, terminal_id: str) -> None:
        """End a terminal and drop its output."""
        terminal = self.get(terminal_id)
        del self._open[terminal_id]
        await terminal.end()

    async def end(self) -> None:
        """End all terminals."""
        terminals, self._open = list(self._open.values()), {}
        await asyncio.gather(*(terminal.end() for terminal in terminals), return_exceptions=True)
