"""Published clients in guarded repositories, over models that do what they are told: each commits from its own shell
what its agent holds, and none commits what another holds, with or without git's hooks.

`pytest tests/agents -m ""` plays this, `make check` one of them. The clients are installed from npm where NEXUS_AGENTS
lacks them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.agents.install import installed
from tests.agents.providers import Provider, Round, play, serve
from tests.agents.test_day import INSTALLED, codex_toml, opencode_config
from tests.reservations.git import Repo

pytestmark = [pytest.mark.usefixtures("runs_published"), pytest.mark.sqlite]
CLIENT_SECONDS = 180
CODEX = 'model = "fake"\n{provider}\n[projects."{shop}"]\ntrust_level = "trusted"\n'


@dataclass(frozen=True)
class Client:
    """How a published client is installed and told, and what its tools are called."""

    package: str
    version: str
    command: tuple[str, ...]  # the prompt follows, or comes on stdin
    tool: str  # the prefix of its names for Nexus's tools
    shell: Callable[[str], list[Any]]
    environ: Callable[[str], dict[str, str]]  # for the provider at this address
    home: Callable[[str, Path], dict[str, str]] = lambda address, shop: {}  # files of its user


CLIENTS = {
    "claude-code": Client(
        "@anthropic-ai/claude-code",
        "2.1.197",
        ("claude", "--mcp-config", ".mcp.json", "--allowedTools=mcp__nexus,Bash", "-p"),
        "mcp__nexus__",
        lambda line: ["Bash", {"command": line, "description": "Run it"}],
        lambda address: {"ANTHROPIC_BASE_URL": address, "ANTHROPIC_API_KEY": "k", "IS_SANDBOX": "1"},
    ),
    "codex": Client(
        "@openai/codex",
        "0.171.0",
        ("codex", "exec", "--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust"),
        "mcp__nexus/",
        lambda line: ["exec_command", {"cmd": line}],
        lambda address: {"OPENAI_API_KEY": "k"},
        lambda address, shop: {".codex/config.toml": CODEX.format(provider=codex_toml(address), shop=shop)},
    ),
    "gemini": Client(
        "@google/gemini-cli",
        "0.61.0",
        ("gemini", "--skip-trust", "--yolo", "-p"),
        "mcp_nexus_",
        lambda line: ["run_shell_command", {"command": line}],
        lambda address: {
            "GOOGLE_GEMINI_BASE_URL": address,
            "GEMINI_API_KEY": "k",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        },
        lambda address, shop: {
            ".gemini/settings.json": json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}})
        },
    ),
    "opencode": Client(
        "opencode-ai",
        "1.18.33",
        ("opencode", "run"),
        "nexus_",
        lambda line: ["bash", {"command": line, "description": "Run it"}],
        lambda address: {
            "OPENCODE_CONFIG_CONTENT": opencode_config(address),
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
        },
    ),
}


@pytest.fixture
def address() -> Iterator[str]:
    """The models, at work."""
    Provider.asked.clear()
    server, address = serve()
    yield address
    server.shutdown()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "claude-code" else pytest.mark.long) for name in CLIENTS]
)
def test_a_client_commits_what_its_agent_holds_and_nothing_else(tmp_path: Path, address: str, name: str) -> None:
    client, repo = CLIENTS[name], Repo.make(tmp_path / "shop")
    program = installed(client.package, client.version, client.command[0], INSTALLED / f"client-{name}")
    own = {each: value for each, value in os.environ.items() if not each.startswith(("NEXUS_", "DJANGO_", "GIT_"))}
    environ = {**own, "HOME": str(tmp_path), "PWD": str(repo.top), **client.environ(address)}
    for file, text in client.home(address, repo.top).items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)

    def run(*command: str, said: str = "") -> str:
        done = subprocess.run(
            command, cwd=repo.top, env=environ, input=said, capture_output=True, text=True, timeout=CLIENT_SECONDS
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def nexus(*command: str) -> str:
        return run(str(Path(sys.executable).with_name("nexus")), *command)

    nexus("setup", "--yes", "--client", name, "--without", "hub", "--without", "texts")
    nexus("agents", "create", "ann")
    nexus("reservations", "reserve", "src/b.py", "--agent", "ann")
    mine = {"project_root": str(repo.top), "agent_id": "ben", "paths": ["a.py"]}
    rounds: list[Round] = [
        [client.shell("sleep 5")],  # until its tools of MCP are there
        [[f"{client.tool}join", {"agent_id": "ben"}]],
        [[f"{client.tool}files_reserve", mine]],
        [client.shell("echo x >> a.py; git add a.py")],
        [client.shell("git commit -m own")],
        [client.shell("echo x >> src/b.py; git add src/b.py")],
        [client.shell("git commit -m another")],
        [client.shell("git commit --no-verify -m past")],
        "at work",
    ]
    run(str(program), *client.command[1:], *([] if name == "opencode" else [play(*rounds)]),
        said=play(*rounds) if name == "opencode" else "")  # fmt: skip
    told = "\n".join(text for _, text in Provider.asked[-1])
    made = repo.ok("log", "--format=%s").split("\n")
    assert made == ["own", "first", ""], told
