"""Backup while real processes write and a real hub serves, and restore."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests import warm
from tests.acceptance.hub import ROOT, START_SECONDS, Hub, serving
from tests.acceptance.test_tail import Tail

pytestmark = pytest.mark.sqlite

WRITERS, BACKUPS = 2, 2

# Sends messages to a peer until killed; says the id of each that was acknowledged.
WRITER = """
import sys, django
django.setup()
from nexus.core.operations.caller import Caller
from coordination.toolset import run
while True:
    arguments = {"project_root": sys.argv[1], "from_agent_id": "ana", "subject": "s", "body": "b" * 500,
                 "target": {"strategy": "direct", "agent_id": "bob"}}
    envelope = run(Caller(transport="test"), "message_create", arguments)
    if envelope["ok"]:
        print(envelope["data"]["message_id"], flush=True)
"""


def environ(home: Path) -> dict[str, str]:
    return {**os.environ, "NEXUS_HOME": str(home), "DJANGO_SETTINGS_MODULE": "nexus_site.settings"}


def nexus(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return warm.run(arguments, environ(home), timeout=START_SECONDS)


@dataclass
class Writer:
    """A process that writes, and the file where it notes what was acknowledged."""

    process: subprocess.Popen[str]
    notes: Path

    def acknowledged(self) -> set[str]:
        """The messages that it was told are stored, so far."""
        return set(self.notes.read_text().rpartition("\n")[0].split())

    def write_on(self) -> None:
        """Return once it has written another message."""
        before = len(self.acknowledged())
        while len(self.acknowledged()) == before:
            assert self.process.poll() is None
            time.sleep(0.01)


@pytest.fixture
def writers(hub: Hub, project: str, tmp_path: Path) -> Iterator[list[Writer]]:
    """Processes of agents that write to the hub's store as fast as they can."""
    for agent_id in ("ana", "bob"):
        hub.call("agent_register", agent_id=agent_id)
    started = []
    for number in range(WRITERS):
        notes = tmp_path / f"notes-{number}"
        with notes.open("w") as file:
            command = [sys.executable, "-c", WRITER, project]
            process = subprocess.Popen(command, cwd=ROOT, env=environ(hub.home), text=True, stdout=file)
        started.append(Writer(process, notes))
    yield started
    for writer in started:
        writer.process.kill()
        writer.process.wait()


def check_consistent(database: Path) -> set[str]:
    """A store in which every message has its event and its delivery, and nothing else is there; the messages' ids."""
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, isolation_level=None)) as store:
        store.execute("BEGIN")
        assert store.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert store.execute("PRAGMA foreign_key_check").fetchall() == []
        messages = {row[0] for row in store.execute("SELECT message_id FROM messages")}
        told = "SELECT json_extract(payload, '$.message_id') FROM events WHERE type = 'message.created'"
        assert {row[0] for row in store.execute(told)} == messages
        assert {row[0] for row in store.execute("SELECT message_id FROM message_deliveries")} == messages
    return messages


def events_of(database: Path) -> dict[int, str]:
    """By event id, what the event is of."""
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as store:
        return dict(store.execute("SELECT event_id, type || payload || created_at FROM events"))


def test_it_backs_up_one_moment_while_agents_write_and_restores_it_once_they_ended(
    hub: Hub, writers: list[Writer], tmp_path: Path
) -> None:
    sizes = []
    for number in range(BACKUPS):
        for writer in writers:
            writer.write_on()
        before = set[str]().union(*(writer.acknowledged() for writer in writers))
        done = nexus(hub.home, "backup", str(tmp_path / f"{number}.db"), "--json")
        assert done.returncode == 0, done.stderr
        held = check_consistent(tmp_path / f"{number}.db")
        assert before <= held
        assert json.loads(done.stdout)["rows"]["messages"] == len(held)
        sizes.append(len(held))
    assert sizes == sorted(set(sizes)), "the writers went on meanwhile"

    refused = nexus(hub.home, "restore", str(tmp_path / "0.db"))
    assert refused.returncode == 1 and "in use" in refused.stderr
    for writer in writers:
        writer.process.send_signal(signal.SIGKILL)
        writer.process.wait()
    assert hub.stop() == 0
    done = nexus(hub.home, "restore", str(tmp_path / "0.db"), "--json")
    assert done.returncode == 0, done.stderr
    assert check_consistent(tmp_path / "0.db") == check_consistent(hub.home / "nexus.db")
    aside = Path(json.loads(done.stdout)["replaced"])
    replaced = check_consistent(aside)
    former, present = events_of(aside), events_of(hub.home / "nexus.db")
    assert not {event_id for event_id in former.keys() & present.keys() if former[event_id] != present[event_id]}
    assert "history.restored" in present[max(former) + 1]
    assert set[str]().union(*(writer.acknowledged() for writer in writers)) <= replaced
    examined = nexus(hub.home, "doctor")
    assert examined.returncode == 0, examined.stdout


def test_every_follower_with_a_cursor_is_told_that_history_was_replaced(
    hub_beside: Hub, project: str, tmp_path: Path
) -> None:
    hub = hub_beside
    workspace_id = hub.call("workspace_resolve", project_root=project)["workspace_id"]
    hub.call("agent_register", agent_id="fay")
    assert nexus(hub.home, "backup", str(tmp_path / "early.db")).returncode == 0
    note = {"project_root": project, "from_agent_id": "fay", "body": "b", "target": {"strategy": "broadcast"}}
    lost = hub.call("message_create", **note, subject="lost")["event_id"]
    assert hub.stop() == 0
    assert nexus(hub.home, "restore", str(tmp_path / "early.db")).returncode == 0
    with serving(hub.home) as again:
        where = {"project_root": project, "agent_id": "fay", "stream": "workspace"}
        after = again.call("message_create", **note, subject="after")["event_id"]
        told, line = again.call("event_wait", **where, cursor=lost, timeout_seconds=30)["events"]
        assert told["type"] == "history.restored"
        assert lost <= told["payload"]["former"] < told["event_id"] < line["event_id"] == after
        stream = f"{again.url}/api/v1/stream?cursor={lost}&workspace={workspace_id}"
        with httpx.stream("GET", stream) as listening:
            assert "history.restored" in next(line for line in listening.iter_lines() if line.startswith("data:"))
        store = ("--db-path", str(hub.home / "nexus.db"), "--project", project)
        follower = Tail(*store, "--agent", "fay", "--from", str(lost))
        try:
            assert [follower.next()["event_id"] for _ in range(2)] == [told["event_id"], after]
        finally:
            follower.process.kill()
            follower.process.wait()
