"""The first program in a sandbox: sandbox_init.py PROCESSES [DEVICE:INODE:PATH…] -- COMMAND…

The mounts were checked before, by path. This program checks that each is still the same file and was not replaced
meanwhile, limits the number of processes and threads, and becomes the command.
"""

from __future__ import annotations

import os
import resource
import sys

COUNTS_BY_NAMESPACE = (5, 14)  # of Linux; in older kernels the limit counted all processes of the account
NOT_FOUND = 127


def main() -> None:
    at = sys.argv.index("--")
    processes, meant, command = int(sys.argv[1]), sys.argv[2:at], sys.argv[at + 1 :]
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
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode(errors="replace"))
        sys.exit(NOT_FOUND)


def release() -> tuple[int, ...]:
    """Return the first two numbers of the kernel's release. Does without `re`, whose import takes longer than Python's
    own start."""
    name = os.uname().release
    return tuple(map(int, "".join(one if one.isdecimal() else " " for one in name).split()[:2]))


if __name__ == "__main__":
    main()
