"""The hook never makes its harness fail, starts nothing it does not need, and looks again when it should."""

from __future__ import annotations

import fcntl
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.conf import settings
from django.db import connection

from coordination.models import Session
from nexus.core.coding_clients import PROMPT, SESSION_START, STOP, TOOL_USED
from nexus.core.operations import dispatch
from nexus.core.operations.errors import Code, NexusError
from nexus.hooks import entry, hook_state, signal_files, store_queries
from nexus.hooks import harness as dialects
from nexus.hooks.harness import HookCall
from nexus.planning import hook as planning_queries  # noqa: F401
from nexus.planning.toolset import PLANNING
from nexus.reservations import hook as reservation_queries  # noqa: F401  # as the launcher does
from nexus.reservations.toolset import FILES
from tests.conftest import LOCAL, does
from tests.conftest import Call as Operation
from tests.hooks.harness import Harness

ASKED = '{"hook_event_name": "UserPromptSubmit", "cwd": "/"}'


def must_not_start(name: str, call: HookCall, **arguments: Any) -> Any:
    """Only a store that is a file is looked at without Django; what the agent does is told in the background."""
    if connection.vendor == "sqlite" and name != "refresh":
        raise AssertionError("Django was started")
    return store_queries.answer(name, call, **arguments)


@pytest.fixture
def builder(project: str) -> HookCall:
    """A call at the user's prompt."""
    return HookCall("claude-code", PROMPT, project, "builder")


@pytest.fixture
def fresh(builder: HookCall, committed: None, call: Operation) -> Any:
    """The store of the tests, where `builder` is registered and has been looked after just now."""
    call("agent_register", agent_id="builder")
    nexus: Any = settings.NEXUS
    store_queries.refresh(builder)
    hook_state.save(nexus.home, builder, hook_state.HookMemory(refresh_by=time.time() + 29))
    entry.respond(nexus, builder, must_not_start)
    return nexus


def write(call: Operation, project: str, text: str = "hello") -> str:
    letter = {"project_root": project, "from_agent_id": "reviewer", "subject": text, "body": text}
    return str(call("message_create", **letter, target={"strategy": "direct", "agent_id": "builder"})["message_id"])


def stamp_unchanged(nexus: Any, call: HookCall) -> None:
    """As if no signal had come."""
    signal = signal_files.stamp(nexus.home, call.agent_id)
    told = hook_state.load(nexus.home, call)
    told.signal = signal
    hook_state.save(nexus.home, call, told)


# Whatever fails


