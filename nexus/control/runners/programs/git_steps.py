"""Calls git several times in one sandbox: git_steps.py GIT…, with the steps as a line of JSON on stdin.

A step is its arguments, the exit codes that it may have, the most bytes of its output that are kept, and the length of
its input, which follows that line. An argument that is a number stands for the line that the step of this number said.
`most_bytes`: the files whose names it says may have no more in sum. For each step it writes a line of JSON, `{"code",
"size", "cut", "errors"}`, and so many bytes of output; after another exit code it ends.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import stat
import subprocess
import sys
import threading
from contextlib import suppress

INDEX = "NEXUS_INDEX"  # the index that GIT_INDEX_FILE begins as
LARGEST_FILE = "NEXUS_LARGEST_FILE"  # bytes of each file that git writes
MOST_MEMORY = "NEXUS_MOST_MEMORY"  # bytes that each git may take
HEAD = 60_000  # bytes of a step's line at most
ERRORS = 10_000  # bytes of a step's stderr that are kept, at its end
NOT_FOUND = 127
CHUNK = 65_536


def main() -> None:
    git, lines = sys.argv[1:], list[bytes]()
    os.makedirs(os.environ["SCRATCH"], exist_ok=True)
    if INDEX in os.environ:
        copy(os.environ.pop(INDEX), os.environ["GIT_INDEX_FILE"])
    for name, kind in ((LARGEST_FILE, resource.RLIMIT_FSIZE), (MOST_MEMORY, resource.RLIMIT_DATA)):
        if name in os.environ:
            bound(kind, int(os.environ.pop(name)))
    for step in json.loads(sys.stdin.buffer.readline()):
        line = [*git, *(lines[one] if isinstance(one, int) else one for one in step["arguments"])]
        code, output, cut, errors = call(line, sys.stdin.buffer.read(step["input"]), step["largest"])
        if code == 0 and step["most_bytes"] is not None and is_over(output, step["most_bytes"]):
            code, errors = 1, f"its files have over {step['most_bytes']} bytes; remove or ignore what is large".encode()
        head = {"code": code, "size": len(output), "cut": cut, "errors": errors.decode(errors="replace").strip()}
        sys.stdout.buffer.write(json.dumps(head).encode() + b"\n" + output)
        sys.stdout.buffer.flush()
        if not cut and code not in step["expect"]:
            return
        lines.append(output.strip())


def bound(kind: int, most: int) -> None:
    """Set a limit for all that is started, unless there is a lower one."""
    hard = resource.getrlimit(kind)[1]
    most = most if hard == resource.RLIM_INFINITY else min(hard, most)
    resource.setrlimit(kind, (most, most))


def copy(source: str, target: str) -> None:
    """Copy a regular file, with its time, by which git knows what to read anew."""
    try:
        opened = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return
    with open(opened, "rb") as index:
        about = os.fstat(opened)
        if stat.S_ISREG(about.st_mode):
            with open(target, "wb") as made:
                shutil.copyfileobj(index, made)
            os.utime(target, ns=(about.st_atime_ns, about.st_mtime_ns))


def call(line: list[str | bytes], given: bytes, largest: int) -> tuple[int, bytes, bool, bytes]:
    """Run a program to its end, or until it says more than `largest` bytes. Its code, output, whether that is cut, and
    the end of its stderr."""
    try:
        started = subprocess.Popen(  # noqa: S603  # no shell
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, close_fds=False
        )
    except OSError as error:
        return NOT_FOUND, b"", False, f"{line[0]!r}: {error.strerror}".encode()
    assert started.stdin is not None and started.stdout is not None
    errors = bytearray()
    beside = (
        threading.Thread(target=feed, args=(started, given)),
        threading.Thread(target=hear, args=(started, errors)),
    )
    for each in beside:
        each.start()
    output = started.stdout.read(largest + 1)
    if cut := len(output) > largest:
        started.kill()
    started.stdout.close()
    for each in beside:
        each.join()
    return started.wait(), output[:largest], cut, bytes(errors)


def feed(started: subprocess.Popen[bytes], given: bytes) -> None:
    """Write its input."""
    assert started.stdin is not None
    with suppress(BrokenPipeError):
        started.stdin.write(given)
    with suppress(BrokenPipeError):
        started.stdin.close()


def hear(started: subprocess.Popen[bytes], errors: bytearray) -> None:
    """Read its stderr to the end, and keep the last of it."""
    assert started.stderr is not None
    while said := os.read(started.stderr.fileno(), CHUNK):
        errors += said
        del errors[:-ERRORS]


def is_over(names: bytes, most: int) -> bool:
    """Return whether files have more bytes in sum."""
    size = 0
    for name in names.split(b"\0")[:-1]:
        with suppress(OSError):
            size += os.lstat(name).st_size
    return size > most


if __name__ == "__main__":
    main()
