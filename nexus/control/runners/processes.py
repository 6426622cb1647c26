"""Programs that a turn starts: their environment, the sandbox that they run in, and their pipes.

A program sees and writes only what its agent may. Its output is bounded, and it ends with the turn, with all processes
that it started.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import stat
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from handoffs import checks
from nexus.control.models import PoolAgent, PoolWorktree
from nexus.control.permissions import protected_paths
from nexus.control.permissions.rules import within
from nexus.control.runners import repositories, sandbox
from nexus.control.runners.base import RunnerFailed
from nexus.control.runners_file import Acp, McpServer, Programs, Runner, runners
from nexus.core import foreign_files
from nexus.core.processes import BASICS, CHUNK, KILL_SECONDS, environment, start_async

PAUSE_SECONDS = 0.005  # after each chunk, to slow down a flood
TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+("|\\?\Z)', re.DOTALL)  # closed, or cut off behind a backslash or not
TAIL = 4_000  # bytes kept of the end of stderr
LARGEST_SIGN_IN = 1_048_576  # bytes of a file
HOMES = "pool"  # in the hub's home: a directory for each agent, its HOME in the sandbox


class Running:
    """A running program: its pipes, and the end of its stderr."""

    def __init__(self, guardian: Process, lifeline: int) -> None:
        """`lifeline`: the descriptor whose end kills the program."""
        self.guardian = guardian
        self._lifeline: int | None = lifeline  # None after it was closed
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


class Overdone(Exception):
    """A program exceeded a limit of what it may send; the message is for operators."""


class Structure:
    """Count the bytes of a JSON line outside its strings, piece by piece: they determine the cost of parsing."""

    def __init__(self) -> None:
        self.size = 0
        self._cut = b""  # the opening of the string that the last piece cut off

    def add(self, piece: bytes) -> None:
        """Count the next piece of the line."""
        *parts, outside = TEXT.split(self._cut + piece)  # outside, how a text ended, outside, …
        self.size += sum(map(len, parts[::2])) + len(outside)
        end = parts[-1] if parts else b'"'
        self._cut = b"" if end == b'"' else b'"' + end


class OutputLines:
    """The lines that a program prints, which is not trusted: the length of one, its structure and the bytes of all are
    limited."""

    def __init__(self, reader: asyncio.StreamReader, *, longest: int, structure: int, most: int) -> None:
        self._reader, self._longest, self._structure, self._most = reader, longest, structure, most
        self._buffer = bytearray()
        self._searched = 0  # of the buffer, for the end of a line
        self._bytes = 0

    async def next(self) -> bytes | None:
        """Return the next line; None at the end. Raises Overdone."""
        structure = Structure()
        while (end := self._buffer.find(b"\n", self._searched)) < 0:
            structure.add(bytes(self._buffer[self._searched :]))  # only for long lines, at most one chunk at a time
            if structure.size > self._structure:
                raise Overdone(f"it sent a line with over {self._structure} bytes outside of texts")
            self._searched = len(self._buffer)
            if self._searched > self._longest:
                raise Overdone(f"it sent a line of over {self._longest} bytes")
            chunk = await self._reader.read(CHUNK)
            if not chunk:
                return None
            self._bytes += len(chunk)
            if self._bytes > self._most:
                raise Overdone(f"it sent over {self._most} bytes in one turn")
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._searched = 0
        return line


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
    stderr = None if shown else STDOUT if merged else PIPE
    try:
        started = await start_async(command, cwd=cwd, env=env, stdin=stdin, stderr=stderr, scratch=scratch)
    except (OSError, ValueError) as error:
        raise RunnerFailed(f"{command[0]} could not be started: {error}") from None
    return Running(started.process, started.lifeline)


__all__ = [
    "BASICS",
    "CHUNK",
    "DEVNULL",
    "KILL_SECONDS",
    "OutputLines",
    "Overdone",
    "Running",
    "Structure",
    "Tail",
    "environment",
    "running",
    "start",
]


def home_of(agent: PoolAgent) -> str:
    """Return the agent's HOME in the sandbox; create it if missing. It outlives turns, because agents keep their
    sessions there."""
    home = Path(protected_paths.home()) / HOMES / agent.pk
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    return str(home)


def environment_of(agent: PoolAgent, program: Acp | McpServer | None = None) -> dict[str, str]:
    """Return the environment of the agent's programs, without secrets; with those of `program`, if it is that."""
    own = {} if program is None else {**environment(*program.env_from), **program.env}
    return {**environment(), **own, "HOME": home_of(agent) if sandbox.state().works else str(Path.home())}


