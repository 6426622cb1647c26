"""Calls git several times in one sandbox: git_steps.py FORMAT OPTIONS…, with the steps as a line of JSON on stdin.

A step is its arguments, the exit codes that it may have, the most bytes of its output that are kept, and the length of
its input, which follows that line; -1 for what the last step said. An argument that is a number stands for the line
that a step before said, -1 for the last one. `most_bytes`: the files whose names it says may have no more in sum.
`apart`: with a FORMAT of objects, it works in an empty repository of ours; other steps get the OPTIONS. `pipe`: its
input and output are these descriptors. For each step this program writes a line of JSON, `{"code", "size", "cut",
"errors"}`, and so many bytes of output; after another exit code it ends.
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
SHALLOW = "NEXUS_SHALLOW"  # the file that says where the history of an empty repository of ours ends
LARGEST_FILE = "NEXUS_LARGEST_FILE"  # bytes of each file that git writes
MOST_MEMORY = "NEXUS_MOST_MEMORY"  # bytes that each git may take
HEAD = 60_000  # bytes of a step's line at most
ERRORS = 10_000  # bytes of a step's stderr that are kept, at its end
NOT_FOUND = 127
CHUNK = 65_536
# Variables of the empty repository of ours.
APART = ("GIT_DIR", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_INDEX_FILE")


def main() -> None:
    format, *options = sys.argv[1:]
    lines, outputs = list[bytes](), list[bytes]()
    os.makedirs(os.environ["SCRATCH"], exist_ok=True)
    if INDEX in os.environ:
        copy(os.environ.pop(INDEX), os.environ["GIT_INDEX_FILE"])
    for name, kind in ((LARGEST_FILE, resource.RLIMIT_FSIZE), (MOST_MEMORY, resource.RLIMIT_DATA)):
        if name in os.environ:
            bound(kind, int(os.environ.pop(name)))
    own = {name: value for name, value in os.environ.items() if name not in APART}
    if format:
        empty = ["init", "--quiet", "--bare", "--template=", "--initial-branch=none", f"--object-format={format}"]
        if (made := call(["git", *empty], dict(os.environ), b"", 0, None))[0]:
            sys.exit(made[3].decode(errors="replace"))
        copy(os.environ.pop(SHALLOW, os.devnull), os.path.join(os.environ["GIT_DIR"], "shallow"))
    for step in json.loads(sys.stdin.buffer.readline()):
        is_apart, length = format and step["apart"], step["input"]
        arguments = [lines[one] if isinstance(one, int) else one for one in step["arguments"]]
        line = ["git", "--no-pager", *(() if is_apart else options), *arguments]
        given = outputs[length] if length < 0 else sys.stdin.buffer.read(length)
        env = dict(os.environ) if is_apart else own
        code, output, cut, errors = call(line, env, given, step["largest"], step["pipe"])
        if code == 0 and step["most_bytes"] is not None and is_over(output, step["most_bytes"]):
            code, errors = 1, f"its files have over {step['most_bytes']} bytes; remove or ignore what is large".encode()
        head = {"code": code, "size": len(output), "cut": cut, "errors": errors.decode(errors="replace").strip()}
        sys.stdout.buffer.write(json.dumps(head).encode() + b"\n" + output)
        sys.stdout.buffer.flush()
        if not cut and code not in step["expect"]:
            return
        lines.append(output.strip())
        outputs.append(output)


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


def call(
    line: list[str | bytes], env: dict[str, str], given: bytes, largest: int, pipe: list[int] | None
) -> tuple[int, bytes, bool, bytes]:
    """Run a program to its end, or until it says more than `largest` bytes. Its code, output, whether that is cut, and
    the end of its stderr."""
    stdin, stdout = pipe or (subprocess.PIPE, subprocess.PIPE)
    try:
        started = subprocess.Popen(  # noqa: S603  # no shell
            line, env=env, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, close_fds=False
        )
    except OSError as error:
        return NOT_FOUND, b"", False, f"{line[0]!r}: {error.strerror}".encode()
    errors = bytearray()
    beside = (
        threading.Thread(target=feed, args=(started, given)),
        threading.Thread(target=hear, args=(started, errors)),
    )
    for each in beside:
        each.start()
    output = b"" if started.stdout is None else started.stdout.read(largest + 1)
    if cut := len(output) > largest:
        started.kill()
    if started.stdout is not None:
        started.stdout.close()
    for each in beside:
        each.join()
    return started.wait(), output[:largest], cut, bytes(errors)


def feed(started: subprocess.Popen[bytes], given: bytes) -> None:
    """Write its input."""
    if started.stdin is None:
        return
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
