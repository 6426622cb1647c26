"""The start of every child process. A test finds any that is started otherwise.

A child gets the environment, the working directory and the descriptors that its caller names, and nothing else of ours.
A guardian process (nexus/core/guardian.py) stands between: when the child's time is over, or when this process has
ended for any reason, the guardian kills the child and everything that the child started. A sandbox needs no guardian.

Hooks of git and of harnesses import this module: what takes long to import is imported where it is used.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, NamedTuple, NoReturn

from nexus.core import outward

if TYPE_CHECKING:
    import asyncio
    import subprocess

# The folder that holds `nexus/`. pathlib is slow to import.
CODE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
GUARDIAN = os.path.join(CODE, "nexus", "core", "guardian.py")
LIFELINE = "NEXUS_LIFELINE"  # the variable that names a sandbox's end of the pipe between it and its starter
NEUTRAL = os.sep  # the working directory of programs that are no agent's: agents write in projects, never here
BASICS = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "USER", "LOGNAME", "SHELL")
OUR_OWN = ("HOME", "TMPDIR", "XDG_RUNTIME_DIR", "SYSTEMROOT", "LD_LIBRARY_PATH")
SETTINGS, LIBPQ = "NEXUS_", "PG"  # how their variables begin
INHERIT, PIPE, STDOUT, DEVNULL = None, -1, -2, -3  # as in subprocess
KILL_SECONDS = 5.0  # for what was killed to be gone
CHUNK = 65_536  # bytes
WATCH_SECONDS, PAUSE_SECONDS = 5.0, 0.005  # between two looks at a watched program; after each chunk of a flood


class Finished(NamedTuple):
    """The end of a program: its exit code and output."""

    code: int  # 128 and a signal's number where one ended it
    output: bytes
    errors: bytes
    cut: bool  # it wrote more than was allowed, and was killed for it


def environment(*names: str, **values: str) -> dict[str, str]:
    """Return the basic variables of this process, the named ones, and `values`.

    PATH keeps its absolute entries only: a relative one would find programs in the child's working directory.
    """
    kept = {name: os.environ[name] for name in (*BASICS, *names) if name in os.environ}
    if "PATH" in kept:
        kept["PATH"] = os.pathsep.join(filter(os.path.isabs, kept["PATH"].split(os.pathsep)))
    return {**kept, **values}


def own_environment(*names: str, settings: bool = True, **values: str) -> dict[str, str]:
    """Return the environment of a Python process of ours: the basics, our settings, and where our code is.

    `settings`: whether it gets the settings (NEXUS_…) of this process's environment. Variables that make Python run
    other code (PYTHONPATH, PYTHONSTARTUP, PYTHONHOME) are not passed on.
    """
    prefixed = (name for name in os.environ if name.startswith((LIBPQ, SETTINGS) if settings else LIBPQ))
    return environment(*OUR_OWN, *outward.VARIABLES, *prefixed, *names, **{"PYTHONPATH": CODE, **values})


def operators_git() -> dict[str, str]:
    """Return the environment in which git finds the operator's configuration, ignored files included, and the
    repository of its working directory: a GIT_DIR would select another."""
    return environment("HOME", "XDG_CONFIG_HOME", *(name for name in os.environ if name.startswith("GIT_CONFIG")))


def python(module: str, *arguments: str, alone: bool = False) -> list[str]:
    """Return the command line of a module of ours. `-P` keeps the working directory out of the import path; `alone`
    keeps out Python's variables, too."""
    return [sys.executable, *(("-E",) if alone else ()), "-P", "-m", module, *arguments]


class Program:
    """A running program and its pipes. Leaving the `with` block kills it."""

    def __init__(self, process: subprocess.Popen[bytes], lifeline: int, sandboxed: bool) -> None:
        self.process, self._lifeline, self._sandboxed = process, lifeline, sandboxed

    @property
    def stdin(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    @property
    def stderr(self) -> IO[bytes]:
        assert self.process.stderr is not None
        return self.process.stderr

    def wait(self, seconds: float | None = None) -> int:
        """Wait for its end and return its exit code. Raises TimeoutError."""
        import subprocess

        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"it runs longer than {seconds:g} seconds") from None

    def kill(self) -> int:
        """Kill it with everything it started and return its exit code."""
        if self._lifeline >= 0:
            if self._sandboxed:
                self._kill_all()
            os.close(self._lifeline)  # the guardian kills what it guards, and ends
            self._lifeline = -1
        try:
            return self.wait(KILL_SECONDS)
        except TimeoutError:  # stuck in the kernel: the program gets a signal when its guardian is gone
            self.process.kill()
            return self.process.wait()

    def _kill_all(self) -> None:
        """Kill a sandbox, and wait until nobody in it has the other end of its lifeline."""
        import select

        with contextlib.suppress(BrokenPipeError):  # it is gone
            os.write(self._lifeline, b"x")  # what has not begun yet does not begin
            self.process.kill()
            gone = select.poll()
            gone.register(self._lifeline, 0)
            gone.poll(KILL_SECONDS * 1000)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # of what an ended program did not read
                    pipe.close()


