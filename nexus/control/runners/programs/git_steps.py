"""Calls git several times in one sandbox: git_steps.py FORMAT OPTIONS…, with the steps on stdin, as `marshal` has them.

A step is its arguments, the exit codes that it may have, the most bytes of its output that are kept, its input, -1 for
what the last step said, and three more. An argument that is a number stands for the line that a step before said, -1
for the last one. `most_bytes`: the files whose names it says may have no more in sum. `apart`: with a FORMAT of
objects, it works in an empty repository of ours; other steps get the OPTIONS. `pipe`: its input and output are these
descriptors. For each step this program writes a line of numbers (the exit code, whether the output was cut, and the
lengths of what follows), the output, and the end of what git says of its errors; after another exit code it ends.

It is started for each call, so it imports little: `subprocess` and `json` take longer than Python itself.
"""

from __future__ import annotations

import marshal
import os
import resource
import select
import stat
import sys

INDEX = "NEXUS_INDEX"  # the index that GIT_INDEX_FILE begins as
SHALLOW = "NEXUS_SHALLOW"  # the file that says where the history of an empty repository of ours ends
LARGEST_FILE = "NEXUS_LARGEST_FILE"  # bytes of each file that git writes
MOST_MEMORY = "NEXUS_MOST_MEMORY"  # bytes that each git may take
ERRORS = 10_000  # bytes of a step's stderr that are kept, at its end
HEAD = ERRORS + 100  # bytes of a step's answer, without its output, at most
NOT_FOUND = 127
CHUNK = 65_536
SIGKILL, SIGPIPE, SIGXFSZ = 9, 13, 25  # `signal` would bring enum
RESTORED = (SIGPIPE, SIGXFSZ)  # Python ignores them, and git would inherit that
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
    for arguments, expect, largest, given, most_bytes, apart, pipe in marshal.load(sys.stdin.buffer):  # noqa: S302
        arguments = [lines[one] if isinstance(one, int) else one for one in arguments]
        apart = format and (apart or not options)
        line = ["git", "--no-pager", *(() if apart else options), *arguments]
        env = dict(os.environ) if apart else own
        given = outputs[given] if isinstance(given, int) else given
        code, output, is_cut, errors = call(line, env, given, largest, pipe)
        if code == 0 and most_bytes is not None and is_over(output, most_bytes):
            code, errors = 1, f"its files have over {most_bytes} bytes; remove or ignore what is large".encode()
        head = b"%d %d %d %d\n" % (code, is_cut, len(output), len(errors))
        sys.stdout.buffer.write(head + output + errors)
        sys.stdout.buffer.flush()
        if not is_cut and code not in expect:
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
                while part := index.read(CHUNK):
                    made.write(part)
            os.utime(target, ns=(about.st_atime_ns, about.st_mtime_ns))


def call(
    line: list[str | bytes], env: dict[str, str], given: bytes, largest: int, pipe: tuple[int, int] | None
) -> tuple[int, bytes, bool, bytes]:
    """Run a program to its end, or until it says more than `largest` bytes. Its code, output, whether that is cut, and
    the end of its stderr."""
    output, errors, left, is_cut = bytearray(), bytearray(), memoryview(given), False
    listens, stderr = os.pipe()
    (stdin, feeds), (reads, stdout) = (os.pipe(), os.pipe()) if pipe is None else ((pipe[0], -1), (-1, pipe[1]))
    streams = [(os.POSIX_SPAWN_DUP2, end, number) for number, end in enumerate((stdin, stdout, stderr))]
    try:
        started = os.posix_spawnp(line[0], line, env, file_actions=streams, setsigdef=RESTORED)
    except OSError as error:
        return NOT_FOUND, b"", False, f"{line[0]!r}: {error.strerror}".encode()
    for end in (stdin, stdout, stderr) if pipe is None else (stderr,):
        os.close(end)
    poll, ours = select.poll(), {listens, feeds, reads} - {-1}
    for end in ours:
        poll.register(end, select.POLLOUT if end == feeds else select.POLLIN)
    while ours:
        for end, _ in poll.poll():
            if end == feeds:
                left = left[fed(feeds, left) :]
                is_over = not left
            else:
                said = os.read(end, CHUNK)
                (output if end == reads else errors).extend(said)
                is_over = not said
            if len(output) > largest and not is_cut:
                os.kill(started, SIGKILL)
                is_cut = is_over = True
            if is_over:
                poll.unregister(end)
                os.close(end)
                ours.remove(end)
        del errors[:-ERRORS]
    code = os.waitstatus_to_exitcode(os.waitpid(started, 0)[1])
    return code, bytes(output[:largest]), is_cut, bytes(errors)


def fed(end: int, left: memoryview) -> int:
    """Write what a pipe takes at once; return how much need not be written any more."""
    try:
        return os.write(end, left[: select.PIPE_BUF])
    except BrokenPipeError:
        return len(left)


def is_over(names: bytes, most: int) -> bool:
    """Return whether files have more bytes in sum."""
    size = 0
    for name in names.split(b"\0")[:-1]:
        try:
            size += os.lstat(name).st_size
        except OSError:
            continue
    return size > most


if __name__ == "__main__":
    main()
