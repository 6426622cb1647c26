"""Programs that a turn starts. Their output is bounded, and they end with the turn, with all processes that they
started."""

from __future__ import annotations

import asyncio
import contextlib
import os
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Mapping, Sequence

from nexus.control.runners.base import RunnerFailed
from nexus.core.processes import BASICS, CHUNK, KILL_SECONDS, environment, start_async

PAUSE_SECONDS = 0.005  # after each chunk, to slow down a flood
TAIL = 4_000  # bytes kept of the end of stderr


class Running:
    """A running program: its pipes, and the end of its stderr."""

    def __init__(self, guardian: Process, lifeline: int | None = None) -> None:
        """`lifeline`: the descriptor whose end kills the program; None after it was closed."""
        self.guardian = guardian
        self._lifeline = lifeline
        self.stderr = Tail(TAIL)
        self._draining = None if guardian.stderr is None else asyncio.create_task(self.stderr.fill(guardian.stderr))

    @property
    def stdin(self) -> asyncio.StreamWriter:
        assert self.guardian.stdin is not None
        return self.guardian.stdin

    @property
    def stdout(self) -> asyncio.StreamReader:
        assert self.guardian.stdout is not None
        return self.guardian.stdout

    async def ended(self) -> int:
        """Wait for the end and return the exit code; 128 plus the signal's number if a signal ended it."""
        return await self.guardian.wait()

    def kill(self) -> None:
        """Kill the program and all that it started; `ended` returns when they are gone."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    async def end(self, grace: float = 0.0) -> int:
        """Close stdin, wait `grace` seconds for the program to exit, then kill it; return the exit code.

        The program is killed, too, if this call is cancelled.
        """
        try:
            if self.guardian.stdin is not None:
                self.guardian.stdin.close()
            if grace:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.guardian.wait(), grace)
        finally:
            self.kill()
        unread = asyncio.create_task(self._discard())
        try:
            await asyncio.wait_for(self.guardian.wait(), KILL_SECONDS)
        except TimeoutError:  # stuck in the kernel; it ends with its guardian
            with contextlib.suppress(ProcessLookupError):
                self.guardian.kill()
        finally:
            unread.cancel()
        if self._draining is not None:
            await asyncio.wait([self._draining], timeout=1)
            self._draining.cancel()
        return self.guardian.returncode or 0

    async def _discard(self) -> None:
        """Read and drop the remaining output: asyncio does not see a process's end while a pipe holds data."""
        if self.guardian.stdout is not None:
            with contextlib.suppress(RuntimeError):  # somebody still reads it
                while await self.guardian.stdout.read(CHUNK):
                    pass


class Tail:
    """The last bytes of a stream, read slowly enough that a flood costs little."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.kept = b""
        self.is_cut = False

    async def fill(self, stream: asyncio.StreamReader) -> None:
        """Read to the end of the stream."""
        while chunk := await stream.read(CHUNK):
            kept = self.kept + chunk
            self.is_cut = self.is_cut or len(kept) > self.most
            self.kept = kept[-self.most :] if self.most else b""
            await asyncio.sleep(PAUSE_SECONDS)

    @property
    def text(self) -> str:
        """The kept bytes as text, from the first whole character on."""
        kept = self.kept
        if self.is_cut:
            start = next((at for at, byte in enumerate(kept[:4]) if byte & 0xC0 != 0x80), 0)
            kept = kept[start:]
        return kept.decode(errors="replace")


@contextlib.asynccontextmanager
async def running(
    command: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    stdin: int = PIPE,
    merged: bool = False,
    shown: bool = False,
    scratch: str = "",
    grace: float = 0.0,
) -> AsyncIterator[Running]:
    """Run a program within the block; nothing of it is left afterwards.

    `merged`: stderr goes to stdout; `shown`: stderr goes to this process's own. `scratch` is a directory that is
    removed with the program. `grace` (seconds) is the time it gets to exit after a block without an error, once its
    stdin is closed. Raises RunnerFailed if the system cannot start it.
    """
    program = await start(command, cwd=cwd, env=env, stdin=stdin, merged=merged, shown=shown, scratch=scratch)
    try:
        yield program
    except BaseException:
        grace = 0
        raise
    finally:
        await program.end(grace)


async def start(
    command: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    stdin: int = PIPE,
    merged: bool = False,
    shown: bool = False,
    scratch: str = "",
) -> Running:
    """Start a program as `running` does; the caller must end it."""
    try:
        started = await start_async(
            command,
            cwd=cwd,
            env=env,
            stdin=stdin,
            stderr=None if shown else STDOUT if merged else PIPE,
            scratch=scratch,
        )
    except (OSError, ValueError) as error:
        raise RunnerFailed(f"{command[0]} could not be started: {error}") from None
    return Running(started.process, started.lifeline)


__all__ = ["BASICS", "CHUNK", "DEVNULL", "KILL_SECONDS", "Running", "Tail", "environment", "running", "start"]
