"""Somebody with published clients, set up for one project, and the agents that sit in their terminals."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import pytest

from nexus.core import coding_clients
from nexus.hooks import hook_state
from tests.acceptance.hub import Hub
from tests.acceptance.pool import until
from tests.agents.install import install, installed
from tests.agents.providers import Provider, Round, Said, play
from tests.agents.terminal import Terminal, environment
from tests.agents.test_day import AGENTS, INSTALLED, address
from tests.agents.test_guard import CLIENTS

__all__ = ["address"]
NEXUS = str(Path(sys.executable).with_name("nexus"))
WAITS: dict[str, list[Round]] = {  # a turn that leaves `nexus wait` in the background
    "copilot": [[["bash", {"command": "nexus wait", "description": "Wait", "mode": "async"}]], "I wait."],
    "gemini": [[["run_shell_command", {"command": "nexus wait", "is_background": True}]], "I wait."],
}


@dataclass(frozen=True)
class Client:
    """How a client is installed, and started until it is idle."""

    start: Callable[[], Path]  # installs it, and returns its program
    environ: Callable[[str], dict[str, str]]  # for the provider at this address
    home: Callable[[str, Path], dict[str, str]] = lambda address, shop: {}  # files of its user
    asks: str = ""  # what it asks first
    answer: str = ""  # the key that answers it
    options: Sequence[str] = ()
    trusts: str = ""  # what it asks of what `nexus setup` wrote
    idle: str = ""  # a pattern of the input line, empty
    ends: str = "/exit"  # what its person types to end it
    goes_on: Sequence[str] = ()  # options that resume the last session
    forks: Sequence[str] = ()  # options that fork it
    tool: str = ""  # the prefix of its names for Nexus's tools


def claude_json(address: str, shop: Path) -> dict[str, str]:
    trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    project = {**trusted, "enabledMcpjsonServers": ["nexus"]}
    known = {"approved": ["k"], "rejected": []}
    settings = {"hasCompletedOnboarding": True, "theme": "dark", "customApiKeyResponses": known}
    return {".claude.json": json.dumps({**settings, "projects": {str(shop): project}})}


def copilot_environ(address: str) -> dict[str, str]:
    provider = {"PROVIDER_BASE_URL": f"{address}/v1", "PROVIDER_API_KEY": "k", "MODEL": "fake", "OFFLINE": "true"}
    return {f"COPILOT_{name}": value for name, value in provider.items()}


def gemini_json(address: str, shop: Path) -> dict[str, str]:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "tools": {"shell": {"backgroundCompletionBehavior": "inject"}},
        "experimental": {"modelSteering": True},
    }
    return {".gemini/settings.json": json.dumps(settings)}


def apart(name: str, package: str, version: str, program: str) -> Callable[[], Path]:
    return lambda: installed(package, version, program, INSTALLED / f"client-{name}")


def of_guard(name: str, home: Callable[[str, Path], dict[str, str]] | None = None, **more: object) -> Client:
    known = CLIENTS[name]
    start = apart(name, known.package, known.version, known.command[0])
    return Client(start, known.environ, home or known.home, tool=known.tool, **more)  # type: ignore[arg-type]


STARTED = {
    "claude-code": of_guard(
        "claude-code",
        claude_json,
        options=("--allowedTools=mcp__nexus",),
        idle="❯",
        goes_on=("--continue",),
        forks=("--continue", "--fork-session"),
    ),
    "codex": of_guard(
        "codex",
        options=("--dangerously-bypass-approvals-and-sandbox",),
        trusts="Trust all",
        idle="Ask Codex|Ask a follow-up",
        goes_on=("resume", "--last"),
        forks=("fork", "--last"),
    ),
    "gemini": of_guard("gemini", gemini_json, options=("--skip-trust", "--yolo"), idle="Type your message"),
    "qwen": Client(
        partial(install, "qwen", INSTALLED),
        AGENTS["qwen"].env,
        options=("--yolo",),
        idle="Type your message",
        goes_on=("--continue",),
        forks=("--continue", "--fork-session"),
        tool=AGENTS["qwen"].bus,
    ),
    "opencode": of_guard("opencode", idle="Build · fake", goes_on=("--continue",), forks=("--continue", "--fork")),
    "cline": Client(
        partial(install, "cline", INSTALLED),
        lambda address: {},
        lambda address, shop: {path[2:]: text for path, text in AGENTS["cline"].home(address).items()},
        asks="any other key to close",
        answer="Escape",
    ),
    "copilot": Client(
        apart("copilot", "@github/copilot", "1.0.102", "copilot"),
        copilot_environ,
        asks="Do you trust",
        answer="Enter",
        options=("--yolo",),
        trusts="Do you trust",
        idle="/ commands",
    ),
}


class Person:
    """Somebody's home and project, which is set up for each client that is opened there."""

    def __init__(self, home: Path, address: str) -> None:
        self.home, self.shop, self.address = home, home / "shop", address
        self.shop.mkdir()
        self.programs: dict[str, Path] = {}
        self.opened: list[Session] = []

    def environ(self, name: str, agent_id: str) -> dict[str, str]:
        path = f"{self.programs[name].parent}:{Path(NEXUS).parent}:{os.environ['PATH']}"
        given = STARTED[name].environ(self.address)
        return environment(self.home, PATH=path, NEXUS_AGENT_ID=agent_id, DISABLE_AUTOUPDATER="1", **given)

    def open(self, name: str, agent_id: str = "ben", *options: str, does: Sequence[Round] = ("ready",)) -> Session:
        """Start a client for an agent. Return once it is idle, after a first turn in which its model `does` something,
        and something waits for it."""
        is_new = name not in self.programs
        if is_new:
            self._set_up(name)
        if agent_id not in (each.agent_id for each in self.opened):
            self.run(NEXUS, "agents", "create", agent_id)
        session = Session(self, name, agent_id, options)
        self.opened.append(session)
        if is_new and session.client.trusts:
            session.trust()
        session.begin(does)
        return session

    def _set_up(self, name: str) -> None:
        client = STARTED[name]
        self.programs[name] = client.start()
        for file, text in client.home(self.address, self.shop).items():
            (self.home / file).parent.mkdir(parents=True, exist_ok=True)
            (self.home / file).write_text(text)
        self.run(NEXUS, "setup", "--yes", "--client", name, *"--without hub --without texts".split())

    def run(self, *command: str) -> str:
        environ = environment(self.home, PATH=os.environ["PATH"])
        done = subprocess.run(command, cwd=self.shop, env=environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def send(self, agent_id: str, text: str) -> None:
        self.run(NEXUS, "send", agent_id, text)

    def send_by(self, hub: Hub, agent_id: str, text: str) -> None:
        letter = {"project_root": str(self.shop), "from_agent_id": "ann", "subject": text, "body": text}
        hub.call("message_create", **letter, target={"strategy": "direct", "agent_id": agent_id})

    def processes(self, word: str = "", **environ: str) -> list[psutil.Process]:
        """What was started in this home; with a word in its command line, and with these variables."""
        mine = {"HOME": str(self.home), **environ}.items()
        found = []
        for each in psutil.process_iter():
            with suppress(psutil.Error):
                if mine <= each.environ().items() and word in " ".join(each.cmdline()):
                    found.append(each)
        return found


class Session:
    """A client in a terminal, and the agent in it."""

    def __init__(self, person: Person, name: str, agent_id: str, options: Sequence[str]) -> None:
        self.person, self.name, self.agent_id, self.client = person, name, agent_id, STARTED[name]
        version = person.programs[name].parents[2].name.rpartition("-")[2]
        self.title = f"{coding_clients.CLIENTS[name].title} {version}"
        command = [str(person.programs[name]), *options, *self.client.options]
        place = person.home / f"tmux-{len(person.opened)}"
        self.terminal = Terminal(place, command, cwd=person.shop, environ=person.environ(name, agent_id))

    def trust(self) -> None:
        """Trust what setup wrote."""
        until(lambda: self.client.trusts in self.terminal.screen())
        if self.name == "codex":  # which hears no key in the moment in which it asks
            self.terminal.press_until("2", "› 2. Trust all")
        self.terminal.press("Enter")

    def begin(self, does: Sequence[Round]) -> None:
        until(lambda: re.search(self.client.idle, self.terminal.screen()))
        before = set(self.waiters()) if does else set()
        if does:
            self.say(play(*does))
        until(lambda: set(self.waiters()) - before)

    def say(self, line: str) -> None:
        self.terminal.type(line)
        self.terminal.press("Enter")

    def waiters(self) -> list[psutil.Process]:
        """The processes that wait for the agent."""
        hook = hook_state.hook_id(self.agent_id, str(self.person.shop))
        waiters = self.person.processes("waiter.py")
        return [each for each in self.person.processes(hook) if each in waiters]

    def left(self) -> list[psutil.Process]:
        """What is left of the agent's sessions. A server of Codex keeps one for a minute, and stays itself."""
        servers = self.person.processes("app-server")
        return [each for each in self.person.processes(NEXUS_AGENT_ID=self.agent_id) if each not in servers]

    def wake(self, text: str, send: Callable[[str, str], object] | None = None) -> None:
        """Write to the agent, which is woken for it once, and sleeps again."""
        before = set(self.waiters())
        (send or self.person.send)(self.agent_id, text)
        until(lambda: turns(text))
        until(lambda: set(self.waiters()) - before)
        assert turns(text) == 1


@pytest.fixture
def person(tmp_path: Path, address: str) -> Iterator[Person]:
    person = Person(tmp_path, address)
    yield person
    for session in person.opened:
        with suppress(subprocess.CalledProcessError):  # it was closed
            print(session.name, session.agent_id, session.terminal.screen().strip(), sep="\n")  # if the test failed
    for process in person.processes():
        with suppress(psutil.NoSuchProcess):
            process.kill()


def new(said: Sequence[Said]) -> str:
    """What a request to the model has since the model last spoke."""
    spoke = max((n for n, (who, _) in enumerate(said) if who in ("said", "called")), default=-1)
    return "\n".join(text for _, text in said[spoke + 1 :])


def turns(text: str) -> int:
    """How many requests to the model have this text in what is new since it last spoke."""
    return sum(text in new(said) for said in Provider.asked)
