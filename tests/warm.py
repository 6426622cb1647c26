"""Commands of Nexus as processes that start warm: forks of one Python that has imported the libraries.

Hundreds of tests drive real processes, and most of what one of them costs is importing what it is built on, which no
test is about. The fork server is the standard library's. What it makes is a process of its own, with a pid, an
environment, a directory and standard streams as it was told, and imports Nexus itself. Tests of the start itself, and
of what an interpreter is told at its start, start a Python of their own.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from multiprocessing import get_context, reduction
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from tempfile import TemporaryFile
from typing import IO, Any

ROOT = Path(__file__).parents[1]
FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(["tests.libraries"])


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
        program: Path = ROOT / "manage.py",
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
            self._process = FORKS.Process(
                target=_become, args=([str(program), *arguments], dict(environ), streams), daemon=True
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
    program: Path = ROOT / "manage.py",
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
    sys.stdin = os.fdopen(0, errors="surrogateescape", closefd=False)
    at_once = 1 if "PYTHONUNBUFFERED" in environ else -1
    sys.stdout = os.fdopen(1, "w", at_once, errors="surrogateescape", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    sys.argv, sys.path[0] = command, str(Path(command[0]).parent)
    runpy.run_path(command[0], run_name="__main__")
