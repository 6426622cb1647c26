"""The runner `acp`, with a real agent as a process: its turns, what it may, and how it misbehaves."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from acp.schema import ToolCallLocation, ToolCallUpdate

from coordination.models import LentKey
from coordination.services import keys
from nexus.control.faults import Fault, FaultKind
from nexus.control.models import PoolAgent, Role, Turn, TurnStatus
from nexus.control.prices import Cost
from nexus.control.rules import Permissions, Preset, Verdict
from nexus.control.runners import acp, acp_client, acp_transport, sandbox, traffic
from nexus.control.runners.acp_calls import judge
from nexus.control.runners.base import Draft, RunnerFailed
from nexus.control.runners.configuration import Acp
from nexus.control.services import transcript
from nexus.control.tools import files
from nexus.control.tools import files as paths
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations.errors import NexusError
from nexus.core.waiting import WRITERS, in_thread
from tests.control.playing import fill
from tests.control.turns import Played, create
from tests.keys import agent_of_key

pytestmark = pytest.mark.usefixtures("starts_processes")

AGENT = Path(__file__).with_name("acp_agent.py")
MARK = f"left-by-{os.getpid()}"  # the same test may be played by another run beside
Plays = Callable[..., Any]


BOTH = pytest.mark.parametrize("plays", ["sandbox", "none"], indirect=True)  # and else where there is one


@pytest.fixture
async def plays(
    request: pytest.FixtureRequest, committed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Plays]:
    """An agent whose turns are played, in the sandbox and without; no process is left of it."""
    wanted = getattr(request, "param", None)
    if wanted == "none":
        monkeypatch.setattr(sandbox, "state", lambda: sandbox.State(False, "the test has none"))
    elif wanted and not sandbox.state().works:
        pytest.skip(f"no sandbox on this machine: {sandbox.state().why}")
    before = {process.pid for process in psutil.process_iter()}
    place = tmp_path / "place"
    place.mkdir()

    async def play(*flags: str, preset: str = "sandboxed", write_paths: Any = None, **more: Any) -> Played:
        runner = Acp(
            kind="acp",
            name="agent",
            command=[sys.executable, str(AGENT), *flags],
            read_paths=[str(AGENT.parents[2])],
            **more,
        )
        agent = await in_thread(WRITERS, lambda: create("ann", str(place), preset=preset, write_paths=write_paths))
        return Played(agent, runner, acp.take)

    yield play
    left = [process for process in psutil.Process().children(recursive=True) if process.pid not in before]
    assert left == []
    assert _marked(MARK) == []


def _marked(mark: str) -> list[int]:
    return [each.pid for each in psutil.process_iter(["cmdline"]) if mark in " ".join(each.info["cmdline"] or [])]


@BOTH
async def test_it_takes_a_turn_and_tells_what_it_used(plays: Plays) -> None:
    ended = await (await plays()).turn("hello")
    assert (ended.status, ended.answer, ended.input_tokens, ended.output_tokens) == (TurnStatus.DONE, "Hello", 7, 3)


async def test_what_its_session_cost_before_is_no_cost_of_the_turn(plays: Plays) -> None:
    played = await plays("--loads")
    ended = await played.turn("cost 0.25 0.5")
    assert ended.cost == Cost(500_000, "USD", "its agent")
    assert (ended.input_tokens, ended.output_tokens, ended.cached_tokens) == (97, 3, 90), "cached tokens are input, too"
    ended = await played.turn("cost 2.75")  # it loads the session, which had cost 2.5
    assert ended.cost == Cost(250_000, "USD", "its agent")
    assert (await played.turn("cost 0.5")).cost == Cost(500_000, "USD", "its agent"), "it began at 0 again"
    played.draft = Draft()
    assert (await played.turn("hello")).cost is None, "unknown is not 0"


async def test_the_trace_has_all_messages_and_no_key(plays: Plays) -> None:
    ended = await (await plays()).turn("leak")
    assert ended.status == TurnStatus.DONE
    run_id = await in_thread(WRITERS, lambda: Turn.objects.get().pk)
    lines = list(traffic.lines_of("ann", run_id))
    sent = [json.loads(line["text"]).get("method") for line in lines if line["what"] == "sent"]
    assert sent == ["initialize", "session/new", "session/prompt"]
    received = " ".join(line["text"] for line in lines if line["what"] == "received")
    assert "It is ***." in received and "end_turn" in received and "nxs_" not in received.replace("nxs_***", "")


@pytest.mark.parametrize("cost", ["nan", "-1", "inf", "1e300", "1:dollars"])
async def test_a_cost_that_cannot_be_is_unknown(plays: Plays, cost: str) -> None:
    ended = await (await plays()).turn(f"cost {cost}")
    assert (ended.status, ended.cost) == (TurnStatus.DONE, None)


async def test_what_it_is_just_writing_is_shown(plays: Plays) -> None:
    played = await plays()
    await played.turn("work")
    assert played.draft.text == "First I look.Then I say."


async def test_a_key_said_in_pieces_is_in_no_draft(plays: Plays) -> None:
    played = await plays()
    assert (await played.turn("leak")).answer == played.draft.text == "It is ***."


async def test_what_it_says_does_and_plans_stands_in_the_transcript(plays: Plays) -> None:
    played = await plays()
    assert (await played.turn("work")).iterations == 3
    entries = await played.entries()
    assert [(entry.role, entry.content) for entry in entries] == [
        (Role.ASSISTANT, "First I look."),
        (Role.ASSISTANT, ""),
        (Role.ASSISTANT, ""),
        (Role.TOOL, "it is \ufffd there"),
        (Role.ASSISTANT, ""),
        (Role.ASSISTANT, "Then I say."),
        (Role.TOOL, "(the agent did not tell what came of it)"),
    ]
    assert entries[1].meta["plan"] == [{"content": "look", "status": "in_progress", "priority": "medium"}]
    call = entries[2].meta["tool_calls"][0]
    assert (call["name"], call["kind"], call["arguments"]) == ("Look", "read", {"path": "x\ufffd"})
    assert entries[3].tool_call_id == call["id"]


@pytest.mark.parametrize(
    ("reason", "status", "halted"),
    [
        ("max_turn_requests", TurnStatus.DONE, True),
        ("refusal", TurnStatus.FAILED, False),
    ],
)
async def test_its_stop_reason_is_the_turns_end(plays: Plays, reason: str, status: TurnStatus, halted: bool) -> None:
    ended = await (await plays()).turn(f"stop {reason}")
    assert (ended.status, ended.halted, ended.answer) == (status, halted, "as far as I came")


async def test_it_makes_no_more_calls_than_it_may(plays: Plays) -> None:
    ended = await (await plays(max_iterations=5)).turn("calls")
    assert (ended.status, ended.halted) == (TurnStatus.DONE, True)


@pytest.mark.parametrize("way", ["--loads", "--resumes"])
async def test_an_agent_that_loads_or_resumes_sessions_goes_on_in_its_own(plays: Plays, way: str) -> None:
    played = await plays(way)
    first = await played.turn("session")
    played.read.clear()
    assert (await played.turn("session")).answer == first.answer
    assert len(played.read) == 2, "the turn's message, and what was said last"
    assert "told again" not in [entry.content for entry in await played.entries()]


@pytest.mark.parametrize("asks", [None, "olga"])
async def test_its_own_session_goes_on_where_nobody_asked_for_a_compaction(plays: Plays, asks: str | None) -> None:
    def fold() -> None:
        with write():
            agent = PoolAgent.objects.get()
            for _ in range(2):
                transcript.append(agent, None, Role.USER, "word " * 1_000, moment=now())
        assert transcript.compact(agent, asks, 100_000)

    played = await plays("--loads")
    first = await played.turn("session")
    await in_thread(WRITERS, fold)
    assert ((await played.turn("session")).answer == first.answer) == (asks is None)


async def test_another_is_told_what_was_said(plays: Plays) -> None:
    played = await plays()
    await played.turn("hello")
    told = (await played.turn("repeat")).answer or ""
    assert told.startswith("What was said so far:\n\nuser: hello\n\nassistant: Hello\n\nNow:")


async def test_of_what_was_said_it_reads_no_more_than_it_tells(plays: Plays) -> None:
    played = await plays()
    played.runner = played.runner.model_copy(update={"context_tokens": 1000, "reply_tokens": 500})
    await in_thread(WRITERS, partial(fill, played.agent, 300))
    told = (await played.turn("repeat")).answer or ""
    assert "assistant: entry290 said\n\n" in told and told.endswith("assistant: entry299 said\n\nNow:\n\nrepeat")
    assert len(played.read) < 100


@BOTH
async def test_it_uses_the_bus_as_itself_and_its_own_key_stays(plays: Plays) -> None:
    played = await plays()
    key = await in_thread(WRITERS, lambda: keys.issue(agent_id="ann", operator="olga"))
    ended = await played.turn("bus agent_whoami")
    assert json.loads(ended.answer or "")["data"]["agent_id"] == "ann"
    assert await in_thread(WRITERS, lambda: agent_of_key(key)) == "ann"
    assert await in_thread(WRITERS, LentKey.objects.count) == 0


async def test_it_uses_the_bus_of_a_server_whose_own_directory_is_gone(
    plays: Plays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(own)
    own.rmdir()
    ended = await (await plays()).turn("bus agent_whoami")
    assert json.loads(ended.answer or "")["data"]["agent_id"] == "ann"


# What it may.


async def test_its_files_are_ours_to_read_and_write(plays: Plays, tmp_path: Path) -> None:
    place = tmp_path / "place"
    (place / "here").write_text("what is here")
    (tmp_path / "secret").write_text("s3cret")
    (place / "link").symlink_to(tmp_path / "secret")
    played = await plays(write_paths=["out"])
    assert (await played.turn(f"read {place}/here")).answer == "what is here"
    for path in (f"{place}/../secret", f"{place}/link"):
        assert '"rule": "cwd"' in ((await played.turn(f"read {path}")).answer or "")
    assert (await played.turn(f"write {place}/out/new text")).answer == "written"
    assert (place / "out" / "new").read_text() == "text"
    assert '"rule": "tools"' in ((await played.turn("run echo hi")).answer or "")
    for path in (f"{place}/here", f"{place}/out/../here"):
        assert '"rule": "write_paths"' in ((await played.turn(f"write {path} text")).answer or "")
    assert (place / "here").read_text() == "what is here"


@pytest.mark.parametrize(
    ("preset", "kind", "path", "verdict"),
    [
        ("worker", "read", "x", Verdict.ALLOWED),
        ("worker", "read", "/etc/passwd", Verdict.REFUSED),
        ("worker", "edit", "out/x", Verdict.REFUSED),
        ("worker", "execute", "", Verdict.REFUSED),
        ("sandboxed", "edit", "out/x", Verdict.ALLOWED),
        ("sandboxed", "edit", "elsewhere", Verdict.ASKED),
        ("sandboxed", "edit", "/etc/passwd", Verdict.REFUSED),
        ("sandboxed", "edit", "", Verdict.ASKED),
        ("sandboxed", "execute", "", Verdict.REFUSED),
        ("sandboxed", "fetch", "", Verdict.REFUSED),
        ("sandboxed", "switch_mode", "", Verdict.ASKED),
        ("sandboxed", "read", "home/rpc.token", Verdict.REFUSED),
        ("sandboxed", "edit", "out/../home/runners.toml", Verdict.REFUSED),
        ("trusted", "edit", "home/runners.toml", Verdict.REFUSED),
        ("trusted", "execute", "", Verdict.ALLOWED),
        ("trusted", "edit", "/etc/passwd", Verdict.ASKED),
        ("trusted", "fetch", "", Verdict.ASKED),
        ("trusted", "think", "", Verdict.ALLOWED),
    ],
)
def test_permission_requests_go_by_the_preset_or_to_a_person(
    tmp_path: Path, configure: Callable[..., None], preset: str, kind: str, path: str, verdict: Verdict
) -> None:
    configure(home=tmp_path / "home")
    paths = () if preset == "worker" else (f"{tmp_path}/out",)
    locations = [ToolCallLocation(path=path)] if path else None
    call = ToolCallUpdate(tool_call_id="1", kind=kind, locations=locations)  # type: ignore[arg-type]
    assert judge(Permissions(Preset(preset), str(tmp_path), paths), call).verdict is verdict


async def test_a_write_elsewhere_is_done_when_a_person_allows_it_and_in_that_turn_alone(
    plays: Plays, tmp_path: Path
) -> None:
    file = tmp_path / "place" / "elsewhere"
    played = await plays(write_paths=["out"])
    assert "refused" in ((await played.turn(f"edit {file} text")).answer or "")
    assert not file.exists()
    played.decide = lambda subject: True
    assert (await played.turn(f"edit {file} text")).answer == "yes written"
    assert file.read_text() == "text"
    assert '"rule": "write_paths"' in ((await played.turn(f"write {file} more")).answer or "")
    assert file.read_text() == "text"


async def test_what_a_person_allowed_is_the_place_that_they_saw(plays: Plays, tmp_path: Path) -> None:
    place, outside = tmp_path / "place", tmp_path / "outside"
    (place / "out").mkdir()
    link = place / "out" / "link"
    link.symlink_to(place / "elsewhere")
    played = await plays(write_paths=["out"])

    def decide(subject: str) -> bool:
        link.unlink()
        link.symlink_to(outside)  # while the person looks
        return True

    played.decide = decide
    assert '"rule": "write_paths"' in ((await played.turn(f"edit {link} text")).answer or "")
    assert not outside.exists()
    assert played.asked == [f"write {place}/elsewhere"]


async def test_what_is_allowed_always_is_a_place_and_not_its_title(plays: Plays, tmp_path: Path) -> None:
    played = await plays()
    await played.turn(f"may edit {tmp_path}/place/a")
    await played.turn(f"may delete {tmp_path}/place/b")
    await played.turn("may other")
    assert played.asked == [f"write {tmp_path}/place/{name}" for name in "ab"] + ["other To other"]


async def test_a_terminals_output_is_kept_to_a_limit_and_its_leftovers_end(
    plays: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acp_client, "MOST_OUTPUT", 10)
    played = await plays(preset="trusted")
    assert (await played.turn("run echo hi")).answer == "0 False hi\n"
    assert (await played.turn("run seq 100000")).answer == "0 True 99\n100000\n"
    assert (await played.turn(f"linger tail -f /dev/null {MARK}")).answer == "begun"


async def test_a_terminal_takes_a_line_of_a_shell(plays: Plays, tmp_path: Path) -> None:
    played = await plays(preset="trusted")
    assert (await played.turn(f"line pwd > {tmp_path}/place/ran")).answer == "0"
    assert (tmp_path / "place" / "ran").read_text().strip() == str(tmp_path / "place")


@BOTH
async def test_it_gets_the_mcp_servers_of_its_runner(plays: Plays, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SECRET", "s3cret-value")
    server = {"command": ["server", "stdio"], "env_from": ["TEST_SECRET", "TEST_UNSET"], "env": {"SIZE": "small"}}
    played = await plays(mcp_servers={"github": server})
    own, github = json.loads((await played.turn("servers")).answer or "")
    assert own["name"] == "nexus"
    assert github == {
        "name": "github",
        "command": "server",
        "args": ["stdio"],
        "env": [{"name": "TEST_SECRET", "value": "***"}, {"name": "SIZE", "value": "small"}],  # told, so redacted
    }
    assert "TEST_SECRET" not in json.loads((await played.turn("environment")).answer or "")


@BOTH
async def test_its_environment_holds_what_is_named_and_no_more(plays: Plays, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SECRET", "s3cret")
    monkeypatch.setenv("TEST_OTHER", "other")
    played = await plays(env_from=["TEST_SECRET"])
    environment = json.loads((await played.turn("environment")).answer or "")
    assert environment["TEST_SECRET"] == "***" and "TEST_OTHER" not in environment  # it has it, and told it
    assert environment["NEXUS_API_KEY"] == "***"
    told = await played.turn("shell test $TEST_SECRET = s3cret && echo $TEST_SECRET")
    assert told.answer == "0 ***\n"
    said = " ".join(f"{entry.content} {entry.meta}" for entry in await played.entries())
    assert "s3cret" not in said and "nxs_" not in said


async def test_what_it_was_given_stands_in_no_entry_and_in_no_draft(
    plays: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_SECRET", '{"key": "-- s3cret --\\n"}')
    played = await plays(env_from=["TEST_SECRET"])
    await played.turn("betray TEST_SECRET")
    assert played.draft.text == "It is ***."
    said, called, _ = await played.entries()
    assert said.content == "It is ***."
    assert called.meta["tool_calls"][0]["arguments"] == {"value": ["***"], "***": '"***"'}


async def test_the_name_of_its_model_is_no_secret(plays: Plays, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_MODEL", "gpt-5-mini")
    played = await plays(env_from=["TEST_MODEL"])
    assert (await played.turn("betray TEST_MODEL")).answer == "It is gpt-5-mini."


async def test_a_file_on_a_disk_that_does_not_answer_is_an_error_and_no_wait(
    plays: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(paths, "SECONDS", 0.01)
    monkeypatch.setattr(files, "read_text", lambda *_, **__: answers.wait())
    try:
        assert "took longer than" in ((await (await plays()).turn("read x")).answer or "")
    finally:
        answers.set()


# How it misbehaves.


@pytest.mark.parametrize(
    ("flag", "why"),
    [
        ("--fails", "I cannot start like this"),
        ("--old", "speaks version 0 of the protocol"),
        ("--signed-out", "the key ran out"),
    ],
)
async def test_one_that_does_not_start_fails_the_turn(plays: Plays, flag: str, why: str) -> None:
    with pytest.raises(RunnerFailed, match=why):
        await (await plays(flag)).turn("hello")


async def test_one_that_is_not_there_fails_the_turn(plays: Plays) -> None:
    played = await plays()
    played.runner = played.runner.model_copy(update={"command": ["no-such-agent"]})
    with pytest.raises(RunnerFailed, match="no-such-agent"):
        await played.turn("hello")


async def test_one_whose_directory_is_gone_fails_the_turn(plays: Plays, tmp_path: Path) -> None:
    played = await plays()
    (tmp_path / "place").rmdir()
    with pytest.raises(RunnerFailed, match="not there any more"):
        await played.turn("hello")


async def test_a_secret_is_struck_before_what_holds_it_is_cut(plays: Plays, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SECRET", "s3cret")
    monkeypatch.setattr(acp, "QUOTED", 5)
    with pytest.raises(RunnerFailed, match=r"it said: s \*\*\*$"):
        await (await plays(env_from=["TEST_SECRET"])).turn("die 3")


async def test_one_that_never_answers_fails_the_turn(plays: Plays, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acp, "START_SECONDS", 0.01)
    with pytest.raises(RunnerFailed, match="did not open a session"):
        await (await plays("--mute")).turn("hello")


@BOTH
async def test_one_that_dies_fails_the_turn_and_no_secret_is_told(
    plays: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_SECRET", "s3cret")
    with pytest.raises(RunnerFailed, match=r"exit code 3\).*the key is \*\*\*"):
        await (await plays(env_from=["TEST_SECRET"])).turn("die 3")


@pytest.mark.parametrize(
    ("mode", "bound", "most", "why"),
    [
        ("nonsense", "MOST_NONSENSE", 100, "that the protocol does not know"),
        ("endless", "LONGEST_LINE", 1_000_000, "a line of over"),
        ("flood", "MOST_BYTES", 1_000_000, "bytes in one turn"),
        ("greedy", "MOST_OPEN", 20, "things at once"),
    ],
)
async def test_one_that_says_too_much_is_stopped(
    plays: Plays, monkeypatch: pytest.MonkeyPatch, mode: str, bound: str, most: int, why: str
) -> None:
    monkeypatch.setattr(acp_transport, bound, most)
    played = await plays()
    played.is_anybody_there = False
    with pytest.raises(RunnerFailed, match=why):
        await played.turn(mode)


async def test_one_that_floods_its_transcript_is_stopped(plays: Plays, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acp_client, "MOST_ENTRIES", 20)
    monkeypatch.setattr(acp_client, "ENTRIES_A_CALL", 0)
    played = await plays()
    with pytest.raises(RunnerFailed, match="was stopped: it said over 20 things in one turn"):
        await played.turn("plans")
    assert 21 <= len(await played.entries()) <= 22
    assert (await played.turn("hello")).answer == "Hello"


async def test_one_that_answers_twice_has_answered(plays: Plays, caplog: pytest.LogCaptureFixture) -> None:
    played = await plays()
    assert (await played.turn("twice")).answer == "once"
    assert (await played.turn("hello")).answer == "Hello"
    assert "Traceback" not in caplog.text


async def test_what_it_says_on_stderr_is_read_and_forgotten(plays: Plays) -> None:
    assert (await (await plays()).turn("noise")).answer == "still here"


@BOTH
async def test_what_it_left_behind_ends_with_the_turn(plays: Plays) -> None:
    assert (await (await plays()).turn(f"daemon {MARK}")).answer == "left one behind"


@BOTH
@pytest.mark.parametrize("mode", ["stall", "ignore"])
async def test_cancelling_ends_its_processes_and_keeps_what_it_said(plays: Plays, mode: str) -> None:
    played = await plays()
    turn = asyncio.create_task(played.turn(mode))
    await played.heard.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert (await played.entries())[0].content == "I stall"


async def test_a_required_sandbox_that_is_not_there_starts_nothing(
    plays: Plays, configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "state", lambda: sandbox.State(False, "the test has none"))
    configure(pool_sandbox="required")
    with pytest.raises(NexusError, match="the test has none") as refused:
        await (await plays()).turn("hello")
    assert refused.value.details == {"rule": "sandbox"}


async def test_the_end_of_the_bus_is_nothing_to_log(plays: Plays, caplog: pytest.LogCaptureFixture) -> None:
    """An agent that was killed leaves its connection open, and asyncio logs a task that ends as cancelled."""
    played = await plays()
    turn = asyncio.create_task(played.turn("hold"))
    await played.heard.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    await asyncio.sleep(0)
    assert not [record for record in caplog.records if record.name == "asyncio"]


async def test_a_fault_of_its_provider_is_known_as_one(plays: Plays, tmp_path: Path) -> None:
    played = await plays(write_paths=["."])
    with pytest.raises(RunnerFailed, match="529") as failed:
        await played.turn("fault API Error: 529 Overloaded, retry-after: 7")
    assert failed.value.fault == Fault(FaultKind.OVERLOADED, 7) and not failed.value.has_written
    with pytest.raises(RunnerFailed) as failed:
        await played.turn(f"fault {tmp_path}/place/new.txt API Error: 401 invalid x-api-key")
    assert failed.value.fault == Fault(FaultKind.KEY) and failed.value.has_written
    with pytest.raises(RunnerFailed) as failed:
        await played.turn("fault I lost my way")
    assert failed.value.fault is None


async def test_an_agent_that_wants_a_login_has_a_fault_of_its_key(plays: Plays) -> None:
    with pytest.raises(RunnerFailed, match="wants a login") as failed:
        await (await plays("--signed-out")).turn("hello")
    assert failed.value.fault == Fault(FaultKind.KEY)


async def test_an_agent_that_gives_its_providers_fault_as_an_answer_has_failed(plays: Plays) -> None:
    played = await plays()
    ended = await played.turn("echo exceeded retry limit, last status: 429 Too Many Requests")
    assert (ended.status, ended.fault) == (TurnStatus.FAILED, Fault(FaultKind.OVERLOADED))
    ended = await played.turn("echo 429 means: too many requests")
    assert ended.status == TurnStatus.DONE