def sign_in(runner: Acp, agent: PoolAgent) -> None:
    """Copy the runner's sign-in files into the agent's HOME, if they are newer than the copies, which the agent may
    have renewed. Raises RunnerFailed for what the agent put in the way."""
    home = home_of(agent)
    for name in runner.sign_in:
        source = os.path.realpath(Path(name).expanduser())  # the operator's own links are followed
        copy = os.path.join(home, name.removeprefix("~/"))
        content = foreign_files.beginning(source, LARGEST_SIGN_IN + 1)
        if content is None or len(content) > LARGEST_SIGN_IN:
            continue
        try:
            known = foreign_files.status(copy)
            if known is None or not stat.S_ISREG(known.st_mode) or known.st_mtime < Path(source).stat().st_mtime:
                foreign_files.replace(copy, content, mode=0o600, may_make=partial(within, roots=(home,)))
        except OSError as error:
            raise RunnerFailed(f"{name} could not be copied into the agent's home: {error.strerror}") from None


def confined(
    command: Sequence[str], runner: Runner, agent: PoolAgent, *, cwd: str, reading: Sequence[str] = ()
) -> list[str]:
    """Return the command line that runs a command as the agent, in the sandbox if there is one. Raises RunnerFailed."""
    if not sandbox.state().works:
        return list(command)
    its_own = [str(Path(path).expanduser()) for path in runner.read_paths] if isinstance(runner, Programs) else []
    if isinstance(runner, Acp):
        its_own += _program(runner.command[0], (agent.permissions.cwd, *its_own))
    tree = PoolWorktree.objects.filter(agent=agent).first()
    fixed = repositories.fixed(agent.permissions, tree.path if tree is not None else None)
    return sandbox.wrap(
        command,
        agent.permissions,
        network=isinstance(runner, Programs) and runner.network,
        cwd=cwd,
        reading=[*its_own, *borrowed(agent), *reading],
        writing=[home_of(agent)],
        links=links(agent),
        fixed=fixed.mounts(),
    )


def borrowed(agent: PoolAgent) -> list[str]:
    """Return the object directories that git needs in the agent's worktree; for a child agent, only those that its
    parent sees.

    Of a repository that its parent did not see, the agent sees only the files of its worktree.
    """
    tree = PoolWorktree.objects.filter(path=agent.cwd).first()
    if tree is None:
        return []
    if agent.parent is None:
        return list(tree.borrowed)
    above = (agent.parent.cwd, *borrowed(agent.parent))
    return [path for path in tree.borrowed if within(path, above)]


def links(agent: PoolAgent) -> list[str]:
    """Return the local files of a project that links in an agent's worktree or clone lead to."""
    if tree := PoolWorktree.objects.at(agent.cwd):
        return [path for path in tree.local_files.values() if path]
    clone = runners().clone_of(agent.cwd)
    if clone is None or clone.files is None:
        return []
    files = checks.approved_files(clone.files)
    return [os.path.join(files.root, path) for path in files.symlink]


def _program(name: str, seen: Sequence[str]) -> list[str]:
    """Return the path of the runner's own program, unless `seen` already holds it."""
    found = shutil.which(name)
    links = [] if found is None else [found, os.path.realpath(found)]
    return [path for path in links if not within(path, (*sandbox.SYSTEM, *sandbox.python(), *seen))]
