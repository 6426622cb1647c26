"""A terminal in which a published client runs, as a person has it: a tmux server of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.acceptance.pool import until
from tests.outside import program


def environment(home: Path, **more: str) -> dict[str, str]:
    """What a person's terminal gives a program: nothing of CI, in which some clients draw no screen at all."""
    of_tests = ("NEXUS_", "DJANGO_", "TMUX", "CI")
    own = {name: value for name, value in os.environ.items() if not name.startswith(of_tests)}
    return {**own, "HOME": str(home), "LANG": "C.UTF-8", **more}


class Terminal:
    """A pane of 200 × 50 with a program in it."""

    def __init__(self, place: Path, command: Sequence[str], *, cwd: Path, environ: Mapping[str, str]) -> None:
        """Start the program; `place` is the path of a socket that is not there yet."""
        self._tmux = [program("tmux"), "-f", os.devnull, "-S", str(place)]
        self._environ = environ
        self._ran("new-session", "-d", "-x", "200", "-y", "50", "-c", str(cwd), *command)
        self.pid = int(self._ran("display-message", "-p", "#{pane_pid}"))

    def _ran(self, *words: str) -> str:
        command = [*self._tmux, *words]
        return subprocess.run(command, env=dict(self._environ), check=True, capture_output=True, text=True).stdout

    def screen(self) -> str:
        return self._ran("capture-pane", "-p")

    def type(self, text: str) -> None:
        """Type a text of less than a line, and see it."""
        self._ran("send-keys", "-l", text)
        until(lambda: text in self.screen())

    def press(self, key: str, seen: str = "") -> None:
        """Press a key, and see a text."""
        self._ran("send-keys", key)
        until(lambda: seen in self.screen())

    def press_until(self, key: str, seen: str) -> None:
        """Press a key, again and again, until a text is seen."""

        def is_seen() -> bool:
            found = seen in self.screen()
            if not found:
                self.press(key)
            return found

        until(is_seen)

    def close(self) -> None:
        """Kill the program, and with it the terminal."""
        os.kill(self.pid, signal.SIGKILL)
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)
