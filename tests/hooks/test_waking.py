"""What wakes an agent that sits idle: it does so once, whoever tells it, and what waits for it ends with its client."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import time_machine
from django.conf import settings

from nexus.control import hook as questions_queries  # noqa: F401  # as the launcher does
from nexus.control.toolset import CONTROL
from nexus.core.coding_clients import PROMPT, STOP, WAKE
from nexus.core.harness_events import Activity
from nexus.core.operations import dispatch
from nexus.core.operations.caller import Caller
from nexus.hooks import entry, hook_state, signal_files, store_queries, transcripts, waking
from nexus.hooks import harness as harness_texts
from nexus.hooks.harness import TYPED, HookCall
from nexus.topics import hook as topics_queries  # noqa: F401
from nexus_site.management.commands import setup
from tests.acceptance.hub import START_SECONDS
from tests.conftest import OPERATOR
from tests.conftest import Call as Operation
from tests.hooks.harness import Harness, until
from tests.topics.conftest import Client

TERMINAL = {"CLAUDE_CODE_ENTRYPOINT": "cli", "AI_AGENT": "claude-code_2-1-197_harness"}  # what Claude Code sets there
NEXUS = ("-P", "-m", "nexus")
SAYS_STOP = json.dumps({"hook_event_name": "Stop", "session_id": "s1", "cwd": "/"})


def asked(name: str, call: HookCall, **arguments: Any) -> Any:
    return store_queries.answer(name, call, **arguments)


@pytest.fixture
def builder(project: str, committed: None, call: Operation) -> Iterator[HookCall]:
    """A call of the waiter of an agent that is there."""
    call("agent_register", agent_id="builder")
    waits = HookCall("claude-code", WAKE, project, "builder", session="s1")
    store_queries.refresh(waits)
    yield waits
    for fault in settings.NEXUS.home.glob("hooks/*.fault.json"):  # the next test is in the same home
        fault.unlink()


def look(builder: HookCall) -> str:
    return waking.look(settings.NEXUS, builder, asked)[0]


def write(call: Operation, project: str, target: Any, subject: str = "hello") -> str:
    letter = {"project_root": project, "from_agent_id": "reviewer", "subject": subject, "body": subject}
    return str(call("message_create", **letter, target=target)["message_id"])


ITSELF = {"strategy": "direct", "agent_id": "builder"}
AMONG = {"strategy": "mixed", "rules": [{"strategy": "direct", "agent_id": "ann"}, ITSELF]}
ALL = {"strategy": "broadcast"}


@pytest.mark.parametrize(("target", "wakes"), [(ITSELF, True), (AMONG, True), (ALL, False)])
@pytest.mark.parametrize("what", ["message", "handoff"])
def test_what_is_for_the_agent_itself_wakes_it(
    builder: HookCall, call: Operation, project: str, what: str, target: Any, wakes: bool
) -> None:
    if what == "message":
        write(call, project, target)
    else:
        offered = {"from_agent_id": "reviewer", "visibility": "public", "title": "hello", "payload": "x"}
        call("handoff_create", project_root=project, target=target, **offered)
    assert ("hello" in look(builder)) is wakes
    assert look(builder) == "", "once"


def test_a_message_in_a_topic_wakes_whom_it_names(builder: HookCall) -> None:
    ann = Client()
    topic = ann.call("topic_create", name="cache")["topic_id"]
    ann.join(topic, "ann")
    for text, wakes in (("to all", False), ("to @builder", True)):
        ann.say(topic, text)
        assert (text in look(builder)) is wakes


def test_a_persons_answer_wakes_whom_no_call_told_it(builder: HookCall) -> None:
    def ask(title: str) -> dict[str, Any]:
        asked = {"agent_id": "builder", "title": title, "client_id": title, "timeout_seconds": 0}
        answer: dict[str, Any] = dispatch.run(CONTROL, Caller("test", agent_id="builder"), "ask_operator", asked)[
            "data"
        ]
        return answer

    for title in ("tell me", "I ask again"):
        question = ask(title)
        words = {"question_id": question["question_id"], "words": f"yes: {title}"}
        assert dispatch.run(CONTROL, OPERATOR, "pool_answer", words)["ok"]
        if title == "I ask again":
            assert ask(title)["words"] == "yes: I ask again"
        assert ("yes: " in look(builder)) is (title == "tell me")


@pytest.mark.parametrize("first", ["hook", "waiter"])
def test_the_hook_and_the_waiter_tell_it_once_together(
    builder: HookCall, call: Operation, project: str, first: str
) -> None:
    write(call, project, ITSELF)
    stops = builder._replace(event=STOP)
    both: dict[str, Callable[[], str]] = {
        "hook": lambda: entry.respond(settings.NEXUS, stops, asked),
        "waiter": lambda: look(builder),
    }
    said = [both.pop(first)(), *(each() for each in both.values())]
    assert ["hello" in text for text in said] == [True, False]


def test_it_is_woken_so_often_at_most(builder: HookCall, call: Operation, project: str) -> None:
    def wakes(times: int) -> int:
        told = 0
        for _ in range(times):
            write(call, project, ITSELF)
            told += bool(look(builder))
        return told

    assert wakes(waking.WAKES_A_MINUTE + 2) == waking.WAKES_A_MINUTE
    [held] = hook_state.faults(settings.NEXUS.home)
    assert (held.agent_id, "within a minute" in held.error) == ("builder", True)
    kept = hook_state.load(settings.NEXUS.home, builder)
    kept.woken = [time.time() - 600] * waking.MOST_IN_A_ROW
    hook_state.save(settings.NEXUS.home, builder, kept)
    assert not look(builder)
    prompt = builder._replace(event=PROMPT)
    for ours in (f"<task-notification>{harness_texts.NOTICE}", harness_texts.TYPED):
        entry.respond(settings.NEXUS, prompt._replace(payload={"prompt": ours}), asked)  # told, and still held
        write(call, project, ITSELF)
        assert not look(builder)
    entry.respond(settings.NEXUS, prompt, asked)  # somebody types something
    assert wakes(1) == 1


CLAUDE, CODEX, QWEN = (
    {"type": "assistant", "message": {"id": "m", "usage": {"input_tokens": 4, "output_tokens": 5}}},
    {"type": "event_msg", "payload": {"info": {"last_token_usage": {"input_tokens": 9, "output_tokens": 5}}}},
    {"type": "assistant", "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 5}},
)
CACHED = {"usageMetadata": {"promptTokenCount": 9, "cachedContentTokenCount": 8, "candidatesTokenCount": 5}}
CLAUDE["message"]["usage"] |= {"cache_creation_input_tokens": 5, "cache_read_input_tokens": 900}  # type: ignore[index]


@pytest.mark.parametrize(
    ("records", "tokens"),
    [
        ([CLAUDE, CLAUDE], 14),  # parts of one answer
        ([CODEX, CODEX], 28),
        ([QWEN], 14),
        ([CACHED], 6),
        ([{**QWEN, "timestamp": "2026-01-01T00:00:00.000Z"}], 0),
        ([{**QWEN, "usageMetadata": {"promptTokenCount": -9, "candidatesTokenCount": "x"}}], 0),
        ([{**QWEN, "usageMetadata": ["promptTokenCount"]}, {"tokens": 5}, ["token"], "token", {"message": 1}], 0),
    ],
)
def test_a_clients_file_tells_the_tokens_of_woken_turns(tmp_path: Path, records: list[Any], tokens: int) -> None:
    file = tmp_path / "session.jsonl"
    moment = "2026-11-28T20:00:00.000Z"
    lines = [{"timestamp": moment, **each} if isinstance(each, dict) else each for each in records]
    file.write_text('{"token": ' + "[" * 100_000 + "\n" + "".join(f"{json.dumps(line)}\n" for line in lines))
    assert transcripts.tokens_since(str(file), 1_795_000_000) == tokens


@pytest.mark.parametrize("kind", ["a FIFO", "a folder", "nothing", "a name that is none", "longer than what is read"])
def test_what_is_no_file_of_a_client_tells_no_tokens(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "session.jsonl"
    if kind == "a FIFO":
        os.mkfifo(file)
    elif kind == "a folder":
        file.mkdir()
    elif kind == "longer than what is read":
        file.write_text(json.dumps({"timestamp": "2026-11-28T20:00:00Z", **QWEN}) + "\n")
        os.truncate(file, 1 << 40)
    path = f"{file}\0" if kind == "a name that is none" else str(file)
    assert transcripts.tokens_since(path, 0) == 0


def test_it_is_not_woken_when_its_woken_turns_took_too_many_tokens(
    builder: HookCall, call: Operation, project: str, tmp_path: Path
) -> None:
    told = tmp_path / "session.jsonl"
    reads = builder._replace(payload={"transcript_path": str(told)})
    told.write_text("")

    def is_woken() -> bool:
        write(call, project, ITSELF)
        return bool(look(reads))

    assert is_woken() and is_woken()
    used = {"input_tokens": waking.WAKE_TOKENS, "output_tokens": 0}
    moment = datetime.now(UTC).isoformat()
    told.write_text(json.dumps({"timestamp": moment, "message": {"id": "m", "usage": used}}) + "\n")
    assert not is_woken()
    [held] = hook_state.faults(settings.NEXUS.home)
    assert "1,000,000 tokens" in held.error
    entry.respond(settings.NEXUS, builder._replace(event=PROMPT), asked)  # somebody types something
    assert is_woken()


def test_what_a_client_did_not_take_is_told_later(builder: HookCall, call: Operation, project: str) -> None:
    write(call, project, ITSELF)

    def fails(*_: Any) -> None:
        raise OSError("it is closed")

    with pytest.raises(OSError, match="closed"):
        waking.look(settings.NEXUS, builder, asked, fails)
    assert "hello" in look(builder)


# As processes


class Waiters:
    """Waiters of one agent, as its client starts them."""

    def __init__(self, harness: Harness) -> None:
        self.harness, self.started = harness, list[subprocess.Popen[str]]()

    def start(
        self, *words: str, session: str = "s1", text: str = SAYS_STOP, program: Sequence[str] = NEXUS, **environ: str
    ) -> subprocess.Popen[str]:
        """Return a waiter once it waits."""
        command = [sys.executable, *program, *(words or ("hook", "--client", "claude-code", "--wait"))]
        command += ["--agent-id", "builder", "--project-root", str(self.harness.project)]
        before = self.sleeping()
        waiter = subprocess.Popen(
            command,
            env={**self.harness.environ, **TERMINAL, **environ},
            text=True,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
        )
        self.started.append(waiter)
        assert waiter.stdin
        waiter.stdin.write(text.replace("s1", session))
        waiter.stdin.close()
        waiter.stdin = None
        until(lambda: self.sleeping() - before or waiter.poll() is not None)
        return waiter

    def sleeping(self) -> set[int]:
        """The waiters that are the small program."""
        return {each.pid for each in self.started if b"waiter.py" in _command(each.pid)}

    @property
    def can_be_woken(self) -> bool:
        hook = hook_state.hook_id("builder", str(self.harness.project))
        return bool(hook_state.waiting_hooks(self.harness.home, hook))

    def write(self, text: str, target: Any = ITSELF) -> None:
        letter = {"project_root": str(self.harness.project), "from_agent_id": "ann", "subject": text, "body": text}
        self.harness.call("message_create", {**letter, "target": target})


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def waiters(starts_processes: None, harness: Harness) -> Any:
    harness.call("agent_register", {"agent_id": "builder"})
    made = Waiters(harness)
    yield made
    for each in made.started:
        each.kill()
        each.wait(START_SECONDS)
        for stream in (each.stdout, each.stderr):
            assert stream
            stream.close()


@pytest.mark.sqlite
def test_a_message_ends_a_waiter_with_its_notice_and_with_the_code_that_wakes(waiters: Waiters) -> None:
    hooked = waiters.start()
    assert waiters.can_be_woken
    waiters.write("for all", ALL)
    waiters.write("for builder")
    _, notice = hooked.communicate(timeout=START_SECONDS)
    assert (hooked.returncode, "for builder" in notice, waiters.can_be_woken) == (waking.WOKEN, True, False)
    command = waiters.start("wait")
    waiters.write("more for builder")
    said, _ = command.communicate(timeout=START_SECONDS)
    assert (command.returncode, "more for builder" in said, "- message" in said) == (0, True, True)
    late = waiters.start("wait", "--seconds", "0.1")
    assert (late.wait(START_SECONDS), late.communicate()) == (3, ("", ""))


@pytest.mark.sqlite
def test_a_session_has_one_waiter_and_of_two_sessions_one_is_woken(waiters: Waiters) -> None:
    older, newer, other = waiters.start(), waiters.start(), waiters.start(session="s2")
    assert older.wait(START_SECONDS) == 0
    waiters.write("for builder")
    until(lambda: [each.poll() for each in (newer, other)].count(waking.WOKEN) == 1)
    (left,) = until(waiters.sleeping)
    os.kill(left, signal.SIGKILL)
    until(lambda: not waiters.can_be_woken)


@pytest.mark.sqlite
def test_a_session_that_is_forked_keeps_its_waiter(waiters: Waiters) -> None:
    waiter = waiters.start()
    fork = waiters.start(text=SAYS_STOP.replace("Stop", "SessionStart"))  # with the name of the session
    assert (fork.wait(START_SECONDS), fork.communicate(), waiter.poll()) == (0, ("", ""), None)


@pytest.mark.sqlite
def test_a_session_that_ends_or_is_cleared_leaves_no_waiter(waiters: Waiters) -> None:
    ended, other = waiters.start(), waiters.start(session="s2")
    waiters.start("hook", "--client", "claude-code", text=SAYS_STOP.replace("Stop", "SessionEnd"))
    assert ended.wait(START_SECONDS) == 0
    waiters.write("for builder")
    assert other.wait(START_SECONDS) == waking.WOKEN


@pytest.mark.sqlite
@pytest.mark.parametrize("ended", ["its reader", "its parent"])
def test_a_waiter_ends_with_its_client(waiters: Waiters, ended: str, tmp_path: Path) -> None:
    if ended == "its reader":
        waiter = waiters.start()
        assert waiter.stderr and waiter.stdout
        waiter.stderr.close()
        waiter.stdout.close()
        assert waiter.wait(START_SECONDS) == 0
        waiters.started.remove(waiter)
        return
    out = tmp_path / "out"
    command = [
        sys.executable,
        "-P",
        "-m",
        "nexus",
        "hook",
        "--client",
        "claude-code",
        "--wait",
        "--agent-id",
        "builder",
    ]
    shell = f"{' '.join(command)} --project-root {waiters.harness.project} </dev/null >{out} 2>&1 & echo $!; sleep 60"
    client = subprocess.Popen(["sh", "-c", shell], env={**waiters.harness.environ, **TERMINAL}, stdout=PIPE, text=True)
    assert client.stdout
    pid = int(client.stdout.readline())
    until(lambda: b"waiter.py" in _command(pid))
    client.kill()
    client.wait()
    client.stdout.close()
    until(lambda: not _command(pid))


@pytest.mark.sqlite
def test_a_waiter_that_cannot_begin_wakes_nobody(waiters: Waiters) -> None:
    for words in (("hook", "--client", "claude-code", "--wait", "--unknown"), ("wait", "--unknown")):
        broken = waiters.start(*words)
        assert broken.wait(START_SECONDS) == (0 if words[0] == "hook" else 1)
    [fault] = hook_state.faults(waiters.harness.home)  # of the hook: who typed the command has read it
    assert "unrecognized arguments" in fault.error


@pytest.mark.sqlite
def test_a_waiter_whose_program_was_removed_wakes_with_a_notice_alone(waiters: Waiters, tmp_path: Path) -> None:
    script, planted = tmp_path / "nexus", tmp_path / "planted"
    script.write_text("from nexus_site.launch import main\n\nmain()\n")
    planted.mkdir()
    planted.joinpath("nexus.py").write_text("raise SystemExit(2)\n")
    waiter = waiters.start(program=["-E", "-P", str(script)], PYTHONPATH=str(planted))  # as setup writes the command
    script.unlink()
    waiters.write("for builder")
    _, said = waiter.communicate(timeout=START_SECONDS)
    assert (waiter.returncode, said.startswith(harness_texts.NOTICE)) == (waking.WOKEN, True), said


@pytest.mark.sqlite
@pytest.mark.parametrize("environ", [{"CLAUDE_CODE_ENTRYPOINT": "sdk-cli"}, {"AI_AGENT": ""}])
def test_it_does_not_hold_up_a_client_that_would_wait_for_it(waiters: Waiters, environ: dict[str, str]) -> None:
    waiters.write("for builder")
    assert waiters.start(**environ).wait(START_SECONDS) == 0


@pytest.mark.sqlite
def test_what_waits_when_a_session_begins_is_told_by_the_hook_of_its_beginning(waiters: Waiters) -> None:
    waiters.write("waits already")
    waiter = waiters.start(text=SAYS_STOP.replace("Stop", "SessionStart"))
    assert waiter.poll() is None and waiters.can_be_woken
    waiters.write("comes later")
    _, notice = waiter.communicate(timeout=START_SECONDS)
    assert (waiter.returncode, "comes later" in notice) == (waking.WOKEN, True)


RECORDS = """#!/bin/sh
printf '%s\\n' "$@" > "$0.said"
"""


@pytest.mark.sqlite
def test_codex_is_asked_for_a_turn_and_the_hook_of_that_turn_tells_what_came(waiters: Waiters, tmp_path: Path) -> None:
    codex, harness = tmp_path / "codex", waiters.harness
    codex.write_text(RECORDS)
    codex.chmod(0o755)
    harness.environ["PATH"] = f"{tmp_path}:{harness.environ['PATH']}"
    waiter = waiters.start("hook", "--client", "codex", "--wait")
    waiters.write("for builder")
    assert (waiter.wait(START_SECONDS), waiter.communicate()) == (0, ("", ""))
    assert codex.with_suffix(".said").read_text().split("\n") == ["queue", "--thread=s1", f"--message={TYPED}", ""]
    asked = ("--client", "codex", "--agent-id", "builder", "--project-root", str(harness.project))

    def turn(prompt: str) -> str:
        return harness.hook(*asked, text=json.dumps({"hook_event_name": PROMPT, "prompt": prompt})).stdout

    def wakes() -> int:
        call = HookCall("codex", PROMPT, str(harness.project), "builder")
        return len(hook_state.load(harness.home, call).woken)

    assert "for builder" in turn(TYPED)
    assert (wakes(), turn("go on"), wakes()) == (1, "", 0)


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("why", ["it works", "another session was asked"])
def test_codex_is_left_to_its_hooks_for_a_minute(
    builder: HookCall, call: Operation, project: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    (tmp_path / "codex").write_text(RECORDS)
    (tmp_path / "codex").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    if why == "it works":
        kept = hook_state.load(settings.NEXUS.home, builder)
        kept.activity = Activity.WORKING
        hook_state.save(settings.NEXUS.home, builder, kept)
    signal_files.arm(settings.NEXUS.home, "builder")
    write(call, project, ITSELF)

    def rung() -> tuple[str, float]:
        return waking.look(settings.NEXUS, builder, asked, waking.STARTERS["queue"])

    if why != "it works":
        assert rung()[0] == TYPED
    notice, look_at = rung()
    assert (notice, 0 < look_at - time.time() <= waking.HELD_SECONDS) == ("", True)
    with time_machine.travel(look_at):
        assert rung()[0] == TYPED


@pytest.mark.sqlite
def test_qwen_gets_the_notice_at_the_address_of_its_session(waiters: Waiters, tmp_path: Path) -> None:
    address = tmp_path / "71.sock"
    given = {"QWEN_CODE_MESSAGING_SOCKET": str(address), "QWEN_CODE_MESSAGING_TOKEN": "t", "QWEN_HOME": str(tmp_path)}
    waiters.harness.environ |= given
    wait = ("hook", "--client", "qwen", "--wait")
    assert waiters.start(*wait).wait(START_SECONDS) == 0, "a session of an editor takes none"
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "71.json").touch()
    with socket.socket(socket.AF_UNIX) as session:
        session.bind(str(address))
        session.listen()
        before = waiters.start(*wait)
        waiter = waiters.start(*wait, session="s2")  # after /clear
        assert before.wait(START_SECONDS) == 0
        waiters.write("for builder")
        with session.accept()[0] as peer, peer.makefile() as lines:
            auth, sent = map(json.loads, lines)
    assert (waiter.wait(START_SECONDS), waiter.communicate()) == (0, ("", ""))
    assert auth == {"msgV": 1, "type": "auth", "token": "t"}
    assert (sent["type"], "for builder" in sent["message"]["content"]) == ("user", True)


@pytest.mark.sqlite
def test_the_check_of_setup_has_a_waiter_answer_and_leaves_nothing(
    waiters: Waiters, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, root = waiters.harness.home, waiters.harness.project
    before = {file for file in home.rglob("*") if file.is_file()}
    monkeypatch.setattr(setup, "program", lambda: [sys.executable, "-P", "-m", "nexus"])
    monkeypatch.setattr(setup, "settings_flags", lambda: ["--home", str(home)])
    assert setup._is_woken(home, root).holds
    monkeypatch.setattr(setup, "program", lambda: [sys.executable, "-P", "-m", "nexus_removed"])
    assert not setup._is_woken(home, root).holds
    assert {file for file in home.rglob("*") if file.is_file()} == before