def start(
    command: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    stdin: int | IO[bytes] | None = DEVNULL,
    stdout: int | IO[bytes] | None = DEVNULL,
    stderr: int | IO[bytes] | None = DEVNULL,
    scratch: str = "",
    sandboxed: bool = False,
    fds: Sequence[int] = (),
) -> Program:
    """Start a program in a session of its own, which ends with this process. It gets the descriptors `fds`, too.

    `scratch` is a directory that is removed when the program has ended. `sandboxed`: the command is one of
    nexus/control/runners/sandbox.py, which the kernel ends, with everything in it, when the calling thread ends or it
    is killed; so it gets no guardian, and no `scratch`. Raises OSError if it cannot be started.
    """
    import subprocess

    _find(command[0], env)
    held, lifeline = os.pipe()
    try:
        process = subprocess.Popen(  # noqa: S603  # no shell
            list(command) if sandboxed else _guarded(command, held, scratch),
            cwd=cwd,
            env={**env, LIFELINE: str(held)} if sandboxed else dict(env),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=(held, *fds),
            start_new_session=True,  # Ctrl-C is for this process to handle
        )
    except BaseException:
        os.close(lifeline)
        raise
    finally:
        os.close(held)
    return Program(process, lifeline, sandboxed)


def run(
    command: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    input: bytes | None = None,
    seconds: float,
    largest: int,
    sandboxed: bool = False,
    fds: Sequence[int] = (),
) -> Finished:
    """Run a program to its end; after `seconds`, or beyond `largest` bytes, kill it with everything that it started.

    `largest` bounds its stdout and its stderr, each; `sandboxed` and `fds` are those of `start`. Raises OSError if it
    cannot be started, and TimeoutError after `seconds`.
    """
    import selectors
    import time

    deadline = time.monotonic() + seconds
    stdin = DEVNULL if input is None else PIPE
    with (
        start(
            command, cwd=cwd, env=env, stdin=stdin, stdout=PIPE, stderr=PIPE, sandboxed=sandboxed, fds=fds
        ) as program,
        selectors.DefaultSelector() as pipes,
    ):
        said = {program.stdout: bytearray(), program.stderr: bytearray()}
        for reading in said:
            pipes.register(reading, selectors.EVENT_READ)
        unsent = memoryview(input or b"")
        if input is not None:
            os.set_blocking(program.stdin.fileno(), False)
            pipes.register(program.stdin, selectors.EVENT_WRITE)
        while pipes.get_map():
            if (left := deadline - time.monotonic()) <= 0:
                raise TimeoutError(f"it takes longer than {seconds:g} seconds")
            for key, _ in pipes.select(left):
                stream: Any = key.fileobj
                if key.events == selectors.EVENT_WRITE:
                    unsent = unsent[_feed(stream, unsent) :]
                    if not unsent:
                        pipes.unregister(stream)
                        stream.close()
                elif chunk := os.read(key.fd, CHUNK):
                    said[stream] += chunk
                    if len(said[stream]) > largest:
                        return _finished(program.kill(), said, program, largest, cut=True)
                else:
                    pipes.unregister(stream)
        code = program.wait(max(deadline - time.monotonic(), 0))
        return _finished(code, said, program, largest, cut=False)


class Watched(NamedTuple):
    """The end of a watched program: its exit code (None where its time was over), and the ends of its output."""

    code: int | None
    output: bytes


