"""`nexus attach` types its line into an idle client in tmux, and never anywhere else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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

    def __init__(self, harness: Harness, folder: Path) -> None:
        self.harness, self.sent, self.calls = harness, folder / "sent", folder / "calls"
        self.command = [program("tmux"), "-S", str(folder / "s"), "-f", os.devnull]
        fake = f"exec {sys.executable} {Path(__file__).with_name('fake_client.py')} {self.sent}"
        scripts = {name: f"{fake} '{empty}' '{below}'" for name, (empty, below) in SHOWS.items()}
        for name, script in {**scripts, "tmux": f'echo "$@" >> {self.calls}\nexec {self.command[0]} "$@"'}.items():
            file = folder / "bin" / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"#!/bin/sh\n{script}\n")
            file.chmod(0o700)
        environ = {**harness.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
        self.calls.touch()
        self.sent.touch()
        command = [*self.command, "new-session", "-d", "-x", "120", "-y", "20", "bash", "--norc"]
        subprocess.run(command, env=environ, cwd=harness.project, check=True)

    def tmux(self, *words: str) -> str:
        return subprocess.run([*self.command, *words], check=False, capture_output=True, text=True).stdout

    def type(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def attach(self, client: str = "codex") -> psutil.Process:
        """Start a client; return it once its agent can be woken."""
        self.type(f"clear; {sys.executable} -P -m nexus attach --agent builder -- {client}", "Enter")
        until(lambda: self.can_be_woken)
        (process,) = psutil.Process(int(self.tmux("display-message", "-p", "#{pane_pid}"))).children()
        until(lambda: self.screen().startswith(SHOWS[client][0]))
        return process

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    @property
    def can_be_woken(self) -> bool:
        hook = hook_state.hook_id("builder", str(self.harness.project))
        return bool(hook_state.waiting_hooks(self.harness.home, hook))

    def read(self) -> list[str]:
        """What the client read, a line for each time that it read."""
        return self.sent.read_text().splitlines()

    def look(self) -> None:
        """Wait until `nexus attach` has looked at the screen often enough to type."""
        before = self.calls.read_text().count("capture-pane")
        until(lambda: self.calls.read_text().count("capture-pane") > before + LOOKS)

    def write(self) -> None:
        letter = {"project_root": str(self.harness.project), "from_agent_id": "ann", "subject": "\x1b[201~\rrm -rf /"}
        target = {"strategy": "direct", "agent_id": "builder"}
        self.harness.call("message_create", {**letter, "body": "\x03\x04", "target": target})


@pytest.fixture
def terminal(harness: Harness, tmp_path: Path) -> Iterator[Terminal]:
    harness.call("agent_register", {"agent_id": "builder"})
    made = Terminal(harness, tmp_path)
    yield made
    made.tmux("kill-server")


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


def test_it_does_not_type_into_a_shell_or_where_a_person_scrolls(terminal: Terminal) -> None:
    terminal.type(f"PS1='> {EMPTY}'", "Enter")
    client = terminal.attach()
    client.send_signal(signal.SIGSTOP)  # its shell has the terminal, and a prompt that looks like the client's
    until(lambda: "Stopped" in terminal.screen())
    terminal.write()
    terminal.look()
    assert TYPED not in terminal.screen()
    terminal.type("fg", "Enter")
    terminal.tmux("copy-mode")
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
        terminal.tmux("kill-server")
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
    done = nexus(tmp_path / "home", "attach", *words, PATH=path, TMUX="", TMUX_PANE="")
    assert (done.returncode, why in done.stderr) == (1, True), done.stderr
