"""The first hour of somebody who has two published clients: one command sets up a project, two sentences let the agents
talk, and a person answers a question.

`pytest tests/agents -m ""` plays this. The clients are installed from npm where NEXUS_AGENTS lacks them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nexus.core.cli import NOTHING
from nexus_site import background
from tests.acceptance.pool import until
from tests.agents.install import installed
from tests.agents.providers import Provider, Round, play
from tests.agents.test_day import INSTALLED
from tests.agents.test_guard import CLIENT_SECONDS, CLIENTS, address
from tests.reservations.git import Repo

__all__ = ["address"]
pytestmark = [pytest.mark.usefixtures("runs_published"), pytest.mark.sqlite, pytest.mark.long]
NEXUS = Path(sys.executable).with_name("nexus")


class Newcomer:
    """Somebody with a small project and two clients that were never started here."""

    def __init__(self, home: Path, address: str) -> None:
        self.repo, self.home = Repo.make(home / "shop"), home
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("NEXUS_", "DJANGO_", "GIT_"))}
        programs = [str(NEXUS.parent)]
        self.environ = {**kept, "HOME": str(home), "PWD": str(self.repo.top)}
        for name in ("claude-code", "codex"):
            client = CLIENTS[name]
            program = installed(client.package, client.version, client.command[0], INSTALLED / f"client-{name}")
            programs.append(str(program.parent))
            self.environ |= client.environ(address)
            for file, text in client.home(address, self.repo.top).items():
                (home / file).parent.mkdir(parents=True, exist_ok=True)
                (home / file).write_text(text)
        self.environ["PATH"] = ":".join([*programs, os.environ["PATH"]])

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command,
            cwd=self.repo.top,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CLIENT_SECONDS,
        )
        assert done.returncode in (0, NOTHING), done.stdout + done.stderr
        return done.stdout

    def tell(self, name: str, sentence: str, *rounds: Round) -> str:
        return self.run(*CLIENTS[name].command, f"{sentence} {play(*rounds)}")


@pytest.fixture
def newcomer(tmp_path: Path, address: str) -> Iterator[Newcomer]:
    yield Newcomer(tmp_path, address)
    background.stop(tmp_path / ".nexus")


def calls(name: str, *made: tuple[str, dict[str, object]]) -> Sequence[Round]:
    return [[[f"{CLIENTS[name].tool}{operation}", arguments]] for operation, arguments in made]


def test_two_agents_talk_and_a_person_answers_after_one_command(newcomer: Newcomer) -> None:
    said = newcomer.run("nexus", "setup", "--yes", "--port", "0")
    sentences = re.findall(r'"(You are (\S+) on Nexus[.] Do your first turn[.])"', said)
    assert [name for _, name in sentences] == ["claude@shop", "codex@shop"]
    [to_claude, claude], [to_codex, codex] = sentences
    root = str(newcomer.repo.top)
    newcomer.tell(
        "codex",
        to_codex,
        [["exec_command", {"cmd": "sleep 5"}]],
        *calls("codex", ("join", {"agent_id": codex})),
        "here",
    )
    letter = {
        "project_root": root,
        "from_agent_id": claude,
        "subject": "The cache key",
        "body": "Does it hold the locale?",
    }
    to = {"strategy": "direct", "agent_id": codex}
    question = {"agent_id": claude, "title": "Red or blue?", "detail": "The button."}
    with ThreadPoolExecutor(1) as beside:
        turn = beside.submit(
            newcomer.tell, "claude-code", to_claude,
            *calls("claude-code", ("join", {"agent_id": claude}), ("message_create", {**letter, "target": to}),
                   ("ask_operator", question)), "done",
        )  # fmt: skip
        until(lambda: turn.done() or "Red or blue?" in newcomer.run("nexus", "questions"))
        assert not turn.done(), (turn.result(), Provider.asked[-1])
        [asked] = re.findall(r"qst_\w+", newcomer.run("nexus", "questions"))
        newcomer.run("nexus", "questions", "answer", asked, "Red.")
        turn.result()
    assert any("Red." in text for who, text in Provider.asked[-1] if who == "answered")
    newcomer.tell("codex", "Read your mail.", [["exec_command", {"cmd": "sleep 5"}]],
                  *calls("codex", ("inbox_pull", {"agent_id": codex})), "read")  # fmt: skip
    assert any("Does it hold the locale?" in text for who, text in Provider.asked[-1] if who == "answered")
    agents = {each["agent_id"] for each in json.loads(newcomer.run("nexus", "agents", "--json"))["agents"]}
    assert agents == {claude, codex}, "hooks and tools know each agent by one name"
