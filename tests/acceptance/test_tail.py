"""`nexus tail` as a process of its own beside the one that writes."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from coordination.models import Agent
from tests import warm
from tests.acceptance.hub import ROOT, START_SECONDS
from tests.conftest import Call
from tests.postgres import SERVER, url

Line = dict[str, Any]


def environment() -> dict[str, str]:
    """The environment of a process over the test's own store."""
    name = str(connection.settings_dict["NAME"])
    return {**os.environ, **({"NEXUS_DATABASE_URL": url(name)} if SERVER else {"NEXUS_DB_PATH": name})}


class Tail:
    """A follower over the test's own store."""

    def __init__(self, *flags: str) -> None:
        pipe = subprocess.PIPE
        self.process = warm.Process(["tail", *flags], environment(), stdout=pipe, stderr=pipe)
        self.lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()

    def _drain(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)

    def next(self) -> Line:
        """The next line; the test hangs for a minute at most."""
        line: Line = json.loads(self.lines.get(timeout=START_SECONDS))
        return line

    def subjects(self, count: int) -> list[str]:
        return [self.next()["payload"]["subject"] for _ in range(count)]

    def end(self, number: int = signal.SIGTERM) -> tuple[int, list[Line]]:
        """Signal it: its exit code, and the lines nobody asked for yet."""
        self.process.send_signal(number)
        code = self.process.wait(START_SECONDS)
        self._reader.join()
        assert self.process.stderr is not None
        assert self.process.stderr.read() == b""
        return code, [json.loads(self.lines.get()) for _ in range(self.lines.qsize())]

    def refusal(self) -> str:
        """What it says on stderr when it does not start."""
        assert self.process.stderr is not None
        assert self.process.wait(START_SECONDS) == 1
        return bytes(self.process.stderr.read()).decode()


@pytest.fixture
def tail(committed: None, project: str) -> Iterator[Callable[..., Tail]]:
    """Start a follower in the project: `tail("--agent", "bob")`."""
    started: list[Tail] = []

    def start(*flags: str, everywhere: bool = False) -> Tail:
        started.append(Tail(*(() if everywhere else ("--project", project)), *flags))
        return started[-1]

    yield start
    for follower in started:
        with contextlib.suppress(ProcessLookupError):
            follower.process.kill()
        follower.process.wait()


@pytest.fixture
def send(committed: None, team: None, call: Call, project: str) -> Callable[..., None]:
    """Send a message: `send("a subject", sender="ana", to="bob")`; to nobody in particular it is public."""

    def message(subject: str, sender: str = "ana", to: str | None = None, project_root: str = project) -> None:
        target = {"strategy": "direct", "agent_id": to} if to else None
        call(
            "message_create",
            project_root=project_root,
            from_agent_id=sender,
            subject=subject,
            body="b",
            **({"target": target} if target else {}),
        )

    return message


def wait_for(path: Path) -> None:
    """Wait until a follower keeps its first place: from then on nothing escapes it."""
    deadline = time.monotonic() + START_SECONDS
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_it_prints_what_others_do_from_now_on(
    tail: Callable[..., Tail], send: Callable[..., None], tmp_path: Path
) -> None:
    send("before")
    cursor = tmp_path / "cursor"
    follower = tail("--agent", "bob", "--exclude-agent", "bob", "--from", "latest", "--cursor-file", str(cursor))
    wait_for(cursor)
    send("for cleo alone", to="cleo")
    send("my own echo", sender="bob")
    send("news — für alle\u2028")
    line = follower.next()
    assert line["payload"]["subject"] == "news — für alle\u2028"
    assert line["type"] == "message.created"
    assert line["actor_agent_id"] == "ana"
    assert follower.end() == (0, [])


def subjects(lines: list[Line]) -> list[str]:
    """Of the messages among lines; the notice of a handoff has a longer one."""
    found = [line["payload"]["subject"] for line in lines if "subject" in line["payload"]]
    return ["notice" if "is for you" in subject else subject for subject in found]


