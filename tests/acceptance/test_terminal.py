"""Commands under a person's hands: Ctrl-C and Ctrl-D end each with one line and its exit code, never a traceback."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests.acceptance.processes import nexus
from tests.acceptance.terminal import CTRL_C, CTRL_D, Terminal


def last(screen: Terminal) -> list[str]:
    """What stands below what was typed."""
    assert "Traceback" not in screen.shown, screen.shown
    return re.sub(r"\x1b\[[0-9;]*m", "", screen.shown).splitlines()


@pytest.mark.parametrize("end", [CTRL_C, CTRL_D, signal.SIGTERM])
def test_an_agents_server_says_what_it_is_and_ends_at_once(home: Path, end: str | signal.Signals) -> None:
    with Terminal(home, "runmcp") as screen:
        screen.wait_for("Ctrl-C ends this.\n")
        assert "speaks MCP" in screen.shown and "nexus connect --client" in screen.shown
        if isinstance(end, str):
            screen.type(end)
        else:
            screen.process.send_signal(end)
        assert screen.end() == 0
        assert len(last(screen)) <= 3


@pytest.mark.parametrize(("keys", "code", "said"), [(CTRL_C, 130, "Interrupted"), (CTRL_D, 1, "nothing was changed")])
@pytest.mark.parametrize("command", [["hook", "install", "--client", "codex"], ["connect", "--client", "codex"]])
def test_it_ends_at_a_question(tmp_path: Path, command: list[str], keys: str, code: int, said: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    with Terminal(tmp_path / "home", *command, "--project", str(project)) as screen:
        screen.wait_for("[y/N] ")
        screen.answer(keys)
        assert screen.end() == code
        assert said in last(screen)[-1]
    assert list(project.iterdir()) == []


def test_it_drops_a_message_that_was_being_typed(home: Path, tmp_path: Path) -> None:
    send = ["send", "--to", "bob", "--subject", "s", "--body", "-", "--project", str(tmp_path)]
    for line, keys, code, said in (("half\n", CTRL_C, 130, "Interrupted"), ("", CTRL_D, 1, "No text was typed")):
        with Terminal(home, *send) as screen:
            screen.wait_for("Ctrl-C drops it.\n")
            if line:
                screen.give(line)
            screen.answer(keys)
            assert screen.end() == code
            assert said in last(screen)[-1]
    assert nexus(home, "inbox", "--agent", "bob").returncode != 0


def test_it_sends_what_was_typed(home: Path, tmp_path: Path) -> None:
    nexus(home, "agents", "create", "bob")
    send = ["send", "--to", "bob", "--subject", "s", "--body", "-", "--project", str(tmp_path)]
    with Terminal(home, *send) as screen:
        screen.wait_for("Ctrl-C drops it.\n")
        screen.type("whole\n" + CTRL_D)
        assert screen.end() == 0
    assert "whole" in nexus(home, "inbox", "--agent", "bob", "--full").stdout


def test_a_hub_ends_well(home: Path) -> None:
    with Terminal(home, "serve", "--port", "0") as screen:
        screen.wait_for("[nexus] Ready")
        screen.type(CTRL_C)
        assert screen.end() == 0
        last(screen)
