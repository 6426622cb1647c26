"""Published clients in tmux: `nexus attach` knows their input lines, and its line begins a turn."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from nexus.hooks.harness import TYPED
from tests.acceptance.pool import until
from tests.agents.install import install, installed
from tests.agents.providers import Provider
from tests.agents.terminal import Terminal, environment
from tests.agents.test_day import AGENTS, INSTALLED
from tests.agents.test_guard import CLIENTS, address

__all__ = ["address"]
pytestmark = [pytest.mark.usefixtures("runs_published"), pytest.mark.sqlite]


@dataclass(frozen=True)
class Client:
    """How a client is installed, and started until it is idle."""

    start: Callable[[], Path]  # installs it, and returns its program
    environ: Callable[[str], dict[str, str]]  # for the provider at this address
    home: Callable[[str, Path], dict[str, str]] = lambda address, shop: {}  # files of its user
    asks: str = ""  # what it asks first
    answer: str = ""  # the key that answers it


def claude_json(address: str, shop: Path) -> dict[str, str]:
    trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    known = {"approved": ["k"], "rejected": []}
    settings = {"hasCompletedOnboarding": True, "theme": "dark", "customApiKeyResponses": known}
    return {".claude.json": json.dumps({**settings, "projects": {str(shop): trusted}})}


def copilot_environ(address: str) -> dict[str, str]:
    provider = {"PROVIDER_BASE_URL": f"{address}/v1", "PROVIDER_API_KEY": "k", "MODEL": "fake", "OFFLINE": "true"}
    return {f"COPILOT_{name}": value for name, value in provider.items()}


def apart(name: str, package: str, version: str, program: str) -> Callable[[], Path]:
    return lambda: installed(package, version, program, INSTALLED / f"client-{name}")


def of_guard(name: str, home: Callable[[str, Path], dict[str, str]] | None = None) -> Client:
    known = CLIENTS[name]
    start = apart(name, known.package, known.version, known.command[0])
    return Client(start, known.environ, home or known.home)


STARTED = {
    "claude-code": of_guard("claude-code", claude_json),
    "codex": of_guard("codex"),
    "gemini": of_guard("gemini"),
    "qwen": Client(partial(install, "qwen", INSTALLED), AGENTS["qwen"].env),
    "cline": Client(
        partial(install, "cline", INSTALLED),
        lambda address: {},
        lambda address, shop: {path[2:]: text for path, text in AGENTS["cline"].home(address).items()},
        asks="any other key to close",
        answer="Escape",
    ),
    "copilot": Client(
        apart("copilot", "@github/copilot", "1.0.102", "copilot"), copilot_environ, asks="Do you trust", answer="Enter"
    ),
}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    started = []

    def begin(*how: Any, **named: Any) -> Terminal:
        started.append(Terminal(tmp_path / "s", *how, **named))
        return started[-1]

    yield begin
    for terminal in started:
        terminal.close()
    for process in psutil.process_iter(["environ"]):  # clients leave some behind
        if (process.info["environ"] or {}).get("HOME") == str(tmp_path):
            process.kill()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "gemini" else pytest.mark.long) for name in STARTED]
)
def test_the_line_begins_a_turn(tmp_path: Path, address: str, name: str, start: Callable[..., Terminal]) -> None:
    client, shop, nexus = STARTED[name], tmp_path / "shop", str(Path(sys.executable).with_name("nexus"))
    shop.mkdir()
    environ = environment(tmp_path, **client.environ(address))
    for file, text in client.home(address, shop).items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)

    def run(*words: str) -> None:
        subprocess.run([nexus, *words], cwd=shop, env=environ, check=True, capture_output=True)

    run("agents", "create", "builder")
    attach = [nexus, "attach", "--agent", "builder", "--", str(client.start())]
    terminal = start(attach, cwd=shop, environ=environ)
    until(lambda: client.asks in terminal.screen())
    terminal.press(client.answer)
    for text in ("first", "second"):
        Provider.asked.clear()
        run("send", "builder", text)
        until(lambda: any(TYPED in text for said in Provider.asked for _, text in said[-1:]))
