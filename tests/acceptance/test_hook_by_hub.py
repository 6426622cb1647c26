"""`nexus hook` beside a hub, which answers in Django's place: what it says and does is the same as without it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcp_bridge.relay import DIRECTORY, SOCKET
from mcp_bridge.remote import GO, HOOK_SECONDS, WELCOME
from tests.acceptance import hub as hubs
from tests.acceptance.hub import START_SECONDS, Hub
from tests.acceptance.processes import ROOT, calls_of, environment
from tests.hooks.harness import PATIENT, until

DJANGO = "django.apps.registry"  # imported once Django starts
STANDALONE = {"NEXUS_STANDALONE": "1"}


def hook(home: Path, project: str, event: str, *arguments: str, **environ: str) -> tuple[str, set[str]]:
    """What the hook prints for a point of a session, and the modules that its process imports."""
    used = {"hook_event_name": event, "cwd": project, "session_id": "one", "prompt": "[d] SQLite"}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", PATIENT, "--agent-id", "builder", *arguments],
        input=json.dumps(used),
        env=environment(home, **environ),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
    )
    said = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert (done.returncode, said) == (0, []), done.stderr
    return done.stdout, {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


def begun(home: Path, project: str) -> None:
    """A session that its hook holds open."""
    hook(home, project, "SessionStart")
    until(lambda: next(iter(home.glob("hooks/*.session.json")), None))


def write(hub: Hub, project: str, subject: str) -> None:
    letter = {"project_root": project, "from_agent_id": "reviewer", "subject": subject, "body": "b"}
    hub.call("message_create", **letter, target={"strategy": "direct", "agent_id": "builder"})


def forget(home: Path) -> None:
    """As if the agent had been told of nothing."""
    for file in home.glob("hooks/*.told.json"):
        file.unlink()


@contextmanager
def in_place_of_a_hub(home: Path, play: Callable[[socket.socket], None]) -> Iterator[list[bytes]]:
    """Something else at the socket, which plays its part with each that connects; the first line of each."""
    directory = home / DIRECTORY
    directory.mkdir(exist_ok=True, mode=0o700)
    (directory / SOCKET).unlink(missing_ok=True)
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(directory / SOCKET))
        listening.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    heard.append(connection.makefile("rb").readline())
                    play(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield heard
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(START_SECONDS)


def test_it_tells_the_same_without_a_django_of_its_own(home: Path, hub_beside: Hub, project: str) -> None:
    begun(home, project)
    write(hub_beside, project, "Hello")
    hub_beside.call(
        "handoff_create",
        project_root=project,
        from_agent_id="reviewer",
        target={"strategy": "broadcast"},
        visibility="public",
        payload="Measure it",
    )
    before = calls_of(hub_beside, "inbox_peek")
    by_hub, imported = hook(home, project, "PostToolUse")
    assert calls_of(hub_beside, "inbox_peek") > before  # twice where the store is on a server
    forget(home)
    by_itself, own = hook(home, project, "PostToolUse", **STANDALONE)
    assert by_hub == by_itself and "Hello" in by_hub and "Measure it" in by_hub
    assert DJANGO not in imported, sorted(imported)[:5]
    assert not imported & {"pydantic", "dataclasses", "inspect", "tempfile"}, "each takes some of the 80 ms"
    assert DJANGO in own


def test_what_one_way_told_the_other_does_not_tell_again(home: Path, hub_beside: Hub, project: str) -> None:
    begun(home, project)
    for number, (first, second) in enumerate((({}, STANDALONE), (STANDALONE, {}))):
        write(hub_beside, project, f"letter {number}")
        assert f"letter {number}" in hook(home, project, "PostToolUse", **first)[0]
        write(hub_beside, project, f"next {number}")
        told = hook(home, project, "PostToolUse", **second)[0]
        assert f"next {number}" in told and f"letter {number}" not in told


def test_it_names_debts_and_tells_of_its_session_by_the_hub(home: Path, hub_beside: Hub, project: str) -> None:
    before = calls_of(hub_beside, "session_open")
    begun(home, project)
    assert calls_of(hub_beside, "session_open") == before + 1
    until(lambda: hub_beside.call("agent_get", agent_id="builder").get("activity", {}).get("state") == "asleep")
    write(hub_beside, project, "Hello")
    hub_beside.call("inbox_pull", agent_id="builder")
    told, imported = hook(home, project, "Stop")
    assert "still owe 1 thing" in told and DJANGO not in imported
    assert hook(home, project, "Stop")[0] == ""


def test_a_point_of_a_session_acts_by_the_hub(home: Path, hub_beside: Hub, project: str) -> None:
    begun(home, project)
    question = {"topic": "t", "issues": ["Which?"], "research_summary": "r"}
    hub_beside.call("plan_start", "planning/", project_root=project, **question)
    told, imported = hook(home, project, "UserPromptSubmit", "--planning", "--client", "claude-code")
    assert "is decided as the user says" in told and DJANGO not in imported
    assert calls_of(hub_beside, "plan_decide") == 1


def test_an_operation_that_fails_is_told_in_the_same_words(home: Path, hub_beside: Hub, project: str) -> None:
    begun(home, project)
    words = ("UserPromptSubmit", "--planning", "--client", "claude-code")
    by_hub, imported = hook(home, project, *words)
    assert by_hub == hook(home, project, *words, **STANDALONE)[0]
    assert "[d] was not carried out" in by_hub and DJANGO not in imported


def test_its_own_settings_and_a_key_of_the_agent_change_nothing(home: Path, hub_beside: Hub, project: str) -> None:
    key = hub_beside.key("builder")
    hub_beside.call("agent_register", agent_id="builder")
    begun(home, project)
    write(hub_beside, project, "Hello")
    told, imported = hook(home, project, "PostToolUse", NEXUS_API_KEY=key, NEXUS_GUARD_EDITS="stop")
    assert "Hello" in told and DJANGO not in imported


def test_a_hub_of_another_store_is_not_asked(home: Path, hub_beside: Hub, project: str) -> None:
    begun(home, project)
    write(hub_beside, project, "Hello")
    told, imported = hook(home, project, "PostToolUse", NEXUS_MAX_INLINE_BYTES="5000")
    assert "Hello" in told and DJANGO in imported


def silent(connection: socket.socket) -> None:
    """Reads, and says nothing."""
    connection.recv(1)


def other(connection: socket.socket) -> None:
    """A hub of another version."""
    connection.sendall(b'{"nexus":"elsewhere","message":"Another version.","answer":{}}\n')


def dies(connection: socket.socket) -> None:
    """Is killed when it was asked, in the middle of its answer."""
    connection.sendall(json.dumps(WELCOME).encode() + b"\n")
    assert connection.recv(len(GO)) == GO
    connection.sendall(b'{"data":["Hel')


@pytest.mark.parametrize("play", [silent, other, dies])
def test_what_a_hub_does_not_answer_the_hook_tells_itself_once(
    home: Path, hub_beside: Hub, project: str, play: Callable[[socket.socket], None]
) -> None:
    begun(home, project)
    write(hub_beside, project, "Hello")
    assert hub_beside.stop() == 0
    with in_place_of_a_hub(home, play) as heard:
        told, imported = hook(home, project, "PostToolUse")
        assert "Hello" in told and DJANGO in imported
        assert b'"hook"' in heard[0]
        assert hook(home, project, "PostToolUse")[0] == ""


def busy(connection: socket.socket) -> None:
    """Answers when a hook that its client waits for would have begun to tell it itself."""
    threading.Event().wait(2 * HOOK_SECONDS)
    connection.sendall(json.dumps(WELCOME).encode() + b"\n")
    assert connection.recv(len(GO)) == GO
    connection.sendall(b'{"data":["as the hub tells it",["m"]]}\n')


def test_a_wake_for_which_nobody_waits_leaves_a_busy_hub_time(home: Path, hub_beside: Hub, project: str) -> None:
    begun(home, project)
    write(hub_beside, project, "Hello")
    assert hub_beside.stop() == 0
    command = [sys.executable, "-P", "-m", "nexus", "wait", "--agent", "builder", "--project", project]
    with in_place_of_a_hub(home, busy):
        done = subprocess.run(command, env=environment(home), cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "as the hub tells it"), done.stderr


def test_a_killed_hub_loses_no_notice(home: Path, project: str) -> None:
    hub = hubs.start(home)
    begun(home, project)
    write(hub, project, "Hello")
    hub.stop(signal.SIGKILL)
    assert (home / DIRECTORY / SOCKET).exists()
    told, _ = hook(home, project, "PostToolUse")
    assert "Hello" in told
    assert hook(home, project, "PostToolUse")[0] == ""


def test_what_a_hub_may_have_done_is_not_done_again(home: Path, hub_beside: Hub, project: str) -> None:
    begun(home, project)
    question = {"topic": "t", "issues": ["Which?"], "research_summary": "r"}
    hub_beside.call("plan_start", "planning/", project_root=project, **question)
    assert hub_beside.stop() == 0
    with in_place_of_a_hub(home, dies):
        told, _ = hook(home, project, "UserPromptSubmit", "--planning", "--client", "claude-code")
    assert "may have been done" in told and "is decided" not in told
