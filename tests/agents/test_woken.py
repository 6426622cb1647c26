"""Published clients with the hooks that `nexus setup` writes, over models that do what they are told: mail wakes their
agents, idle in a terminal, while nobody presses a key."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from tests.acceptance.pool import until
from tests.agents.install import installed
from tests.agents.providers import Provider, Said, play
from tests.agents.terminal import Terminal
from tests.agents.test_day import INSTALLED
from tests.agents.test_guard import CLIENTS, Client, address

__all__ = ["address"]
pytestmark = [pytest.mark.usefixtures("runs_published"), pytest.mark.sqlite]
NEXUS = str(Path(sys.executable).with_name("nexus"))
QWEN = Client(
    "@qwen-code/qwen-code",
    "0.24.4",
    ("qwen",),
    "mcp__nexus__",
    lambda line: ["run_shell_command", {"command": line, "is_background": False}],
    lambda address: {"OPENAI_BASE_URL": f"{address}/v1", "OPENAI_API_KEY": "k", "OPENAI_MODEL": "fake"},
    lambda address, shop: {".qwen/settings.json": '{"security": {"auth": {"selectedType": "openai"}}}'},
)


class Person:
    """Somebody whose project is set up for a client, and the agent there."""

    def __init__(self, name: str, client: Client, home: Path, address: str) -> None:
        self.home, self.shop, self.codex = home, home / "shop", name == "codex"
        self.program = installed(client.package, client.version, client.command[0], INSTALLED / f"client-{name}")
        own = {each: value for each, value in os.environ.items() if not each.startswith(("NEXUS_", "DJANGO_", "TMUX"))}
        path = f"{self.program.parent}:{own['PATH']}"
        self.environ = {**own, "HOME": str(home), "PATH": path, **client.environ(address)}
        for file, text in client.home(address, self.shop).items():
            (home / file).parent.mkdir(parents=True, exist_ok=True)
            (home / file).write_text(text)
        self.shop.mkdir()
        said = self.run(NEXUS, "setup", "--yes", "--client", name, *"--without hub --without texts".split())
        [self.agent] = re.findall(r'"You are (\S+) on Nexus', said)
        self.terminal = Terminal(home / "tmux", [str(self.program)], cwd=self.shop, environ=self.environ)

    def run(self, *command: str) -> str:
        done = subprocess.run(command, cwd=self.shop, env=self.environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def begin(self) -> None:
        """Have a first turn, after which a hook waits."""
        until(lambda: re.search("Trust all|Approve this server", self.terminal.screen()))
        self.terminal.press(*(["2"] if self.codex else []), "Enter")
        until(lambda: re.search("Ask Codex|Type your message", self.terminal.screen()))
        self.terminal.type(play("ready"))
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
        if self.codex:  # its server keeps the session for a minute
            self.run(str(self.program), "app-server", "daemon", "stop")
        until(lambda: not self.waiters())


@pytest.fixture(params=["codex", pytest.param("qwen", marks=pytest.mark.long)])
def person(request: pytest.FixtureRequest, tmp_path: Path, address: str) -> Iterator[Person]:
    person = Person(request.param, {**CLIENTS, "qwen": QWEN}[request.param], tmp_path, address)
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
    (waiter,) = person.waiters()
    person.run(NEXUS, "send", person.agent, text)
    until(lambda: turns(text))
    until(lambda: person.waiters() not in ([], [waiter]))
    assert turns(text) == 1


def test_a_message_wakes_an_idle_agent_once_and_leaves_what_is_half_typed(person: Person) -> None:
    person.begin()
    person.terminal.type("half a line")
    wake(person, "Take the parser.")
    wake(person, "Take the lexer, too.")
    assert "half a line" in person.terminal.screen()
    person.close()