def called(nexus: Any, monkeypatch: pytest.MonkeyPatch, text: str, *arguments: str) -> None:
    """A harness calls the hook."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    entry.main(lambda: (nexus, ["--agent-id", "builder", *arguments]), must_not_start)


@pytest.mark.parametrize("planning", [(), ("--planning",)], ids=["mail", "planning"])
@pytest.mark.parametrize(
    "text",
    [
        *("{bad", "[]", '"x"', "\x00", "[" * 100_000, '{"hook_event_name": 5, "cwd": []}'),
        '{"hook_event_name": ["PreToolUse"], "tool_input": "x"}',
    ],
    ids=range(7),
)
def test_it_says_one_line_at_most_on_input_it_cannot_use(
    tmp_path: Path, text: str, planning: tuple[str, ...], monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    called(settings.NEXUS.replaced(home=tmp_path / "home"), monkeypatch, text, *planning)
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n") <= 1, "Traceback" in said.err) == ("", True, False)


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The end to write of standard input, which stays open."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield writing
    os.close(writing)


@pytest.mark.parametrize("pieces", [(ASKED,), (ASKED[:9], ASKED[9:]), (ASKED, "\n"), ("\ufeff" + ASKED,)], ids=range(4))
def test_one_whole_value_is_enough_of_an_input_that_stays_open(pipe: int, pieces: tuple[str, ...]) -> None:
    for piece in pieces:
        os.write(pipe, piece.encode())
    assert json.loads(entry.read_input(sys.stdin.buffer)) == json.loads(ASKED)


@pytest.mark.parametrize("text", ["", '{"hook_event_name": '], ids=["nothing", "the beginning"])
def test_an_input_that_does_not_end_is_on_record(
    tmp_path: Path, pipe: int, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, project = tmp_path / "home", tmp_path / "shop"
    monkeypatch.setattr(entry, "TIME_LIMIT_SECONDS", 0.2)
    monkeypatch.setattr("sys.argv", ["nexus", "hook", "--client", "codex", "--unknown", "--agent", "builder"])
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(project))
    os.write(pipe, text.encode())
    entry.main(lambda: (settings.NEXUS.replaced(home=home), ["--agent-id", "builder"]), must_not_start)
    assert capsys.readouterr().out == ""
    [fault] = hook_state.faults(home)
    assert (fault.agent_id, fault.project_root) == ("builder", str(project))
    assert fault.error == "no answer within 0.2 s"


def test_a_setting_that_cannot_be_read_is_on_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def configure() -> Any:
        raise NexusError(Code.CONFIG_ERROR, "NEXUS_TRUST_MODE: use one of open, closed.")

    monkeypatch.setenv("NEXUS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("sys.argv", ["nexus", "hook", "--client"])
    entry.main(configure, must_not_start)
    [fault] = hook_state.faults(tmp_path / "home")
    assert fault.error.startswith("NEXUS_TRUST_MODE")


@pytest.mark.sqlite
@pytest.mark.parametrize("broken", ["the store", "the home"])
def test_it_says_one_line_on_a_store_or_a_home_that_is_none(
    tmp_path: Path, broken: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    if broken == "the home":
        home.write_text("")
    else:
        home.mkdir()
        (home / "nexus.db").write_text("not a database, and long enough to look like one" * 100)
    called(settings.NEXUS.replaced(home=home), monkeypatch, ASKED)
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize(
    ("arguments", "environ", "said"),
    [
        (["--bogus"], {}, "[nexus] hook: unrecognized arguments: --bogus\n"),
        ([], {"NEXUS_TRUST_MODE": "lax"}, "[nexus] hook: NEXUS_TRUST_MODE: "),
    ],
)
def test_it_says_one_line_on_a_wrong_option_or_setting(
    harness: Harness, arguments: list[str], environ: dict[str, Any], said: str
) -> None:
    done = harness.hook(*arguments, text=ASKED, **environ)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (0, "", 1)
    assert done.stderr.startswith(said)


def test_it_starts_over_from_a_broken_memory(fresh: Any, builder: HookCall, call: Operation) -> None:
    for file in (fresh.home / "hooks").glob("*.json"):
        file.write_text('{"unknown": 1}')
    write(call, builder.root)
    hook_state.save(fresh.home, builder, hook_state.HookMemory(refresh_by=time.time() + 29))
    assert "hello" in entry.respond(fresh, builder, store_queries.answer)


@pytest.mark.usefixtures("starts_processes")
def test_it_tells_once_when_its_harness_calls_in_parallel(harness: Harness) -> None:
    harness.hook("--agent-id", "builder", text=ASKED)
    harness.until_session()
    target = {"strategy": "direct", "agent_id": "builder"}
    message = {"project_root": "/", "from_agent_id": "x", "subject": "once", "body": "b", "target": target}
    harness.call("message_create", message)
    with ThreadPoolExecutor(6) as tools:
        done = list(tools.map(lambda _: harness.hook("--agent-id", "builder", text=ASKED), range(6)))
    assert sorted("once" in one.stdout for one in done) == [False] * 5 + [True]
    assert {(one.returncode, one.stderr) for one in done} == {(0, "")}


@pytest.mark.parametrize("event", [SESSION_START, PROMPT, STOP])
def test_it_tells_at_the_ends_of_a_session_and_of_a_turn_whatever_another_call_is_at(
    fresh: Any, builder: HookCall, call: Operation, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    write(call, builder.root)
    other, lock = ExitStack(), fcntl.flock

    def waits(file: Any, how: int) -> None:
        if not how & fcntl.LOCK_NB:
            other.close()  # the other call ends meanwhile
        lock(file, how)

    with other:
        assert other.enter_context(hook_state.lock(fresh.home, builder))
        monkeypatch.setattr(fcntl, "flock", waits)
        assert entry.respond(fresh, builder._replace(event=TOOL_USED), must_not_start) == ""
        assert "hello" in entry.respond(fresh, builder._replace(event=event), store_queries.answer)


# What it starts


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize(
    ("code", "spared"),
    [
        ("import nexus.hooks.entry", {"django", "pydantic", "mcp"}),
        ("import nexus.planning.hook, nexus.planning.hook_actions", {"django", "pydantic", "mcp", "yaml"}),
        (
            "import nexus.hooks.harness; nexus.hooks.harness.parse_call(['--agent-id', 'b'], {}, '{}')",
            {"shutil", "tempfile", "django"},
        ),
    ],
    ids=["mail", "planning", "arguments"],
)
def test_it_imports_little_to_stay_silent(code: str, spared: set[str]) -> None:
    tops = f"{code}; import sys; print({spared} & {{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-S", "-c", tops], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize(
    ("event", "spared"),
    [
        ("PostToolUse", {"sqlite3", "datetime"}),
        ("PreToolUse", {"hashlib", "nexus.hooks.hook_state", "nexus.hooks.announcements"}),
    ],
)
def test_it_stays_silent_without_what_takes_longer_to_import_than_to_answer(
    harness: Harness, event: str, spared: set[str]
) -> None:
    used = {"hook_event_name": event, "tool_name": "Edit", "tool_input": {"file_path": "a.py"}}
    harness.hook("--agent-id", "builder", text=json.dumps(used | {"hook_event_name": "SessionStart"}))
    harness.hook("--agent-id", "builder", text=json.dumps(used))
    told = harness.hook("--agent-id", "builder", text=json.dumps(used), cold=True, PYTHONPROFILEIMPORTTIME="1")
    imported = {line.rpartition("|")[2].strip() for line in told.stderr.splitlines()}
    assert (told.stdout, told.returncode) == ("", 0)
    assert "nexus.hooks.harness" in imported and not imported & {"dataclasses", "inspect", "django", *spared}


@pytest.mark.usefixtures("starts_processes")
def test_others_can_write_to_an_agent_as_soon_as_its_first_session_has_begun(harness: Harness) -> None:
    begins = {"hook_event_name": "SessionStart", "source": "startup", "cwd": str(harness.project)}
    assert harness.hook("--agent-id", "builder", text=json.dumps(begins)).stderr == ""
    target = {"strategy": "direct", "agent_id": "builder"}
    letter = {"project_root": str(harness.project), "from_agent_id": "ann", "subject": "s", "body": "b"}
    assert harness.call("message_create", letter | {"target": target})["recipients"] == ["builder"]


@pytest.mark.usefixtures("starts_processes")
def test_it_opens_the_session_at_a_call_that_has_used_the_store_already(harness: Harness) -> None:
    """A prompt's tag is carried out first: a process forked after that would come with connections that are not its."""
    root = str(harness.project)
    harness.call("plan_start", {"project_root": root, "topic": "t", "issues": ["Which?"], "research_summary": "r"})
    said = {"hook_event_name": "UserPromptSubmit", "cwd": root, "session_id": "one", "prompt": "[d] SQLite"}
    told = harness.hook("--planning", "--client", "claude-code", "--agent-id", "builder", text=json.dumps(said))
    assert "is decided as the user says" in told.stdout, told
    kept = harness.until_session()
    assert harness.call("session_heartbeat", {"session_id": kept["session_id"]})["status"] == "active"
    assert "builder" in [agent["agent_id"] for agent in harness.call("agent_list", {})["agents"]]


