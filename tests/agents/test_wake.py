"""Agents that sit idle in somebody's terminal, and are woken: published clients over models that do what they are told.

`pytest tests/agents -m ""` plays this. The clients are installed from npm where NEXUS_AGENTS lacks them.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import psutil
import pytest

from nexus.hooks import hook_state
from tests.acceptance.hub import START_SECONDS, serving
from tests.acceptance.terminal import LEAD
from tests.agents.install import installed
from tests.agents.providers import Provider, Round, Said, play, serve
from tests.agents.test_day import INSTALLED
from tests.agents.test_guard import CLIENTS
from tests.hooks.harness import until
from tests.reservations.git import Repo

pytestmark = [pytest.mark.usefixtures("runs_published"), pytest.mark.sqlite]
NEXUS = str(Path(sys.executable).with_name("nexus"))
LAST = 20  # number that two agents tell each other


class Terminal:
    """Claude Code in a terminal of its own, for an agent of this name."""

    def __init__(self, agent_id: str, repo: Repo, home: Path, address: str) -> None:
        self.agent_id, self.repo, self.home = agent_id, repo, home
        self.client = CLIENTS["claude-code"]
        foreign = ("NEXUS_", "DJANGO_", "GIT_", "CLAUDE")
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        self.environ |= {"HOME": str(home), "NEXUS_HOME": str(home / ".nexus"), "NEXUS_AGENT_ID": agent_id}
        self.environ |= {"TERM": "xterm-256color", "DISABLE_AUTOUPDATER": "1", **self.client.environ(address)}
        about = {"hasTrustDialogAccepted": True, "enabledMcpjsonServers": ["nexus"]}
        known = {
            "hasCompletedOnboarding": True,
            "customApiKeyResponses": {"approved": [self.environ["ANTHROPIC_API_KEY"]]},
            "projects": {str(repo.top): about},
        }
        home.joinpath(".claude.json").write_text(json.dumps(known))

    def open(self) -> None:
        """Start the client, and return once its agent can be woken."""
        place = INSTALLED / "client-claude-code"
        program = installed(self.client.package, self.client.version, self.client.command[0], place)
        self.shown = ""
        self.keyboard, own = pty.openpty()
        termios.tcsetwinsize(own, (40, 120))
        self.process = subprocess.Popen(
            [sys.executable, "-c", LEAD, str(program), "--allowedTools=Bash"],
            cwd=self.repo.top,
            env=self.environ,
            stdin=own,
            stdout=own,
            stderr=own,
            start_new_session=True,
        )
        os.close(own)
        threading.Thread(target=self._show, args=(self.keyboard,), daemon=True).start()
        until(self.can_be_woken)

    def _show(self, screen: int) -> None:
        with contextlib.suppress(OSError):  # the client has ended
            while data := os.read(screen, 65_536):
                self.shown += data.decode(errors="replace")

    def type(self, line: str) -> None:
        """Type a line, and Enter once the client shows it: what comes at once it takes for a paste."""
        before = len(self.shown)
        os.write(self.keyboard, line.encode())
        until(lambda: line[:4] in self.shown[before:])
        os.write(self.keyboard, b"\r")

    def kill(self) -> None:
        """Kill the client; whatever it started ends by itself."""
        self.process.kill()
        self.process.wait()
        until(lambda: not self.processes())

    def processes(self, program: str = "") -> list[psutil.Process]:
        """What the client started, also what left its group; of a program alone, or all."""
        mine = {("HOME", str(self.home)), ("NEXUS_AGENT_ID", self.agent_id)}
        found = []
        for each in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if mine <= each.environ().items() and program in " ".join(each.cmdline()):
                    found.append(each)
        return found

    def can_be_woken(self) -> bool:
        return hook_state.can_be_woken(self.home / ".nexus", self.agent_id, str(self.repo.top))

    def nexus(self, *command: str) -> str:
        """What a command says."""
        line = [NEXUS, *command]
        done = subprocess.run(line, cwd=self.repo.top, env=self.environ, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Callable[[str], Terminal]]:
    """Open a terminal for an agent; all are of one user, in one project."""
    Provider.asked.clear()
    server, address = serve()
    repo, home = Repo.make(tmp_path / "shop"), tmp_path / "home"
    home.mkdir()
    opened: list[Terminal] = []

    def open_one(agent_id: str) -> Terminal:
        one = Terminal(agent_id, repo, home, address)
        if not opened:
            one.nexus("setup", "--yes", "--client", "claude-code", "--without", "hub", "--without", "texts")
        one.nexus("agents", "create", agent_id)
        opened.append(one)
        one.open()
        return one

    yield open_one
    for one in opened:
        one.process.kill()
    for one in opened:
        one.kill()
        os.close(one.keyboard)
    server.shutdown()


def asked(text: str) -> bool:
    """Whether a request to the model said this."""
    return any(text in each for said in Provider.asked for _, each in said)


def test_what_is_for_an_idle_agent_begins_its_turn_once_and_leaves_no_process(
    terminals: Callable[[str], Terminal],
) -> None:
    ben = terminals("ben")
    ben.nexus("send", "ben", "the first")  # where nobody typed anything yet
    until(lambda: asked("the first"))

    until(lambda: ben.processes("waiter.py"))[0].kill()
    until(lambda: not ben.can_be_woken())
    ben.nexus("send", "ben", "the second")
    ben.type(play("typed"))
    until(lambda: asked("the second"))

    for text in ("the third", "the fourth"):  # each by a hub that was started anew
        until(ben.can_be_woken)
        with serving(ben.home / ".nexus") as hub:
            letter = {"project_root": str(ben.repo.top), "from_agent_id": "ann", "subject": text, "body": text}
            hub.call("message_create", **letter, target={"strategy": "direct", "agent_id": "ben"})
            until(partial(asked, text))
    until(ben.can_be_woken)
    # What was typed makes two requests: when its turn ends, our hook asks once for the mail that was not pulled. The
    # client also asks for a title.
    turns = [said for said in Provider.asked if not said[-1][1].startswith("<session>")]
    assert len(turns) == 5, "one for each message, and none between"

    ben.type("/exit")
    ben.process.wait(START_SECONDS)
    until(lambda: not ben.processes())
    ben.open()
    ben.kill()
    assert "the fourth" in ben.nexus("inbox", "list", "--agent", "ben")


def talk(said: Sequence[Said]) -> Round:
    """Send the number after the one that a notice tells to the other agent."""
    who, text = said[-1]
    told = [int(number) for number in re.findall(r"number (\d+)", text)]
    if who != "user" or not told or max(told) == LAST:
        return "ok"
    me, other = ("ben", "ann") if 'You are agent "ben"' in text else ("ann", "ben")
    line = f"{NEXUS} send --sender {me} {other} 'number {max(told) + 1}'"
    return [["Bash", {"command": line, "description": "Answer"}]]


@pytest.mark.long
def test_two_agents_answer_each_other_with_nobody_there(
    terminals: Callable[[str], Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.agents.providers.plan", talk)
    ann, _ben = terminals("ann"), terminals("ben")
    ann.nexus("send", "ben", "number 1")
    until(lambda: asked(f"number {LAST}"))
    told = [re.findall(r'body: "number (\d+)"', said[-1][1]) for said in Provider.asked if said[-1][0] == "user"]
    assert told == [[str(number)] for number in range(1, LAST + 1)], "each once"
