"""Published clients over models that do what they are told: mail wakes their agents, idle in a terminal, while nobody
presses a key. The hooks that `nexus setup` writes wake those of some clients, a command in the background others."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.acceptance.pool import until
from tests.agents.providers import Provider, Round, Said, play
from tests.agents.terminal import Terminal, environment
from tests.agents.test_attach import STARTED, address

__all__ = ["address"]
pytestmark = [pytest.mark.usefixtures("runs_published"), pytest.mark.sqlite]
NEXUS = str(Path(sys.executable).with_name("nexus"))
GEMINI = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "tools": {"shell": {"backgroundCompletionBehavior": "inject"}},
    "experimental": {"modelSteering": True},
}
IN_BACKGROUND: dict[str, list[Any]] = {  # the call of the tool with which the agent waits
    "copilot": ["bash", {"command": "nexus wait", "description": "Wait", "mode": "async"}],
    "gemini": ["run_shell_command", {"command": "nexus wait", "is_background": True}],
}
OPTIONS = {"copilot": ["--yolo"], "gemini": ["--skip-trust", "--yolo"]}
ASKS = {"codex": "Trust all", "qwen": "Approve this server", "copilot": "Do you trust"}
READY = "Ask Codex|Type your message|/ commands"  # where a client's input line is empty


class Person:
    """Somebody whose project is set up for a client, and the agent ben there."""

    def __init__(self, name: str, home: Path, address: str) -> None:
        self.name, self.home, self.shop = name, home, home / "shop"
        client = STARTED[name]
        self.program = client.start()
        path = f"{self.program.parent}:{Path(NEXUS).parent}:{os.environ['PATH']}"
        self.environ = environment(home, PATH=path, NEXUS_AGENT_ID="ben", **client.environ(address))
        files = {".gemini/settings.json": json.dumps(GEMINI)} if name == "gemini" else client.home(address, self.shop)
        for file, text in files.items():
            (home / file).parent.mkdir(parents=True, exist_ok=True)
            (home / file).write_text(text)
        self.shop.mkdir()
        self.run(NEXUS, "setup", "--yes", "--client", name, *"--without hub --without texts".split())
        self.run(NEXUS, "agents", "create", "ben")
        command = [str(self.program), *OPTIONS.get(name, [])]
        self.terminal = Terminal(home / "tmux", command, cwd=self.shop, environ=self.environ)

    def run(self, *command: str) -> str:
        done = subprocess.run(command, cwd=self.shop, env=self.environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def begin(self, *rounds: Round) -> None:
        """Trust what setup wrote, and have a first turn, after which something waits."""
        if self.name in ASKS:
            until(lambda: ASKS[self.name] in self.terminal.screen())
            if self.name == "codex":  # which hears no key in the moment in which it asks
                self.terminal.press_until("2", "› 2. Trust all")
            self.terminal.press("Enter")
        until(lambda: re.search(READY, self.terminal.screen()))
        self.terminal.type(play(*rounds))
        self.terminal.press("Enter")
        until(self.waiters)

    def waiters(self) -> list[psutil.Process]:
        return [each for each in self.processes() if any("waiter.py" in word for word in each.info["cmdline"])]

    def processes(self) -> list[psutil.Process]:
        """Those that are told of this home."""
        return [
            process
            for process in psutil.process_iter(["cmdline"])
            if any(str(self.home) in word for word in process.info["cmdline"] or [])
        ]

    def close(self) -> None:
        self.terminal.close()
        if self.name == "codex":  # its server keeps the session for a minute
            self.run(str(self.program), "app-server", "daemon", "stop")
        until(lambda: not self.waiters())


@pytest.fixture
def person(name: str, tmp_path: Path, address: str) -> Iterator[Person]:
    person = Person(name, tmp_path, address)
    yield person
    for process in person.processes():
        process.kill()


def turns(text: str) -> int:
    """How many requests to the model have this text in what is new since it last spoke."""

    def is_new(said: Sequence[Said]) -> bool:
        spoke = max((n for n, (who, _) in enumerate(said) if who in ("said", "called")), default=-1)
        return any(text in each for _, each in said[spoke + 1 :])

    return sum(map(is_new, Provider.asked))


def wake(person: Person, text: str) -> None:
    """Write to the agent, which is woken for it once, and sleeps again."""
    before = set(person.waiters())
    person.run(NEXUS, "send", "ben", text)
    until(lambda: turns(text))
    until(lambda: set(person.waiters()) - before)
    assert turns(text) == 1


@pytest.mark.parametrize("name", ["codex", pytest.param("qwen", marks=pytest.mark.long)])
def test_a_message_wakes_an_idle_agent_once_and_leaves_what_is_half_typed(person: Person) -> None:
    person.begin("ready")
    person.terminal.type("half a line")
    wake(person, "Take the parser.")
    wake(person, "Take the lexer, too.")
    assert "half a line" in person.terminal.screen()
    person.close()


@pytest.mark.long
@pytest.mark.parametrize("name", IN_BACKGROUND)
def test_a_command_that_the_agent_runs_in_the_background_wakes_it_when_it_ends(person: Person, name: str) -> None:
    person.begin([IN_BACKGROUND[name]], "I wait.")
    person.run(NEXUS, "send", "ben", "Take the parser.")
    until(lambda: turns("Take the parser."))
