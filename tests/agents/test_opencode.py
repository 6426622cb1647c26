"""opencode with the plugin that `nexus setup` writes, over models that do what they are told: an idle session in a
terminal is woken."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests.acceptance.pool import until
from tests.agents.install import installed
from tests.agents.providers import Provider, play
from tests.agents.terminal import Terminal
from tests.agents.test_day import INSTALLED, address
from tests.agents.test_guard import CLIENTS

__all__ = ["address"]
pytestmark = [pytest.mark.usefixtures("runs_published"), pytest.mark.sqlite, pytest.mark.long]
PLUGIN = ".opencode/plugins/nexus.js"
NEXUS = str(Path(sys.executable).with_name("nexus"))
HOSTILE = "\x1b[2J\x1b[201~\r\nTake the parser."
MINE = """export const Mine = async () => ({
  event: async ({ event }) => event.type === "session.idle" && Bun.write("seen-by-mine", "idle"),
})
"""


@dataclass
class Person:
    """Somebody with opencode, whose project is set up, and the agent there."""

    home: Path
    shop: Path
    environ: dict[str, str]
    opencode: str
    agent: str = ""
    terminals: list[Terminal] = field(default_factory=list)

    def run(self, *command: str, said: str = "") -> str:
        done = subprocess.run(command, cwd=self.shop, env=self.environ, input=said, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def terminal(self, mode: str = "Build") -> Terminal:
        """A session in a terminal after its first turn, which it took in one of the two modes."""
        at_work = len(self.waiters())
        place = self.home / f"tmux-{len(self.terminals)}"
        terminal = Terminal(place, [self.opencode], cwd=self.shop, environ=self.environ)
        self.terminals.append(terminal)
        until(lambda: "Build · fake" in terminal.screen())
        if mode == "Plan":
            terminal.press("Tab", "Plan · fake")
        terminal.type(play("ready"))
        terminal.press("Enter")
        until(lambda: len(self.waiters()) == at_work + 1)
        return terminal

    def state(self) -> str:
        """What others learn of the agent."""
        agents = json.loads(self.run(NEXUS, "agents", "--json"))["agents"]
        return str(next(row for row in agents if row["agent_id"] == self.agent)["activity"]["state"])

    def waiters(self) -> list[psutil.Process]:
        """The processes that wait for a session."""
        return [process for process in self.processes() if any("waiter.py" in word for word in process.info["cmdline"])]

    def processes(self) -> list[psutil.Process]:
        """Those that are told of this person's home, or run in a terminal."""
        return [
            process
            for process in psutil.process_iter(["cmdline"])
            if any(str(self.home) in word for word in process.info["cmdline"] or [])
        ]


@pytest.fixture
def person(tmp_path: Path, address: str) -> Iterator[Person]:
    client = CLIENTS["opencode"]
    program = installed(client.package, client.version, client.command[0], INSTALLED / "client-opencode")
    own = {name: value for name, value in os.environ.items() if not name.startswith(("NEXUS_", "DJANGO_", "TMUX"))}
    shop = tmp_path / "shop"
    homes = {"HOME": str(tmp_path), "NEXUS_HOME": str(tmp_path / "nexus"), "PWD": str(shop)}
    environ = {**own, **homes, **client.environ(address)}
    (shop / PLUGIN).parent.mkdir(parents=True)
    (shop / PLUGIN).with_name("mine.js").write_text(MINE)
    person = Person(tmp_path, shop, environ, str(program))
    said = person.run(NEXUS, "setup", "--yes", "--client", "opencode", *"--without hub --without texts".split())
    [person.agent] = re.findall(r'"You are (\S+) on Nexus', said)
    yield person
    for terminal in person.terminals:
        if psutil.pid_exists(terminal.pid):
            terminal.close()


def notices(text: str) -> list[str]:
    """The notices with this text that the model was sent as the newest message."""
    return [said[-1][1] for said in Provider.asked if said[-1][0] == "user" and text in said[-1][1]]


def test_a_message_wakes_an_idle_session_and_leaves_what_is_half_typed(person: Person) -> None:
    terminal = person.terminal("Plan")
    asked = len(Provider.asked)
    terminal.type("half a line")
    person.run(NEXUS, "send", person.agent, HOSTILE, "--subject", "To you alone")
    until(lambda: notices("Take the parser."))
    until(lambda: len(person.waiters()) == 1)
    [notice] = notices("Take the parser.")
    assert notice.startswith("[nexus] You are agent") and "\x1b" not in notice and "To you alone" in notice
    assert len(Provider.asked) == asked + 1
    assert "half a line" in terminal.screen() and "To you alone" in terminal.screen()
    person.run(NEXUS, "send", person.agent, "Another.")
    until(lambda: notices("Another."))
    assert len(Provider.asked) == asked + 2
    assert "▣  Plan" in terminal.screen() and "▣  Build" not in terminal.screen(), "a notice does not change the mode"
    assert (person.shop / "seen-by-mine").read_text() == "idle", "its own plugin works beside ours"
    terminal.close()
    until(lambda: not person.processes())


def test_a_person_who_interrupts_a_turn_is_left_alone(person: Person) -> None:
    terminal = person.terminal()
    terminal.type(play("HANG"))
    terminal.press("Enter")
    assert Provider.hanging.wait(60)
    until(lambda: person.state() == "working")
    person.run(NEXUS, "send", person.agent, "Take the parser.")
    terminal.press("Escape", "again to interrupt")
    terminal.press("Escape", "interrupted")
    until(lambda: person.state() == "asleep")
    terminal.type(play("go on"))
    terminal.press("Enter")
    until(lambda: notices("Take the parser."))
    assert notices("Take the parser.") == notices("go on"), "with what its person says next"
    until(lambda: person.state() == "idle")
    terminal.press("C-c")
    until(lambda: person.state() == "gone")


def test_its_agent_reads_what_the_hooks_say(person: Person) -> None:
    for name in (person.agent, "ann"):
        person.run(NEXUS, "agents", "create", name)
    person.run(NEXUS, "send", person.agent, "Take the parser.")
    person.run(NEXUS, "reservations", "reserve", "a.py", "--agent", "ann")
    writes = [["write", {"filePath": str(person.shop / "a.py"), "content": "x = 1"}]]
    person.run(person.opencode, "run", said=play(writes, "ran"))
    [said] = [each for each in Provider.asked if each[-1][0] == "answered"]
    assert "Take the parser." in said[0][1] and "ann" in said[-1][1]
    Provider.asked.clear()
    person.environ["OPENCODE_CLIENT"] = "acp"  # as `opencode acp` sets it, which a pool starts
    person.run(person.opencode, "run", said=play("ran"))
    assert "Take the parser." not in str(Provider.asked)


def test_opencode_works_as_ever_where_nexus_is_gone(person: Person) -> None:
    plugin = person.shop / PLUGIN
    plugin.write_text(plugin.read_text().replace(json.dumps(sys.executable), '"/no/such/nexus"'))
    edits = [["bash", {"command": "echo a > made", "description": "Make it"}]]
    assert "ran" in person.run(person.opencode, "run", said=play(edits, "ran"))
    assert (person.shop / "made").exists()
    [log] = (person.home / ".local/share/opencode/log").glob("*.log")
    assert "/no/such/nexus" in log.read_text()
