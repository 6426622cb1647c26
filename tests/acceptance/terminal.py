"""A command at a terminal: keys are typed, and what the screen shows is read."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import psutil

from tests.acceptance.processes import ROOT, environment

CTRL_C, CTRL_D = "\x03", "\x04"
SECONDS = 180  # a bound against hanging, not a figure


class Terminal:
    """A command with a terminal of its own, in a session of its own: Ctrl-C reaches it as from a keyboard."""

    def __init__(self, home: Path, *arguments: str, cwd: Path | None = None, **more: str) -> None:
        self.keyboard, own = pty.openpty()
        self.shown = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", LEAD, sys.executable, str(ROOT / "manage.py"), *arguments],
            env=environment(home, **more),
            cwd=cwd,
            stdin=own,
            stdout=own,
            stderr=own,
            start_new_session=True,
        )
        os.close(own)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.keyboard)

    def type(self, keys: str) -> None:
        os.write(self.keyboard, keys.encode())

    def answer(self, keys: str) -> None:
        """Type once the command waits for a key: a signal between its question and its read ends neither."""
        process = psutil.Process(self.process.pid)
        while process.status() not in (psutil.STATUS_SLEEPING, psutil.STATUS_ZOMBIE):  # nor waiting for the disk
            pass
        self.type(keys)

    def give(self, line: str) -> None:
        """Type a line once the command waits for one, and return when it has read it."""
        process = psutil.Process(self.process.pid)
        self.answer("")
        waits = process.num_ctx_switches().voluntary
        self.type(line)
        while process.num_ctx_switches().voluntary == waits:
            pass

    def wait_for(self, text: str) -> None:
        """Return once the screen shows `text`."""
        while text not in self.shown:
            assert self._read(), f"it ended with {self.shown!r}"

    def end(self) -> int:
        """Wait until the command has ended; its exit code."""
        while self._read():
            pass
        return self.process.wait(SECONDS)

    def _read(self) -> bool:
        ready, _, _ = select.select([self.keyboard], [], [], SECONDS)
        assert ready, f"nothing happens after {self.shown!r}"
        with contextlib.suppress(OSError):  # EIO: nobody has the terminal open any more
            read = os.read(self.keyboard, 4096).decode(errors="replace")
            self.shown += read.replace("\r", "")  # a terminal ends lines with both
            return bool(read)
        return False


# Takes its terminal for the one that sends it signals, as a shell does, and becomes the command.
LEAD = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
