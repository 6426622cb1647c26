"""What a version from before the apps moved below `nexus` wrote or was given: it holds, and can be taken out."""

from __future__ import annotations

import json
import shlex
import sys
import tomllib
from collections.abc import Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from mcp.client.client import Client

from nexus.control.runners_file import read_runners
from nexus.core.config import RETIRED, variable
from tests import warm
from tests.acceptance.hub import START_SECONDS
from tests.acceptance.processes import ROOT, environment, pipes
from tests.conftest import Furnish

KEPT = ROOT / "tests" / "data" / "before-the-move"
PLACES = {  # below a person's home; the project is `shop`
    "claude-code.hooks.json": "shop/.claude/settings.local.json",
    "claude-code.json": "shop/.mcp.json",
    "claude-desktop.json": ".config/Claude/claude_desktop_config.json",
    "codex.hooks.json": "shop/.codex/hooks.json",
    "codex.toml": "shop/.codex/config.toml",
    "cursor.hooks.json": "shop/.cursor/hooks.json",
    "cursor.json": "shop/.cursor/mcp.json",
    "gemini.json": "shop/.gemini/settings.json",
    "vscode.json": "shop/.vscode/mcp.json",
    "windsurf.json": ".codeium/windsurf/mcp_config.json",
}


@pytest.fixture
def person(tmp_path: Path, furnish: Furnish, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's home directory with these files and a store."""
    person = tmp_path / "person"
    for name, place in PLACES.items():
        text = (KEPT / name).read_text().replace("{python}", sys.executable).replace("{manage}", f"{ROOT}/manage.py")
        (person / place).parent.mkdir(parents=True, exist_ok=True)
        (person / place).write_text(text.replace("{person}", str(person)))
    furnish(person / ".nexus")
    monkeypatch.setenv("HOME", str(person))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return person


def values(content: Any) -> Iterator[Mapping[str, Any]]:
    """Every table in what a file holds."""
    if isinstance(content, Mapping):
        yield content
        content = content.values()
    if not isinstance(content, str | int | float | None):
        for each in content:
            yield from values(each)


def tables(person: Path) -> list[Mapping[str, Any]]:
    texts = {place: (person / place).read_text() for place in PLACES.values()}
    read = [tomllib.loads(text) if place.endswith(".toml") else json.loads(text) for place, text in texts.items()]
    return [table for content in read for table in values(content) if "command" in table]


@pytest.mark.usefixtures("starts_processes")
def test_its_hooks_run(person: Path) -> None:
    commands = {table["command"] for table in tables(person) if " hook " in table["command"]}
    assert len(commands) == 4
    environ = environment(person / ".nexus")
    assert warm.run(["agents", "create", "builder"], environ, timeout=START_SECONDS).returncode == 0
    for number, (python, manage, *arguments) in enumerate(map(shlex.split, sorted(commands))):
        mail = ["send", "--to", "builder", "--subject", f"plan {number}", "--body", "b", "--project", str(person)]
        assert warm.run(mail, environ, timeout=START_SECONDS).returncode == 0
        assert (python, manage) == (sys.executable, f"{ROOT}/manage.py")
        name = "postToolUse" if "cursor" in arguments else "SessionStart"
        event = json.dumps({"hook_event_name": name, "cwd": str(person / "shop"), "session_id": f"s{number}"})
        done = warm.run(arguments, environ, given=event, timeout=START_SECONDS)
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
        assert f"plan {number}" in done.stdout


@pytest.mark.usefixtures("starts_processes")
async def test_its_entries_start_a_server(person: Path) -> None:
    entries = [table for table in tables(person) if "args" in table]
    assert len(entries) == 7
    [(command, manage, runmcp, *flags)] = {(entry["command"], *entry["args"]) for entry in entries}
    assert (command, manage, runmcp) == (sys.executable, f"{ROOT}/manage.py", "runmcp")
    async with Client(pipes(environment(person / ".nexus"), *flags)) as client:
        assert "inbox_pull" in {tool.name for tool in (await client.list_tools()).tools}


def test_they_are_taken_out_again(person: Path) -> None:
    for client in ("claude-code", "codex", "cursor", "gemini", "vscode", "windsurf", "claude-desktop"):
        options = ["--client", client, "--project", str(person / "shop"), "--yes"]
        call_command("connect", "--remove", *options, stdout=StringIO())
        if client in ("claude-code", "codex", "cursor", "gemini"):
            call_command("hook", "uninstall", *options, stdout=StringIO())
    assert [place for place in PLACES.values() if "manage.py" in (person / place).read_text()] == []


def test_its_runners_are_read() -> None:
    known = read_runners(KEPT / "runners.toml")
    assert known.default == "small"
    assert {name: runner.kind for name, runner in known.by_name.items()} == {
        "rehearsal": "rehearsal",
        "small": "model",
        "claude": "acp",
        "stage": "rehearsal",
        "reader": "rehearsal",
    }


@pytest.mark.usefixtures("starts_processes")
def test_its_settings_are_taken(tmp_path: Path, furnish: Furnish) -> None:
    """Each setting of that version, as a variable: its default, or what its documentation gave as an example. One that
    is none any more is named."""
    given = dict(line.split("=", 1) for line in (KEPT / "settings.env").read_text().splitlines())
    done = warm.run(
        ["settings", "list", "--json"], environment(furnish(tmp_path / "home"), **given), timeout=START_SECONDS
    )
    assert done.returncode == 0, done.stderr
    settings = {each["name"]: each for each in json.loads(done.stdout)["settings"]}
    taken = {f"NEXUS_{name.upper()}" for name, each in settings.items() if each["source"] == "environment"}
    gone = {name for name in given.keys() - taken if f"[nexus] {name} is no setting any more: " in done.stderr}
    assert taken | gone >= given.keys()
    assert gone == {variable(name) for name in RETIRED} & given.keys()
