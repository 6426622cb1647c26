"""The first program in a sandbox: sandbox_init.py PROCESSES [DEVICE:INODE:PATH…] -- COMMAND…

The mounts were checked before, by path. This program checks that each is still the same file and was not replaced
meanwhile, limits the number of processes and threads, and becomes the command. It does nothing if the pipe
NEXUS_LIFELINE is over: whoever started the sandbox ended it, or ended, before the kernel was told to end this, too.
"""

from __future__ import annotations

import os
import resource
import signal
import sys

COUNTS_BY_NAMESPACE = (5, 14)  # of Linux; in older kernels the limit counted all processes of the account
NOT_FOUND = 127
ORPHANED = 137


def main() -> None:
    at = sys.argv.index("--")
    processes, meant, command = int(sys.argv[1]), sys.argv[2:at], sys.argv[at + 1 :]
    lifeline = os.environ.pop("NEXUS_LIFELINE", None)
    if lifeline is not None and is_over(int(lifeline)):
        sys.exit(ORPHANED)
    for one in meant:
        device, inode, path = one.split(":", 2)
        found = os.stat(path)
        if (found.st_dev, found.st_ino) != (int(device), int(inode)):
            sys.exit(f"{path} was replaced while this was started; nothing is started there")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if release() >= COUNTS_BY_NAMESPACE:
        hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        most = processes if hard == resource.RLIM_INFINITY else min(hard, processes)
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and the command would inherit that
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode(errors="replace"))
        sys.exit(NOT_FOUND)


def is_over(lifeline: int) -> bool:
    """Return whether a pipe was written to, or nobody holds its other end any more. It stays open for the command: as
    long as anything has it, the sandbox is not gone."""
    os.set_blocking(lifeline, False)
    try:
        os.read(lifeline, 1)
    except BlockingIOError:
        return False
    return True


def release() -> tuple[int, ...]:
    """Return the first two numbers of the kernel's release. Does without `re`, whose import takes longer than Python's
    own start."""
    name = os.uname().release
    return tuple(map(int, "".join(one if one.isdecimal() else " " for one in name).split()[:2]))


if __name__ == "__main__":
    main()
