"""Commands of Nexus as processes that start warm: forks of a Python that has loaded Nexus.

Hundreds of tests drive real processes, and most of what one of them costs is importing what it is built on, which no
test is about. The fork servers are the standard library's. What they make is a process of its own, with a pid, an
environment, a directory and standard streams as it was told. There are three, each started when it is first asked
for: one has the apps of an agent's process, one has all of the hub's, and one has libraries alone, for a program of a
test's own. None has opened a store or started a thread, and a fork reads settings of its own.

Tests of the start itself, of what a command imports, and of what an interpreter is told at its start, start a Python
of their own: they give a `command`, or run `sys.executable`.
"""

from __future__ import annotations

import io
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, chdir
from multiprocessing import forkserver, popen_forkserver, reduction, util
from multiprocessing.context import set_spawning_popen
from multiprocessing.process import BaseProcess, current_process
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from tempfile import TemporaryFile
from typing import IO, Any

from nexus_site.launch import is_lean
from tests import preload

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "manage.py"
LIBRARIES, HUB, AGENTS = "tests.preload.libraries", "tests.preload.hub", "tests.preload.agents"
SERVERS = {module: forkserver.ForkServer() for module in (LIBRARIES, HUB, AGENTS)}
STARTED = set[str]()
for module, server in SERVERS.items():
    server.set_forkserver_preload([module])


def server_of(arguments: Sequence[str], program: Path) -> str:
    """What is loaded already where a command starts."""
    if program != PROGRAM:
        return LIBRARIES
    return AGENTS if is_lean("".join(arguments[:1]).replace("-", "_")) else HUB


class Process:
    """`nexus ARGUMENTS`, running: to be used as a `subprocess.Popen` is."""

    stdin: IO[Any] | None = None
    stdout: IO[Any] | None = None
    stderr: IO[Any] | None = None

    def __init__(
        self,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        *,
        stdin: int = DEVNULL,
        stdout: int = 1,
        stderr: int = 2,
        text: bool = False,
        program: Path = PROGRAM,
    ) -> None:
        given: list[int] = []
        with ExitStack() as closing:  # what is the other's only
            for name, stream in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr)):
                if stream == STDOUT:
                    given.append(given[1])
                    continue
                if stream == DEVNULL:
                    stream = os.open(os.devnull, os.O_RDWR)
                    closing.callback(os.close, stream)
                elif stream == PIPE:
                    ends = os.pipe()
                    mine, stream = ends if name != "stdin" else reversed(ends)
                    closing.callback(os.close, stream)
                    writes = "w" if name == "stdin" else "r"
                    setattr(self, name, os.fdopen(mine, writes if text else f"{writes}b"))
                given.append(stream)
            streams = [Descriptor(number) for number in given]
            self._process = Forked(
                name=server_of(arguments, program),
                target=_become,
                args=([str(program), *arguments], dict(environ), streams),
                daemon=True,
            )
            self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("nexus", timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def terminate(self) -> None:
        self._process.terminate()


def run(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    *,
    given: str = "",
    timeout: float,
    program: Path = PROGRAM,
) -> subprocess.CompletedProcess[str]:
    """`nexus ARGUMENTS` to its end, with what it reads."""
    with TemporaryFile("w+") as stdin, TemporaryFile("w+") as stdout, TemporaryFile("w+") as stderr:
        stdin.write(given)
        stdin.seek(0)
        process = Process(
            arguments,
            environ,
            stdin=stdin.fileno(),
            stdout=stdout.fileno(),
            stderr=stderr.fileno(),
            program=program,
        )
        try:
            code = process.wait(timeout)
        except BaseException:
            process.kill()
            raise
        for said in (stdout, stderr):
            said.seek(0)
        return subprocess.CompletedProcess(["nexus", *arguments], code, stdout.read(), stderr.read())


class Fork(popen_forkserver.Popen):
    """The standard library's, but for two things: the server is the one that the process is named after, and a fork
    does not import the main module of the tests."""

    def _launch(self, process: BaseProcess) -> None:
        told = io.BytesIO()
        set_spawning_popen(self)
        try:
            reduction.dump({"sys_path": sys.path, "dir": str(Path.cwd())}, told)
            reduction.dump(process, told)
        finally:
            set_spawning_popen(None)
        if process.name not in STARTED:
            with chdir(ROOT):  # it looks for what it loads where it starts, and a test may be elsewhere
                SERVERS[process.name].ensure_running()
            STARTED.add(process.name)
        self.sentinel, pipe = SERVERS[process.name].connect_to_new_process(self._fds)  # type: ignore[attr-defined]
        self.finalizer = util.Finalize(self, os.close, (self.sentinel,))
        with os.fdopen(pipe, "wb") as writing:
            writing.write(told.getbuffer())
        self.pid = forkserver.read_signed(self.sentinel)


class Forked(BaseProcess):
    _start_method = "forkserver"

    @staticmethod
    def _Popen(process: BaseProcess) -> Fork:
        return Fork(process)


class Descriptor:
    """An open file on its way to the fork server, where it arrives as a number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (reduction.DupFd(self.number),)


def _arrived(duplicate: Any) -> int:
    return int(duplicate.detach())


def _become(command: list[str], environ: dict[str, str], streams: list[int]) -> None:
    """In the fork: be that command. The fork server ends it as an interpreter does, with the same exit codes."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, 1024)  # the fork server's own
    os.environ.clear()
    os.environ.update(environ)
    tempfile.tempdir = None  # the fork server's may be that of a test, which is gone
    sys.stdin = os.fdopen(0, errors="surrogateescape", closefd=False)
    at_once = 1 if "PYTHONUNBUFFERED" in environ else -1
    sys.stdout = os.fdopen(1, "w", at_once, errors="surrogateescape", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    sys.argv, sys.path[0] = command, str(Path(command[0]).parent)
    loaded = current_process().name
    assert loaded in sys.modules, "the fork server failed to load it"
    if loaded != LIBRARIES:
        preload.forget()
    runpy.run_path(command[0], run_name="__main__")