def test_it_keeps_what_it_knows_for_its_owner_alone(fresh: Any) -> None:
    kept = [*(fresh.home / "hooks").iterdir()]
    assert {file.stat().st_mode & 0o777 for file in kept} == {0o600}
    assert (fresh.home / "hooks").stat().st_mode & 0o777 == 0o700


def test_it_opens_another_session_when_its_own_was_closed(fresh: Any, builder: HookCall, call: Operation) -> None:
    first = hook_state.credentials(fresh.home, builder)
    assert first is not None
    store_queries.refresh(builder)
    assert hook_state.credentials(fresh.home, builder) == first
    call("session_close", session_id=first.session_id)
    store_queries.refresh(builder)
    assert Session.objects.filter(agent_id="builder", status="active").count() == 1
    assert hook_state.credentials(fresh.home, builder) != first


# When it looks


@pytest.mark.sqlite
def test_it_does_not_open_the_store_without_a_signal(fresh: Any, builder: HookCall, tmp_path: Path) -> None:
    elsewhere = fresh.replaced(db_path=tmp_path / "broken.db")
    (tmp_path / "broken.db").write_text("x" * 1000)
    assert entry.respond(elsewhere, builder, must_not_start) == ""
    signal_files.send(fresh.home, "builder")
    with pytest.raises(Exception, match="not a database"):
        entry.respond(elsewhere, builder, must_not_start)