def test_each_view_of_the_log_shows_what_belongs_to_it_and_is_no_sign_of_life(
    tail: Callable[..., Tail], send: Callable[..., None], call: Call, project: str, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    send("one")
    send("for cleo alone", to="cleo")
    send("two", sender="cleo")
    send("for bob", to="bob")
    offer = {"target": {"strategy": "direct", "agent_id": "bob"}, "visibility": "private"}
    call("handoff_create", project_root=project, from_agent_id="ana", **offer)
    send("there", to="bob", project_root=str(elsewhere))
    seen_at = Agent.objects.get(pk="bob").last_seen_at
    ids: list[int] = []

    def shows(expected: list[str], *flags: str, number: int = signal.SIGTERM, **more: bool) -> None:
        follower = tail("--from", "beginning", *flags, **more)
        lines: list[Line] = []
        while len(subjects(lines)) < len(expected):
            lines.append(follower.next())
        code, left = follower.end(number)
        assert (code, subjects(lines + left)) == (0, expected), flags
        ids[:] = [line["event_id"] for line in lines if "subject" in line["payload"]]

    shows(["one", "for cleo alone", "two", "for bob", "notice"])
    shows(["one", "for cleo alone", "two", "for bob", "notice", "there"], everywhere=True)
    shows(["one", "two", "for bob", "notice"], "--agent", "bob", number=signal.SIGINT)
    shows(["two", "for bob", "notice"], "--agent", "bob", "--from", str(ids[0]))
    shows(["two"], "--agent", "bob", "--from-agent", "cleo")
    shows(["for bob", "notice", "there"], "--agent", "bob", "--inbox")
    handoffs = tail("--agent", "bob", "--from", "beginning", "--stream", "handoff")
    assert handoffs.next()["type"] == "handoff.created"
    assert handoffs.end() == (0, [])
    assert Agent.objects.get(pk="bob").last_seen_at == seen_at


def test_it_resumes_where_a_killed_follower_was(
    tail: Callable[..., Tail], send: Callable[..., None], tmp_path: Path
) -> None:
    cursor = tmp_path / "cursor"
    flags = ("--agent", "bob", "--cursor-file", str(cursor))
    send("long ago")
    first = tail(*flags)
    wait_for(cursor)
    first.process.kill()
    send("while nobody followed")
    second = tail(*flags)  # from latest, had the first one not kept its place before any event came
    assert second.subjects(1) == ["while nobody followed"]
    send("live")
    assert second.subjects(1) == ["live"]
    assert second.end() == (0, [])
    third = tail(*flags, "--from", "beginning")  # the file precedes --from
    send("last")
    assert third.subjects(1) == ["last"]


def test_it_says_whom_it_does_not_know_and_follows_all_the_same(
    tail: Callable[..., Tail], send: Callable[..., None]
) -> None:
    follower = tail("--agent", "typo", "--exclude-agent", "bob", "--from", "beginning")
    send("for all")
    assert follower.subjects(1) == ["for all"]
    follower.process.terminate()
    follower.process.wait()
    assert follower.process.stderr is not None
    told = follower.process.stderr.read().decode()
    assert told == "[nexus] No agent is called 'typo' yet. `nexus agents` lists them.\n"


def test_it_ends_when_its_reader_goes_away(
    tail: Callable[..., Tail], tmp_path: Path, send: Callable[..., None]
) -> None:
    cursor = tmp_path / "cursor"
    process = subprocess.Popen(
        [sys.executable, "manage.py", "tail", "--agent", "bob", "--cursor-file", str(cursor)],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        wait_for(cursor)
        assert process.stdout is not None
        process.stdout.close()  # and no event comes that it would fail to write
        assert process.wait(START_SECONDS) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
    finally:
        process.kill()


def test_it_refuses_a_command_line_that_makes_no_sense(tail: Callable[..., Tail]) -> None:
    for flags, code in (
        (["--from", "yesterday"], "CONFIG_ERROR"),
        (["--inbox", "--stream", "agent"], "CONFIG_ERROR"),
        (["--stream", "nope"], "INVALID_STREAM"),
    ):
        assert code in tail("--agent", "bob", *flags).refusal()
