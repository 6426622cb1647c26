"""The watchdog: a small process between the hub and the pool's worker, so that neither leaves processes behind.

Its standard input comes from the hub. `stop` there asks the worker to end within its time; the end of the input, for
whatever reason the hub went, asks it to end at once. The worker's standard input is a socket to the watchdog, on which
the worker sends signs of life. When the worker has ended, or hangs, everything that it started is killed.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
import time

from nexus.core.guardian import adopt, kill_all, launch

STOP = b"stop\n"
OF_TERMINALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
START_SECONDS = 300.0  # for the first sign of life
GRACE_SECONDS = 5.0  # for a worker to end, after the time for its turns
KILL_SECONDS = 10.0
HUNG = 3  # exit code


def main() -> int:
    """Run `python -m nexus.control.worker.watchdog HANG_SECONDS STOP_SECONDS COMMAND…`; return the worker's exit code,
    or HUNG."""
    hang, stop, *command = sys.argv[1:]
    for number in OF_TERMINALS:
        signal.signal(number, signal.SIG_IGN)  # the hub says on stdin when to end
    adopt()
    return Watchdog(command, float(hang), float(stop)).run()


class Watchdog:
    """The worker, and the deadline for what is expected of it."""

    def __init__(self, command: list[str], hang: float, stop: float) -> None:
        self.hang, self.stop = hang, stop
        self.line, theirs = socket.socketpair()
        self.worker = launch(command, stdin=theirs.fileno(), when_orphaned=signal.SIGINT)
        theirs.close()
        self.deadline = time.monotonic() + START_SECONDS
        self.ending = False

    def run(self) -> int:
        """Run until the worker has ended, with all that it started; return its exit code, or HUNG."""
        awake, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(awake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        with selectors.DefaultSelector() as selector:
            selector.register(awake, selectors.EVENT_READ, self._tidy)
            selector.register(0, selectors.EVENT_READ, self._hear_hub)
            selector.register(self.line, selectors.EVENT_READ, self._hear_worker)
            while (code := self._reap()) is None:
                if time.monotonic() > self.deadline:
                    code = HUNG
                    break
                for key, _ in selector.select(max(self.deadline - time.monotonic(), 0)):
                    if not key.data(key.fd):
                        selector.unregister(key.fileobj)
        left = kill_all(KILL_SECONDS)
        self._reap()
        if left:
            print(f"[nexus] These processes of the pool could not be ended: {left}", file=sys.stderr)
        return code

    def _reap(self) -> int | None:
        """Reap ended children; return the worker's exit code if it was one of them."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == self.worker:
                    return os.waitstatus_to_exitcode(status)
                if not pid:
                    return None
        return HUNG

    def _hear_hub(self, line: int) -> bool:
        said = os.read(line, 1024)
        if said == STOP:
            self._end(signal.SIGTERM, self.stop)
        elif not said:
            self._end(signal.SIGINT, 0)
        return bool(said)

    def _end(self, number: int, seconds: float) -> None:
        self.ending = True
        self.deadline = time.monotonic() + seconds + GRACE_SECONDS
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.worker, number)

    def _hear_worker(self, line: int) -> bool:
        try:
            said = os.read(line, 1024)
        except OSError:
            said = b""
        if said and not self.ending:
            self.deadline = time.monotonic() + self.hang
        return bool(said)

    @staticmethod
    def _tidy(pipe: int) -> bool:
        return bool(os.read(pipe, 1024))


if __name__ == "__main__":
    code = main()
    sys.exit(code if code >= 0 else 128 - code)