def test_it_does_not_start_django_for_mail_of_others(fresh: Any, builder: HookCall, call: Operation) -> None:
    call("agent_register", agent_id="other", role="tester")
    offer = {"project_root": builder.root, "from_agent_id": "x", "visibility": "public"}
    call("handoff_create", **offer, target={"strategy": "role", "role": "tester"})
    signal_files.send(fresh.home, "builder")
    assert entry.respond(fresh, builder, must_not_start) == ""


def test_it_tells_of_a_handoff_for_the_agents_tags(fresh: Any, builder: HookCall, call: Operation) -> None:
    for value in ({}, {"value": "core"}, {"value": "web"}):
        does("tag_create", key="team", **value)
    does("agent_update", agent_id="builder", tags={"team": ["core"]})
    offer = {"project_root": builder.root, "from_agent_id": "x", "visibility": "eligible"}
    call("handoff_create", **offer, target={"strategy": "tag", "selector": {"team": ["web"]}})
    assert entry.respond(fresh, builder, must_not_start) == ""
    call("handoff_create", **offer, target={"strategy": "tag", "selector": {"team": ["core"]}})
    assert "1 new handoff" in entry.respond(fresh, builder, store_queries.answer)


def test_it_tells_once_at_stop_what_the_agent_was_asked(fresh: Any, builder: HookCall, call: Operation) -> None:
    stop, on = builder._replace(event=STOP), {"project_root": builder.root}
    call("agent_register", agent_id="ana")
    handoff = call("handoff_create", **on, from_agent_id="builder", title="Fix the login", visibility="public",
                   target={"strategy": "direct", "agent_id": "ana"}, verifier="creator")["handoff_id"]  # fmt: skip
    call("handoff_claim", **on, agent_id="ana", handoff_id=handoff)
    call("handoff_complete", **on, agent_id="ana", handoff_id=handoff, result="done")
    held = dispatch.run(FILES, LOCAL, "files_reserve", {**on, "agent_id": "builder", "paths": ["src/"]})["data"]
    dispatch.run(FILES, LOCAL, "files_reserve", {**on, "agent_id": "ana", "paths": ["src/a.py"], "ask": True})
    call("inbox_ack", agent_id="builder", message_ids=_others(call, ""))
    entry.respond(fresh, builder, store_queries.answer)

    said = entry.respond(fresh, stop, store_queries.answer)

    for words in ("still owe 2 things", f"verdict {handoff} for agent", "handoff_accept", "question", "files_release"):
        assert words in said
    assert held["reservations"][0]["reservation_id"] in said
    assert entry.respond(fresh, stop, must_not_start) == ""


def test_it_tells_again_of_mail_whose_lease_ran_out(fresh: Any, builder: HookCall, call: Operation) -> None:
    write(call, builder.root)
    assert "hello" in entry.respond(fresh, builder, store_queries.answer)
    call("inbox_pull", agent_id="builder", lease_seconds=20)
    signal_files.send(fresh.home, "builder")
    assert entry.respond(fresh, builder, must_not_start) == ""
    with time_machine.travel(datetime.now(UTC) + timedelta(seconds=21)):
        assert "hello" in entry.respond(fresh, builder, store_queries.answer)


def test_it_tells_of_a_handoff_once_its_fallback_opens(fresh: Any, builder: HookCall, call: Operation) -> None:
    call("agent_register", agent_id="first")
    target = {"strategy": "direct_with_fallback", "agent_id": "first", "fallback_after_seconds": 10}
    call("handoff_create", project_root=builder.root, from_agent_id="x", target=target, visibility="public")
    assert entry.respond(fresh, builder, must_not_start) == ""
    with time_machine.travel(datetime.now(UTC) + timedelta(seconds=11)):
        assert "1 new handoff" in entry.respond(fresh, builder, store_queries.answer)


def test_it_tells_once_at_stop_what_the_agent_took_and_has_not_brought(
    fresh: Any, builder: HookCall, call: Operation
) -> None:
    stop, on = builder._replace(event=STOP), {"project_root": builder.root, "agent_id": "builder"}
    target = {"strategy": "direct", "agent_id": "builder"}
    offer = {"project_root": builder.root, "from_agent_id": "ana", "target": target, "visibility": "public"}
    handoff = call("handoff_create", **offer, title="Fix the login")["handoff_id"]
    message = write(call, builder.root)
    planned = {"project_root": builder.root, "title": "dig", "context": "here", "owner": "builder"}
    dispatch.perform(PLANNING, LOCAL, "task_add", planned).result()
    entry.respond(fresh, builder, store_queries.answer)
    call("handoff_claim", **on, handoff_id=handoff)
    call("inbox_pull", agent_id="builder")
    begun = {"project_root": builder.root, "id": 1, "status": "in_progress"}
    dispatch.perform(PLANNING, LOCAL, "task_update", begun).result()
    call("inbox_ack", agent_id="builder", message_ids=_others(call, message))

    said = entry.respond(fresh, stop, store_queries.answer)

    for words in ("still owe 3 things", handoff, "Fix the login", message, "dig"):
        assert words in said
    assert entry.respond(fresh, stop, must_not_start) == ""
    assert entry.respond(fresh, builder, must_not_start) == ""
    assert entry.respond(fresh, stop, must_not_start) == ""
    call("handoff_complete", **on, handoff_id=handoff)
    assert entry.respond(fresh, stop, must_not_start) == ""


