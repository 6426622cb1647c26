"""Published clients in tmux: `nexus attach` knows their input lines, and its line begins a turn."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from nexus.core.coding_clients import CLIENTS
from nexus.hooks.harness import TYPED
from tests.acceptance.pool import until
from tests.agents.person import NEXUS, STARTED, address
from tests.agents.providers import Provider
from tests.agents.terminal import Terminal, environment

__all__ = ["address"]
pytestmark = [pytest.mark.usefixtures("runs_published"), pytest.mark.sqlite]


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
    "name",
    [
        pytest.param(name, marks=() if name == "gemini" else pytest.mark.long)
        for name in STARTED
        if CLIENTS[name].empty_line
    ],
)
def test_the_line_begins_a_turn(tmp_path: Path, address: str, name: str, start: Callable[..., Terminal]) -> None:
    client, shop = STARTED[name], tmp_path / "shop"
    shop.mkdir()
    environ = environment(tmp_path, **client.environ(address))
    for file, text in client.home(address, shop).items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)

    def run(*words: str) -> None:
        subprocess.run([NEXUS, *words], cwd=shop, env=environ, check=True, capture_output=True)

    run("agents", "create", "builder")
    attach = [NEXUS, "attach", "--agent", "builder", "--", str(client.start())]
    terminal = start(attach, cwd=shop, environ=environ)
    until(lambda: client.asks in terminal.screen())
    terminal.press(client.answer)
    for text in ("first", "second"):
        Provider.asked.clear()
        run("send", "builder", text)
        until(lambda: any(TYPED in text for said in Provider.asked for _, text in said[-1:]))
