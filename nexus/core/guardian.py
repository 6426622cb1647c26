"""Run a program and leave nothing of it behind: guardian.py LIFELINE SCRATCH COMMAND…

nexus/core/processes.py starts it by its file, with the standard library alone, one for each program. So it imports
little.

It ends when the program does, or when nobody holds the other end of LIFELINE (a pipe's descriptor) any more; the kernel
closes that however the starting process ended. Then everything that the program started is killed, daemons too, and
SCRATCH, a directory, is removed. Its exit code is the program's.
"""

from __future__ import annotations

import ctypes
import math
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
NOT_FOUND = 127
DEFAULTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)
PAUSE_SECONDS = 0.002  # between two looks at what is still alive
CLOSE_LOOKS = 50  # at its children alone, each followed by the kill at once


def main() -> int:
    lifeline, scratch, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    os.set_inheritable(lifeline, False)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # a byte on the pipe says it all
    adopt()
    try:
        program = launch(command)
        for descriptor in (0, 1):  # only the program keeps them open, so they end with it
            os.close(descriptor)
        code = _until_over(program, lifeline, woken)
        if sys.platform != "linux":
            _attempt(os.killpg, program, signal.SIGKILL)
        kill_all()
        return code
    finally:
        if scratch:
            import shutil  # late: it takes longer than all else here

            shutil.rmtree(scratch, ignore_errors=True)


def launch(command: list[str]) -> int:
    """Start a program in a session of its own and return its pid; it is killed when this process ends (on Linux).

    A program that cannot be started exits with NOT_FOUND.
    """
    ours = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            for number in DEFAULTS:  # a program inherits what is ignored here
                signal.signal(number, signal.SIG_DFL)
            _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == ours:  # else it went before that held
                os.execvp(command[0], command)
        except OSError as error:
            os.write(2, f"{command[0]}: {error.strerror}\n".encode(errors="replace"))
        finally:
            os._exit(NOT_FOUND)
    return pid


def _until_over(program: int, lifeline: int, woken: int) -> int:
    """Return the program's exit code, or 128 and the signal's number."""
    poll = select.poll()
    poll.register(lifeline, select.POLLIN | select.POLLHUP)
    poll.register(woken, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if lifeline in ready:
            return 128 + signal.SIGKILL
        received = os.read(woken, 4096)
        for pid, status in _reaped():
            if pid == program:
                code = os.waitstatus_to_exitcode(status)
                return 128 - code if code < 0 else code
        if set(received) - {signal.SIGCHLD}:
            return 128 + signal.SIGTERM


def kill_all(seconds: float = math.inf) -> set[int]:
    """Kill all descendants of this process, also those that they start meanwhile; return those that live when the time
    is over.

    The kernel shows when these are all: an orphan becomes our child. A list of all processes does not, because it
    misses a process that starts another and ends.
    """
    ours, deadline = os.getpid(), time.monotonic() + seconds
    while _has_children():
        left = _descendants(ours)
        for number in (signal.SIGSTOP, signal.SIGKILL):  # what stands still starts no other
            for pid in left:
                _attempt(os.kill, pid, number)
        for _ in range(CLOSE_LOOKS):
            for pid in _children(ours):
                _attempt(os.kill, pid, signal.SIGKILL)
        _reaped()
        if time.monotonic() > deadline:
            return left
        time.sleep(PAUSE_SECONDS)
    return set()


def _attempt(kill: Callable[[int, int], None], pid: int, number: int) -> None:
    try:  # noqa: SIM105
        kill(pid, number)
    except OSError:
        pass


def _reaped() -> list[tuple[int, int]]:
    ended = []
    try:
        while (one := os.waitpid(-1, os.WNOHANG))[0]:
            ended.append(one)
    except ChildProcessError:
        pass
    return ended


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # reaps nothing
    except ChildProcessError:
        return False
    return True


def _children(parent: int) -> list[int]:
    """Return the children of a process with one thread; cheap, and as current as possible. None if the system does not
    say."""
    try:
        with open(f"/proc/{parent}/task/{parent}/children") as opened:
            return [int(pid) for pid in opened.read().split()]
    except OSError:
        return []


def _descendants(root: int) -> set[int]:
    """Return every living descendant of this process on Linux; elsewhere only the process group is known."""
    children: dict[int, list[int]] = {}
    dead: set[int] = set()
    for name in _entries("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as opened:
                    state, parent = opened.read().rpartition(b")")[2].split()[:2]
            except (OSError, ValueError):  # it went meanwhile
                continue
            children.setdefault(int(parent), []).append(int(name))
            if state in b"ZX":
                dead.add(int(name))
    found: set[int] = set()
    pending = [root]
    while pending:
        for child in children.get(pending.pop(), []):
            if child not in found:
                found.add(child)
                pending.append(child)
    return found - dead


def _entries(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def adopt() -> None:
    """Become the parent of whatever a descendant of this process leaves behind, from now on (on Linux)."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    """Call Linux's prctl; do nothing elsewhere."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