def _others(call: Operation, message: str) -> list[str]:
    """The notices that came with a message."""
    rows = call("inbox_peek", agent_id="builder")["messages"]
    return [row["message_id"] for row in rows if row["message_id"] != message]


def test_it_tells_a_new_context_everything_again(fresh: Any, builder: HookCall, call: Operation) -> None:
    write(call, builder.root)
    entry.respond(fresh, builder, store_queries.answer)
    assert entry.respond(fresh, builder, must_not_start) == ""
    start = HookCall("claude-code", SESSION_START, builder.root, "builder")
    assert "hello" in entry.respond(fresh, start, store_queries.answer)


def test_it_shows_a_few_and_counts_the_rest(fresh: Any, builder: HookCall, call: Operation) -> None:
    for number in range(8):
        write(call, builder.root, f"number {number}")
    told = entry.respond(fresh, builder, store_queries.answer)
    assert "8 unread messages" in told
    assert "number 4" in told and "number 5" not in told
    assert entry.respond(fresh, builder, must_not_start) == ""


def test_it_looks_again_when_the_clock_went_back(fresh: Any, builder: HookCall, call: Operation) -> None:
    with time_machine.travel(datetime.now(UTC) - timedelta(hours=1)):
        write(call, builder.root)
        told = hook_state.load(fresh.home, builder)
        told.refresh_by = time.time() + 29
        hook_state.save(fresh.home, builder, told)
        told = hook_state.load(fresh.home, builder)
        assert told.look_by > time.time() + 3000
        stamp_unchanged(fresh, builder)
        assert "hello" in entry.respond(fresh, builder, store_queries.answer)


# Who and where


def read(*arguments: str, environ: dict[str, str] | None = None, **payload: Any) -> HookCall:
    return dialects.parse_call(arguments, environ or {}, json.dumps(payload) if payload else "")


def test_it_takes_the_agent_from_the_option_then_the_environment(project: str) -> None:
    environ = {"NEXUS_AGENT_ID": "from-environment"}
    assert read("--agent-id", "given", environ=environ).agent_id == "given"
    assert read(environ=environ).agent_id == "from-environment"


def test_it_gives_an_unnamed_agent_the_same_name_every_time(project: str) -> None:
    one, again = (read("--client", "codex", hook_event_name="Stop", cwd=project) for _ in range(2))
    assert one.agent_id == again.agent_id
    assert one.agent_id.startswith("codex@project-")
    assert one.agent_id != read("--client", "codex", hook_event_name="Stop", cwd=f"{project}/..").agent_id


def test_it_prefers_the_project_that_the_harness_names(project: str) -> None:
    named = read(environ={"CLAUDE_PROJECT_DIR": project}, hook_event_name="Stop", cwd="/")
    assert named.root == os.path.realpath(project)
    assert read("--project-root", "/", environ={"CLAUDE_PROJECT_DIR": project}).root == "/"


def test_it_recognises_the_harness_from_its_input() -> None:
    assert read(hook_event_name="Stop").client == "claude-code"
    assert read(hook_event_name="beforeSubmitPrompt").client == "cursor"
    assert read(hook_event_name="BeforeAgent").client == "gemini"
    assert read().client == "text"


def test_it_tells_of_mail_in_strict_trust(
    fresh: Any, call: Operation, builder: HookCall, configure: Callable[..., None]
) -> None:
    to_builder = {"strategy": "direct", "agent_id": "builder"}
    call("message_create", project_root=builder.root, from_agent_id="ann", subject="Hello", body="b", target=to_builder)
    configure(trust_mode="strict")

    text, waiting = store_queries.waiting(builder, ())

    assert "Hello" in text and len(waiting) == 1