def watch(
    command: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    seconds: float,
    largest: int,
    alive: Callable[[], None],
) -> Watched:
    """Run a program to its end, or for `seconds`; `alive` is called every few seconds, and ends it by raising.

    Of its output, stderr included, the first and the last `largest` bytes are kept. Raises OSError if it cannot be
    started.
    """
    import selectors
    import time

    deadline = time.monotonic() + seconds
    first, last, left_out = bytearray(), bytearray(), 0
    code: int | None = None
    looked = -WATCH_SECONDS
    with (
        start(command, cwd=cwd, env=env, stdout=PIPE, stderr=STDOUT) as program,
        selectors.DefaultSelector() as pipe,
    ):
        pipe.register(program.stdout, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            if time.monotonic() - looked >= WATCH_SECONDS:
                alive()
                looked = time.monotonic()
            if not pipe.get_map():
                with contextlib.suppress(TimeoutError):
                    code = program.wait(min(left, WATCH_SECONDS))
                    break
            elif pipe.select(min(left, WATCH_SECONDS)):
                if not (chunk := os.read(program.stdout.fileno(), CHUNK)):
                    pipe.unregister(program.stdout)
                room = largest - len(first)
                first += chunk[:room]
                last += chunk[room:]
                left_out += max(len(last) - largest, 0)
                del last[:-largest]
                time.sleep(PAUSE_SECONDS)
    cut = f"\n[{left_out} bytes left out]\n".encode() if left_out else b""
    return Watched(code, bytes(first) + cut + bytes(last))


def _feed(stream: IO[bytes], data: memoryview) -> int:
    """Write what a pipe accepts now and return the number of bytes; all of them if nobody reads the pipe any more."""
    try:
        return os.write(stream.fileno(), data[:CHUNK]) if data else 0
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return len(data)


def _finished(code: int, said: Mapping[IO[bytes], bytearray], program: Program, largest: int, *, cut: bool) -> Finished:
    output, errors = (bytes(said[stream][:largest]) for stream in (program.stdout, program.stderr))
    return Finished(code, output, errors, cut)


class Started(NamedTuple):
    """A program that asyncio started."""

    process: asyncio.subprocess.Process  # its guardian
    lifeline: int  # closing this descriptor kills it


async def start_async(
    command: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    stdin: int | None = PIPE,
    stdout: int | None = PIPE,
    stderr: int | None = PIPE,
    limit: int = CHUNK,
    scratch: str = "",
) -> Started:
    """Start a program as `start` does; the caller ends it. `limit` bounds the bytes of a line that is read.

    Raises OSError if it cannot be started. If this is cancelled, it leaves nothing behind.
    """
    import asyncio

    _find(command[0], env)
    held, lifeline = os.pipe()
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            *_guarded(command, held, scratch),
            cwd=cwd,
            env=dict(env),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            limit=limit,
            pass_fds=(held,),
            start_new_session=True,
        )
    )
    starting.add_done_callback(lambda _: os.close(held))
    try:
        process = await asyncio.shield(starting)
    except asyncio.CancelledError:  # asyncio would kill the guardian, and nothing of what it guards
        os.close(lifeline)
        await asyncio.wait((starting,))
        if starting.exception() is None:
            await _ended(starting.result())
        raise
    except BaseException:
        os.close(lifeline)
        raise
    return Started(process, lifeline)


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Wait for a program whose start was cancelled, and read what asyncio would wait for."""
    if process.stdin is not None:
        process.stdin.close()
    for stream in (process.stdout, process.stderr):
        while stream is not None and await stream.read(CHUNK):
            pass
    await process.wait()


def _guarded(command: Sequence[str], lifeline: int, scratch: str) -> list[str]:
    return [sys.executable, "-I", "-S", GUARDIAN, str(lifeline), scratch, *command]


def _find(program: str, env: Mapping[str, str]) -> None:
    """Check that a program exists. Raises FileNotFoundError: the guardian would only give an exit code."""
    import shutil

    if shutil.which(program, path=env.get("PATH", os.defpath)) is None:
        raise FileNotFoundError(2, os.strerror(2), program)


def in_foreground(
    command: Sequence[str],
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    input: bytes | None = None,
    captured: bool = False,
) -> Finished:
    """Run a program as a part of this process, with its terminal, environment (or `env`) and working directory (or
    `cwd`).

    For programs that a person's command or git's hook runs in its own name, such as a hook that was installed
    before ours. Raises OSError.
    """
    import subprocess

    stream = subprocess.PIPE if captured else None
    done = subprocess.run(  # noqa: S603  # no shell
        list(command), cwd=cwd, env=env, input=input, stdout=stream, stderr=stream, check=False
    )
    return Finished(done.returncode, done.stdout or b"", done.stderr or b"", False)


def start_detached(
    command: Sequence[str], *, cwd: str, env: Mapping[str, str], log: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start a program that outlives this process, in a session of its own; its output goes to `log`.

    Only for the hub, which has no guardian. Raises OSError if it cannot be started.
    """
    import subprocess

    return subprocess.Popen(  # noqa: S603  # no shell
        list(command), cwd=cwd, env=dict(env), stdin=DEVNULL, stdout=log, stderr=STDOUT, start_new_session=True
    )


def start_again() -> NoReturn:
    """Become the same command anew, with the variables as they are now."""
    become([sys.executable, *sys.orig_argv[1:]])


def become(command: Sequence[str]) -> NoReturn:
    """Become another program, which keeps this process's id, variables and standard streams. Raises OSError."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and programs inherit it
        signal.signal(number, signal.SIG_DFL)
    os.execvp(command[0], list(command))  # noqa: S606  # no shell


def in_background(work: Callable[[], None], seconds: int, *, in_terminal: bool = False) -> None:
    """Run `work` in a fork that nobody waits for, for at most `seconds` (0: for ever); at once if the system cannot
    fork. `in_terminal`: it may ask which process has the terminal."""
    if not hasattr(os, "fork"):
        work()
    elif os.fork() == 0:
        try:
            os.setpgid(0, 0) if in_terminal else os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):  # who started us reads until its pipes are closed
                os.dup2(null, stream)
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            signal.alarm(seconds)
            work()
        finally:
            os._exit(0)
