"""`nexus attach` types its line into an idle client in tmux or kitty, and never anywhere else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import psutil
import pytest

from nexus.hooks import hook_state
from nexus.hooks.harness import TYPED
from tests.acceptance.processes import nexus
from tests.hooks.harness import Harness, until
from tests.outside import program

pytestmark = [pytest.mark.usefixtures("starts_processes"), pytest.mark.sqlite]
SHOWS = {"codex": ("› Ask Codex to do anything", ""), "copilot": ("❯", "─" * 80)}
EMPTY = SHOWS["codex"][0]
LOOKS = 7  # at the screen: more than it takes until it counts as at rest
WAKE = [repr(f"\x1b[200~{TYPED}\x1b[201~"), r"'\r'"]


class Terminal:
    """A pane of tmux with a shell, in which a person starts a client with `nexus attach`."""

    program, looks = "tmux", "capture-pane"

    def __init__(self, harness: Harness, folder: Path) -> None:
        self.harness, self.folder, self.sent, self.calls = harness, folder, folder / "sent", folder / "calls"
        fake = f"exec {sys.executable} {Path(__file__).with_name('fake_client.py')} {self.sent}"
        scripts = {name: f"{fake} '{empty}' '{below}'" for name, (empty, below) in SHOWS.items()}
        scripts[self.program] = f'echo "$@" >> {self.calls}\nexec {program(self.program)} "$@"'
        for name, script in scripts.items():
            file = folder / "bin" / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"#!/bin/sh\n{script}\n")
            file.chmod(0o700)
        self.calls.touch()
        self.sent.touch()
        self.start({**harness.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"})

    def start(self, environ: dict[str, str]) -> None:
        self.command = [program("tmux"), "-S", str(self.folder / "s"), "-f", os.devnull]
        command = [*self.command, "new-session", "-d", "-x", "120", "-y", "20", "bash", "--norc"]
        subprocess.run(command, env=environ, cwd=self.harness.project, check=True)

    def control(self, *words: str) -> str:
        return subprocess.run([*self.command, *words], check=False, capture_output=True, text=True).stdout

    def type(self, *keys: str) -> None:
        self.control("send-keys", *keys)

    def screen(self) -> str:
        return self.control("capture-pane", "-p")

    def shell(self) -> int:
        return int(self.control("display-message", "-p", "#{pane_pid}"))

    def close(self) -> None:
        self.control("kill-server")

    def attach(self, client: str = "codex") -> psutil.Process:
        """Start a client; return it once its agent can be woken."""
        self.type(f"clear; {sys.executable} -P -m nexus attach --agent builder -- {client}", "Enter")
        until(lambda: self.can_be_woken)
        (process,) = psutil.Process(self.shell()).children()
        until(lambda: self.screen().startswith(SHOWS[client][0]))
        return process

    @property
    def can_be_woken(self) -> bool:
        hook = hook_state.hook_id("builder", str(self.harness.project))
        return bool(hook_state.waiting_hooks(self.harness.home, hook))

    def read(self) -> list[str]:
        """What the client read, a line for each time that it read."""
        return self.sent.read_text().splitlines()

    def look(self) -> None:
        """Wait until `nexus attach` has looked at the screen often enough to type."""
        before = self.calls.read_text().count(self.looks)
        until(lambda: self.calls.read_text().count(self.looks) > before + LOOKS)

    def write(self) -> None:
        letter = {"project_root": str(self.harness.project), "from_agent_id": "ann", "subject": "\x1b[201~\rrm -rf /"}
        target = {"strategy": "direct", "agent_id": "builder"}
        self.harness.call("message_create", {**letter, "body": "\x03\x04", "target": target})


class Kitty(Terminal):
    """A window of kitty on a screen that nobody sees."""

    program, looks = "kitty", "get-text"
    keys: ClassVar = {"Enter": "\\r", "C-u": "\\x15", "C-j": "\\n"}

    def start(self, environ: dict[str, str]) -> None:
        reader, writer = os.pipe()
        xvfb = [program("Xvfb"), "-displayfd", str(writer), "-screen", "0", "1200x600x24"]
        self.xvfb = subprocess.Popen(xvfb, stderr=subprocess.DEVNULL, pass_fds=[writer])
        os.close(writer)
        with os.fdopen(reader) as shown:
            display = f":{shown.readline().strip()}"
        self.command = [program("kitty"), "@", "--to", f"unix:{self.folder / 's'}"]
        options = ["--config", "NONE", "-o", "allow_remote_control=socket-only", "--listen-on", self.command[3]]
        self.kitty = subprocess.Popen(
            [program("kitty"), *options, "bash", "--norc"],
            env={**environ, "DISPLAY": display, "LIBGL_ALWAYS_SOFTWARE": "1", "LANG": "C.UTF-8"},
            cwd=self.harness.project,
            stderr=subprocess.DEVNULL,
        )
        until(lambda: self.control("ls") != "")

    def type(self, *keys: str) -> None:
        for each in keys:
            self.control("send-text", self.keys.get(each, each))

    def screen(self) -> str:
        return self.control("get-text")

    def shell(self) -> int:
        return int(json.loads(self.control("ls"))[0]["tabs"][0]["windows"][0]["pid"])

    def close(self) -> None:
        for each in (self.kitty, self.xvfb):
            each.kill()
            each.wait()


@pytest.fixture(params=[Terminal, pytest.param(Kitty, marks=pytest.mark.long)])
def terminal(request: pytest.FixtureRequest, harness: Harness, tmp_path: Path) -> Iterator[Terminal]:
    harness.call("agent_register", {"agent_id": "builder"})
    made = request.param(harness, tmp_path)
    yield made
    made.close()


def test_it_types_one_line_of_its_own_for_each_thing_that_comes(terminal: Terminal) -> None:
    terminal.attach()
    terminal.write()
    until(lambda: terminal.read() == WAKE)
    terminal.write()
    until(lambda: terminal.read() == WAKE * 2)


@pytest.mark.parametrize(
    ("client", "keys"),
    [
        ("codex", ["1. Yes"]),  # what a person has typed so far, or a question that Enter would answer
        ("copilot", ["C-j", "C-j", "below"]),  # with the cursor in an empty line above it
    ],
)
def test_it_leaves_what_stands_in_the_input_line(terminal: Terminal, client: str, keys: list[str]) -> None:
    terminal.attach(client)
    terminal.type(*keys)
    until(lambda: keys[-1] in terminal.screen())
    before = terminal.read()
    terminal.write()
    terminal.look()
    assert terminal.read() == before
    terminal.type("C-u")
    until(lambda: terminal.read()[-2:] == WAKE)


def test_it_presses_enter_where_a_slow_terminal_left_its_line(terminal: Terminal) -> None:
    terminal.attach()
    terminal.type(TYPED)
    until(lambda: TYPED in terminal.screen())
    before = len(terminal.read())
    terminal.write()
    until(lambda: terminal.read()[before:] == [r"'\r'"])


def test_it_does_not_type_into_a_shell_or_where_a_person_scrolls(terminal: Terminal) -> None:
    terminal.type(f"PS1='> {EMPTY}'", "Enter")
    client = terminal.attach()
    client.send_signal(signal.SIGSTOP)  # its shell has the terminal, and a prompt that looks like the client's
    until(lambda: "Stopped" in terminal.screen())
    terminal.write()
    terminal.look()
    assert TYPED not in terminal.screen()
    terminal.type("fg", "Enter")
    if not isinstance(terminal, Kitty):  # there the screen of one who scrolls does not have the empty line
        terminal.control("copy-mode")
        terminal.look()
        assert TYPED not in "".join(terminal.read())
        terminal.type("q")
    terminal.type("C-u")  # the client draws its line anew
    until(lambda: terminal.read()[-2:] == WAKE)


@pytest.mark.parametrize("end", ["it is killed", "its pane is closed"])
def test_it_ends_with_its_client(terminal: Terminal, end: str) -> None:
    client = terminal.attach()
    beside = [each for each in client.children() if "attach" in each.cmdline()]
    if end == "it is killed":
        client.kill()
    else:
        terminal.close()
    assert psutil.wait_procs(beside, timeout=30)[1] == []
    assert (len(beside), terminal.can_be_woken) == (1, False)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--agent", "builder", "--", "codex"], "Start it in a pane of tmux"),
        (
            ["--agent", "builder", "--", "bash"],
            "Behind -- stands the command of claude, codex, gemini, qwen, cline, copilot.",
        ),
        (["--agent", "builder", "--", "/none/codex"], "There is no program /none/codex"),
        (["--", "codex"], "Pass --agent"),
        (["--agent", "builder", "--"], "Behind -- stands"),
        (["--agent", "builder", "codex"], "Put the client's command behind --"),
    ],
)
def test_it_refuses_what_it_cannot_wake(tmp_path: Path, words: list[str], why: str) -> None:
    (tmp_path / "codex").touch(mode=0o700)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = nexus(tmp_path / "home", "attach", *words, PATH=path, TMUX="", TMUX_PANE="", KITTY_LISTEN_ON="")
    assert (done.returncode, why in done.stderr) == (1, True), done.stderr
