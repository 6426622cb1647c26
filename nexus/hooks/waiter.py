"""The process of `nexus wait` while nothing comes: run as a file, with few imports, since each open session has one.

It becomes the command again, to look, when the agent's signal file has a new time, and at a given moment. It ends when
whoever reads its output has gone, when its parent has, and when a newer waiter has its place.
"""

import os
import select
import signal
import sys
import time

TICK_SECONDS = 0.5
LOOK_SECONDS = 300.0  # between two looks without a signal, at most
GONE = select.POLLHUP | select.POLLERR
OVER, INTERRUPTED = 3, 130  # exit codes: nothing came in time; Ctrl-C


def stamp(path: str) -> int | None:
    """Return the time of a file; None if there is none."""
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116
    except OSError:
        return None


def is_place(path: str, held: int) -> bool:
    """Return whether the file that this process holds open is still the one at its path."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(held))  # noqa: PTH116
    except OSError:
        return False


def main(words: list[str]) -> None:
    """Wait; `words` are the place and its descriptor, the signal file and its known time, when to look (unix time) and
    to give up (on the monotonic clock), the parent (0 for any), then the command. Look, too, when the clock was set
    back."""
    place, held, file, known, look_at, give_up_at, parent, *command = words
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: os._exit(0))
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    poll = select.poll()
    for stream in (1, 2):
        poll.register(stream, 0)
    while True:
        if not is_place(place, int(held)):
            os._exit(0)
        if any(what & GONE for _, what in poll.poll(TICK_SECONDS * 1000)) or int(parent) not in (0, os.getppid()):
            os.unlink(place)  # noqa: PTH108
            os._exit(0)
        if str(stamp(file)) != known or not 0 < float(look_at) - time.time() <= LOOK_SECONDS:  # set back, it is farther
            os.execv(command[0], command)  # noqa: S606  # no shell
        if time.monotonic() >= float(give_up_at):
            os._exit(OVER)


if __name__ == "__main__":
    main(sys.argv[1:])
