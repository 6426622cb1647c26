"""The pane of a terminal in which a coding client runs: what its screen shows, and a line typed into it.

tmux and kitty let a program read the screen and type. Standard library alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time

from nexus.core import processes
from nexus.hooks import harness, waiter

SHOWN_SECONDS = 3.0  # for the client to show the typed line
ENTER_SECONDS = 0.3  # before Enter: clients take one that comes at once for a part of what was pasted
ENTERS = 3  # times that Enter is pressed, while the line stands there


def find(empty_line: str, client: int) -> Pane:
    """Return the pane of this process. Raises ValueError where it runs in none into which Nexus can type.

    `empty_line` is a pattern of the client's empty input line, `client` its process.
    """
    for kind in (TmuxPane, KittyPane):
        pane = kind(empty_line, client)
        if pane.is_here():
            return pane
    raise ValueError(
        "Start it in a pane of tmux, or in kitty with allow_remote_control and listen_on in its configuration: Nexus "
        "can type into no other terminal."
    )


class Pane:
    """The pane in which this process runs, and a client in it."""

    kind = ""
    variables = ("", "")  # the terminal's, of its server and of the pane

    def __init__(self, empty_line: str, client: int) -> None:
        self.server, self.name = (os.environ.get(each, "") for each in self.variables)
        self._empty_line = empty_line
        self._client, self._group = client, os.getpgid(client)
        self._prompt = empty_line[0]  # the sign at the beginning of the input line, until another is seen
        self._shown: list[str] = []
        self._changed_at = 0.0

    def is_here(self) -> bool:
        """Return whether this process runs in it."""
        raise NotImplementedError

    def _look(self) -> list[str]:
        """Return the rows of the screen to the one below the cursor; none where nobody may type."""
        raise NotImplementedError

    def _paste(self, text: str) -> None:
        raise NotImplementedError

    def _press_enter(self) -> None:
        raise NotImplementedError

    def tell_person(self, text: str) -> None:
        """Show a text beside the client for some seconds, where the terminal can."""

    def quiet_seconds(self) -> float:
        """Look at the screen, and return for how long it has been unchanged; 0 where nobody may type."""
        shown = self._look()
        if shown != self._shown or not shown:
            self._shown, self._changed_at = shown, time.monotonic()
        return time.monotonic() - self._changed_at

    def is_free(self) -> bool:
        """Return whether the client is in the foreground, and the input line that the last look has seen is empty, or
        has the line of an earlier time that was too slow for Enter."""
        *_, line, below = ["", "", *self._shown]
        shown = " ".join(re.sub(r"([─▀])+", r"\1", f"{line} {below}").split())
        is_empty = re.fullmatch(self._empty_line, shown) is not None
        if is_empty:
            self._prompt = shown[0]
        return (is_empty or self._has_line()) and self._has_foreground()

    def _has_foreground(self) -> bool:
        try:
            terminal = os.open("/dev/tty", os.O_RDONLY)
        except OSError:  # it is closed
            return False
        with os.fdopen(terminal):
            return os.tcgetpgrp(terminal) == self._group

    def type_line(self) -> bool:
        """Type the line and press Enter. Return False, without Enter, if the input line does not have it alone."""
        if not self._has_line():
            self._paste(harness.TYPED)
        self.quiet_seconds()  # a terminal can be slow to answer: the client's time begins after that
        give_up_at = time.monotonic() + SHOWN_SECONDS
        while not self._has_line():
            if time.monotonic() > give_up_at:
                return False
            time.sleep(waiter.TICK_SECONDS / 10)
            self.quiet_seconds()
        for _ in range(ENTERS):
            time.sleep(ENTER_SECONDS)
            self.quiet_seconds()
            if not (self._has_line() and self._has_foreground()):
                break
            self._press_enter()
        return True

    def _has_line(self) -> bool:
        """Return whether the input line has that line and nothing else, in one row or several, at the last look."""
        text = "".join(each for row in self._shown[:-1] for each in row if each.isprintable() and not each.isspace())
        prompt = re.escape(self._prompt)
        line = f"{prompt}?".join(re.escape(each) for each in harness.TYPED if not each.isspace())  # some begin each row
        return re.search(rf"{prompt}{line}\Z", text) is not None


class TmuxPane(Pane):
    """A pane of tmux."""

    kind, variables = "tmux", ("TMUX", "TMUX_PANE")

    def is_here(self) -> bool:
        with contextlib.suppress(OSError):
            return _output("tmux", "display-message", "-p", "-t", self.name, "#{pane_tty}").strip() == os.ttyname(0)
        return False

    def _look(self) -> list[str]:
        where = "#{pane_in_mode}#{pane_synchronized} #{cursor_y}"  # a person who scrolls is in a mode
        head, *rows = _output(
            "tmux", "display-message", "-p", "-t", self.name, where, ";", "capture-pane", "-p", "-t", self.name
        ).split("\n")
        flags, _, cursor = head.partition(" ")
        return rows[: int(cursor) + 2] if flags == "00" else []

    def _paste(self, text: str) -> None:
        buffer = f"nexus{self.name}"
        _output("tmux", "set-buffer", "-b", buffer, text, ";", "paste-buffer", "-dp", "-b", buffer, "-t", self.name)

    def _press_enter(self) -> None:
        _output("tmux", "send-keys", "-t", self.name, "Enter")

    def tell_person(self, text: str) -> None:
        _output("tmux", "display-message", "-d", "10000", "-t", self.name, text)


class KittyPane(Pane):
    """A window of kitty, which listens for `kitty @` at a socket."""

    kind, variables = "kitty", ("KITTY_LISTEN_ON", "KITTY_WINDOW_ID")

    def is_here(self) -> bool:
        with contextlib.suppress(ValueError):
            windows = [each for top in json.loads(self._kitty("ls")) for tab in top["tabs"] for each in tab["windows"]]
            shown = next((each for each in windows if str(each["id"]) == self.name), None)
            return shown is not None and any(each["pid"] == self._client for each in shown["foreground_processes"])
        return False

    def _kitty(self, *words: str) -> str:
        return _output("kitty", "@", "--to", self.server, *words) if self.server else ""

    def _look(self) -> list[str]:
        # Where a person has scrolled, these are the rows that they see, and the cursor's is hardly the empty line.
        text, _, end = self._kitty("get-text", "--add-cursor", "--match", f"id:{self.name}").rpartition("\x1b[?25")
        row = re.match(r"[hl]\x1b\[(\d+);", end)
        return text.split("\n")[: int(row[1]) + 1] if row else []

    def _paste(self, text: str) -> None:
        self._send(rf"\x1b[200~{text}\x1b[201~")

    def _press_enter(self) -> None:
        self._send(r"\r")

    def _send(self, keys: str) -> None:
        self._kitty("send-text", "--match", f"id:{self.name}", keys)


def _output(*command: str) -> str:
    """Return what a terminal's program prints; nothing if it refuses."""
    try:
        done = processes.in_foreground(command, env=processes.environment("TMUX"), captured=True)
    except OSError:
        return ""
    return done.output.decode(errors="replace") if done.code == 0 else ""
