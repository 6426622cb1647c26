"""Programs that a turn starts: bounded in what they say, and gone with it, whatever they started themselves."""

from __future__ import annotations

import asyncio
import contextlib
import os
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Mapping, Sequence

from nexus.control.runners.base import RunnerFailed
from nexus.core.processes import BASICS, CHUNK, KILL_SECONDS, environment, start_async

PAUSE_SECONDS = 0.005  # after each chunk that nobody waits for: a flood is slowed down
TAIL = 4_000  # bytes of what it said last that are kept


class Running:
    """A program that runs: its pipes, and what it last said on stderr."""

    def __init__(self, guardian: Process, lifeline: int | None = None) -> None:
        """`lifeline`: what holds it; None where that was let go of."""
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
        """Wait for its end; its exit code, 128 and a signal's number where one ended it."""
        return await self.guardian.wait()

    def kill(self) -> None:
        """Kill it with all that it started; `ended` tells when they are gone."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    async def end(self, grace: float = 0.0) -> int:
        """Close its stdin, give it `grace` seconds to go by itself, then kill it; its exit code.

        Cancelled in the middle, it is killed all the same.
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
        except TimeoutError:  # stuck in the kernel: what it guards goes with it
            with contextlib.suppress(ProcessLookupError):
                self.guardian.kill()
        finally:
            unread.cancel()
        if self._draining is not None:
            await asyncio.wait([self._draining], timeout=1)
            self._draining.cancel()
        return self.guardian.returncode or 0

    async def _discard(self) -> None:
        """Read what nobody wants: asyncio knows of no end while a pipe holds something."""
        if self.guardian.stdout is not None:
            with contextlib.suppress(RuntimeError):  # somebody reads it still
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
        """What is kept, from a whole character on."""
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
    """A program inside of the block, with nothing of it left behind after.

    `merged`: stderr goes where stdout does; `shown`: where that of this process does. `scratch` is a directory that
    goes with it. `grace` is how long (s) it may take to end by itself, once its stdin is closed and all went well.
    Raises RunnerFailed where the system starts nothing.
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
    """Start a program, as `running` does; who calls this ends it."""
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
