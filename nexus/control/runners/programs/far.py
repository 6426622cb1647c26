"""Run a program on another machine, for a hub that reaches it by ssh. The hub sends this text, so nothing of Nexus has
to be there; Python 3.9 and the standard library do.

`main` gets what the first line of stdin says in JSON. It answers with one line, then stdin and stdout are the
program's. The program ends, with everything that it started, when stdin does, or when no line came for SILENT_SECONDS:
an empty line is a sign of life, which the program does not see.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, NoReturn

SILENT_SECONDS = 30
LEAVE_SECONDS = 2  # to end by itself, once its stdin is closed
MOST_LINES = 1_000  # that the program has not read
LARGEST_CODE = 127  # above are those of an ssh that was killed, or whose connection broke
OLDEST = (3, 9)


def main(given: dict[str, Any]) -> None:
    """Run `given["command"]`, and exit with its code. `given["files"]` are put into a directory of its own first, one
    of them a guardian.py; `given["mark"]` is a part of the answer."""
    answer: dict[str, Any] = {"nexus": given["mark"]}
    try:
        if "resolve" in given:
            answer["paths"] = [_real(path) for path in given["resolve"]]
        else:
            answer.update(scratch=_prepare(given), python=sys.executable)
    except OSError as error:
        answer["error"] = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    except ValueError as error:  # a NUL, or what its encoding does not have
        answer["error"] = f"a path, a variable or a name is not valid there: {error}"
    os.write(1, b"\n%s\n" % json.dumps(answer).encode())  # what a shell printed before may have no end of line
    if "scratch" in answer:
        _run(answer["scratch"], given["command"])


def _real(path: str) -> str | None:
    """Return a path with its symlinks resolved; None if no file can have it, as with a NUL."""
    try:
        return os.path.realpath(path)
    except ValueError:
        return None


def _prepare(given: dict[str, Any]) -> str:
    """Go where the program starts, with its environment, and return its directory of files. Raises OSError."""
    if sys.version_info < OLDEST:
        raise OSError(f"its python3 is {sys.version.split()[0]}, and 3.9 is needed")
    os.environ.update(given["env"])
    for path in given["paths"]:
        if (real := os.path.realpath(path)) != path:
            raise OSError(f"{path} is {real} there: create the agent with that path")
    if given["cwd"] is not None:
        os.chdir(given["cwd"])
    name = given["command"][0]
    if shutil.which(name) is None:
        raise OSError(f"there is no program {name!r} on the PATH there, {os.environ.get('PATH', os.defpath)}")
    scratch = os.path.realpath(tempfile.mkdtemp(prefix="nexus-"))
    for file, text in given["files"].items():
        with open(os.path.join(scratch, file), "w", encoding="utf-8") as opened:
            opened.write(text)
    if given["cwd"] is None:
        os.chdir(scratch)
    return scratch


def _run(scratch: str, command: list[str]) -> NoReturn:
    held, lifeline = os.pipe()
    guardian = os.path.join(scratch, "guardian.py")
    child = subprocess.Popen(  # noqa: S603  # no shell
        [sys.executable, "-I", "-S", guardian, str(held), scratch, *command],
        stdin=subprocess.PIPE,
        pass_fds=(held,),
        start_new_session=True,
    )
    os.close(held)
    lines: queue.Queue[bytes] = queue.Queue(MOST_LINES)
    over = threading.Event()
    for work in ((_read, lines, over), (_write, lines, child, over), (_end, over, lifeline)):
        threading.Thread(target=work[0], args=work[1:], daemon=True).start()
    code = child.wait()
    if not 0 <= code <= LARGEST_CODE:
        os.write(2, b"its exit code was %d\n" % code)
        code = 1
    os._exit(code)  # without waiting for the threads


def _read(lines: queue.Queue[bytes], over: threading.Event) -> None:
    """Read lines until there are no more. It does not wait for the program to take them, so it hears every sign of
    life."""
    while True:
        signal.alarm(SILENT_SECONDS)
        line = sys.stdin.buffer.readline()
        if not line:
            break
        if line != b"\n":
            lines.put(line)
    over.set()
    lines.put(b"")


def _write(lines: queue.Queue[bytes], child: subprocess.Popen[bytes], over: threading.Event) -> None:
    """Pass lines on to the program until there are no more."""
    assert child.stdin is not None
    try:
        while line := lines.get():
            child.stdin.write(line)
            child.stdin.flush()
        child.stdin.close()
    except OSError:  # it reads no more
        over.set()


def _end(over: threading.Event, lifeline: int) -> None:
    """End the program once its input is over. If the alarm ends this process instead, the lifeline is closed, too."""
    over.wait()
    signal.alarm(0)
    time.sleep(LEAVE_SECONDS)
    os.close(lifeline)
