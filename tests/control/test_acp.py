"""The runner `acp`, with a real agent as a process: its turns, what it may, and how it misbehaves."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from acp.schema import ToolCallLocation, ToolCallUpdate

from coordination.models import LentKey
from coordination.services import keys
from nexus.control.agents import transcript
from nexus.control.faults import Fault, FaultKind
from nexus.control.models import PoolAgent, Role, Turn, TurnStatus
from nexus.control.permissions.prices import Cost
from nexus.control.permissions.rules import Effect, Kind, Permissions, Preset, Rule, Verdict
from nexus.control.runners import acp, acp_client, acp_transport, bus, processes, sandbox, traffic
from nexus.control.runners.acp_calls import judge
from nexus.control.runners.base import Draft, RunnerFailed, Scene
from nexus.control.runners.tools import files
from nexus.control.runners_file import Acp
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations.errors import NexusError
from nexus.core.waiting import WRITERS, in_thread
from tests.acceptance.pool import arguments
from tests.control.acp_here import played
from tests.control.playing import fill
from tests.control.turns import Played, create
from tests.core.waiting import LONG
from tests.keys import agent_of_key

AGENT = Path(__file__).with_name("acp_agent.py")
MARK = f"left-by-{os.getpid()}"  # the same test may be played by another run beside
Plays = Callable[..., Any]
BOTH = pytest.mark.parametrize("plays", ["sandbox", "none"], indirect=True)  # and else where there is one


@pytest.fixture
def place(tmp_path: Path, configure: Callable[..., None]) -> Path:
    """The agent's directory."""
    configure(home=tmp_path / "home")
    place = tmp_path / "place"
    place.mkdir()
    return place


@pytest.fixture
def here(committed: None, place: Path) -> Plays:
    """An agent whose turns are played in this process."""

    async def play(*flags: str, preset: str = "sandboxed", write_paths: Any = None, **more: Any) -> Played:
        agent = await in_thread(WRITERS, lambda: create("ann", str(place), preset=preset, write_paths=write_paths))
        return played(agent, *flags, **more)

    return play


@pytest.fixture
async def plays(
    request: pytest.FixtureRequest, starts_processes: None, here: Plays, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Plays]:
    """An agent that is a program, in the sandbox and without; no process is left of it."""
    wanted = getattr(request, "param", None)
    if wanted == "none":
        monkeypatch.setattr(sandbox, "state", lambda: sandbox.SandboxState(False, "the test has none"))
    elif wanted and not sandbox.state().works:
        pytest.skip(f"no sandbox on this machine: {sandbox.state().why}")
    before = {process.pid for process in psutil.process_iter()}

    async def play(*flags: str, **more: Any) -> Played:
        given = await here(*flags, read_paths=[str(AGENT.parents[2])], **more)
        given.runner.command[:1] = [sys.executable, str(AGENT)]
        given.take = acp.take
        return cast(Played, given)

    yield play
    async with asyncio.timeout(LONG):  # a turn that was cancelled does not wait for the last of them
        while any(process.pid not in before for process in psutil.Process().children(recursive=True)):
            await asyncio.sleep(0.01)
    assert MARK not in " ".join(arguments())


@pytest.mark.parametrize("step", ["environment_of", "confined"])
async def test_turns_that_hang_as_they_begin_hold_up_their_own_family_alone(
    place: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """As where a mount does not answer any more."""
    answers, ann = threading.Event(), PoolAgent(pk="ann")

    @asynccontextmanager
    async def key_of(agent_id: str) -> AsyncIterator[str]:
        yield "nxs_key"

    def hangs(*given: Any, **_: Any) -> None:
        agent = next(each for each in given if isinstance(each, PoolAgent))
        if agent.owner == "ann":
            answers.wait()
        raise RunnerFailed(f"{agent.pk} went on")

    async def turn(agent: PoolAgent) -> None:
        scene = Scene(agent, Turn(pk="turn"), *[cast(Any, None)] * 4)
        await acp.take(Acp(kind="acp", name="agent", command=["agent"]), scene)

    monkeypatch.setattr(sandbox, "state", lambda: sandbox.SandboxState(False, "the test has none"))
    monkeypatch.setattr(bus, "key_of", key_of)
    monkeypatch.setattr(processes, step, hangs)
    stuck = [asyncio.create_task(turn(PoolAgent(pk=f"child-{number}", parent=ann))) for number in range(40)]
    try:
        for _ in range(20):  # the first may come before all of the others hang
            with pytest.raises(RunnerFailed, match="bob went on"):
                await asyncio.wait_for(turn(PoolAgent(pk="bob")), LONG)
    finally:
        answers.set()
        await asyncio.gather(*stuck, return_exceptions=True)


async def test_what_its_session_cost_before_is_no_cost_of_the_turn(here: Plays) -> None:
    played = await here("--loads")
    ended = await played.turn("cost 0.25 0.5")
    assert ended.cost == Cost(500_000, "USD", "its agent")
    assert (ended.input_tokens, ended.output_tokens, ended.cached_tokens) == (97, 3, 90), "cached tokens are input, too"
    ended = await played.turn("cost 2.75")  # it loads the session, which had cost 2.5
    assert ended.cost == Cost(250_000, "USD", "its agent")
    assert (await played.turn("cost 0.5")).cost == Cost(500_000, "USD", "its agent"), "it began at 0 again"
    for impossible in ("nan", "-1", "inf", "1e300", "1:dollars"):
        played.draft = Draft()
        ended = await played.turn(f"cost {impossible}")
        assert (ended.status, ended.cost) == (TurnStatus.DONE, None), "unknown is not 0"


async def test_its_key_said_in_pieces_is_in_no_answer_draft_or_trace(here: Plays) -> None:
    played = await here()
    ended = await played.turn("leak")
    assert ended.status == TurnStatus.DONE and ended.answer == played.draft.text == "It is ***."
    run_id = await in_thread(WRITERS, lambda: Turn.objects.get().pk)
    lines = list(traffic.lines_of("ann", run_id))
    sent = [json.loads(line["text"]).get("method") for line in lines if line["what"] == "sent"]
    assert sent == ["initialize", "session/new", "session/prompt"]
    received = " ".join(line["text"] for line in lines if line["what"] == "received")
    assert "It is ***." in received and "end_turn" in received and "nxs_" not in received.replace("nxs_***", "")


async def test_what_it_says_does_and_plans_stands_in_the_transcript(here: Plays) -> None:
    played = await here()
    assert (await played.turn("work")).iterations == 3
    assert played.draft.text == "First I look.Then I say.", "what it is just writing is shown"
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


async def test_its_stop_reason_is_the_turns_end(here: Plays) -> None:
    played = await here()
    for reason, status, halted in (
        ("max_turn_requests", TurnStatus.DONE, True),
        ("refusal", TurnStatus.FAILED, False),
    ):
        ended = await played.turn(f"stop {reason}")
        assert (ended.status, ended.halted, ended.answer) == (status, halted, "as far as I came")


async def test_it_makes_no_more_calls_than_it_may(here: Plays, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acp, "HALT_SECONDS", 0.1)
    ended = await (await here(max_iterations=5)).turn("calls")
    assert (ended.status, ended.halted) == (TurnStatus.DONE, True)


@pytest.mark.parametrize("way", ["--loads", "--resumes"])
async def test_an_agent_that_loads_or_resumes_sessions_goes_on_in_its_own(here: Plays, way: str) -> None:
    played = await here(way)
    first = await played.turn("session")
    played.read.clear()
    assert (await played.turn("session")).answer == first.answer
    assert len(played.read) == 2, "the turn's message, and what was said last"
    assert "told again" not in [entry.content for entry in await played.entries()]


@pytest.mark.parametrize("asks", [None, "olga"])
async def test_its_own_session_goes_on_where_nobody_asked_for_a_compaction(here: Plays, asks: str | None) -> None:
    def fold() -> None:
        with write():
            agent = PoolAgent.objects.get()
            for _ in range(2):
                transcript.append(agent, None, Role.USER, "word " * 1_000, moment=now())
        assert transcript.compact(agent, asks, 100_000)

    played = await here("--loads")
    first = await played.turn("session")
    await in_thread(WRITERS, fold)
    assert ((await played.turn("session")).answer == first.answer) == (asks is None)


async def test_another_is_told_what_was_said_and_reads_no_more_of_it(here: Plays) -> None:
    played = await here()
    await played.turn("hello")
    told = (await played.turn("repeat")).answer or ""
    assert told.startswith("What was said so far:\n\nuser: hello\n\nassistant: Hello\n\nNow:")
    played.runner = played.runner.model_copy(update={"context_tokens": 1000, "reply_tokens": 500})
    await in_thread(WRITERS, partial(fill, played.agent, 300))
    played.read.clear()
    told = (await played.turn("repeat")).answer or ""
    assert "assistant: entry290 said\n\n" in told and told.endswith("assistant: entry303 said\n\nNow:\n\nrepeat")
    assert len(played.read) < 100


async def test_a_write_elsewhere_is_done_when_a_person_allows_it_and_in_that_turn_alone(
    here: Plays, place: Path
) -> None:
    file = place / "elsewhere"
    played = await here(write_paths=["out"])
    assert "refused" in ((await played.turn(f"edit {file} text")).answer or "")
    assert not file.exists()
    played.decide = lambda subject: True
    assert (await played.turn(f"edit {file} text")).answer == "yes written"
    assert file.read_text() == "text"
    assert '"rule": "write_paths"' in ((await played.turn(f"write {file} more")).answer or "")
    assert file.read_text() == "text"


async def test_what_it_was_given_stands_in_no_entry_and_in_no_draft(
    here: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_SECRET", '{"key": "-- s3cret --\\n"}')
    monkeypatch.setenv("TEST_MODEL", "gpt-5-mini")
    played = await here(env_from=["TEST_SECRET", "TEST_MODEL"])
    await played.turn("betray TEST_SECRET")
    assert played.draft.text == "It is ***."
    said, called, _ = await played.entries()
    assert said.content == "It is ***."
    assert called.meta["tool_calls"][0]["arguments"] == {"value": ["***"], "***": '"***"'}
    assert (await played.turn("betray TEST_MODEL")).answer == "It is gpt-5-mini.", "the name of its model is no secret"


async def test_a_file_on_a_disk_that_does_not_answer_is_an_error_and_no_wait(
    here: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(files, "SECONDS", 0.01)
    monkeypatch.setattr(files, "read_text", lambda *_, **__: answers.wait())
    try:
        assert "took longer than" in ((await (await here()).turn("read x")).answer or "")
    finally:
        answers.set()


async def test_one_of_another_version_fails_the_turn(here: Plays) -> None:
    with pytest.raises(RunnerFailed, match="speaks version 0 of the protocol"):
        await (await here("--old")).turn("hello")


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
    here: Plays, monkeypatch: pytest.MonkeyPatch, mode: str, bound: str, most: int, why: str
) -> None:
    monkeypatch.setattr(acp_transport, bound, most)
    played = await here()
    played.is_anybody_there = False
    with pytest.raises(RunnerFailed, match=why):
        await played.turn(mode)


async def test_one_that_floods_its_transcript_is_stopped(here: Plays, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acp_client, "MOST_ENTRIES", 20)
    monkeypatch.setattr(acp_client, "ENTRIES_A_CALL", 0)
    played = await here()
    with pytest.raises(RunnerFailed, match="was stopped: it said over 20 things in one turn"):
        await played.turn("plans")
    assert 21 <= len(await played.entries()) <= 22
    assert (await played.turn("hello")).answer == "Hello"


async def test_one_that_answers_twice_has_answered(here: Plays, caplog: pytest.LogCaptureFixture) -> None:
    played = await here()
    assert (await played.turn("twice")).answer == "once"
    assert (await played.turn("hello")).answer == "Hello"
    assert "Traceback" not in caplog.text


async def test_a_fault_of_its_provider_is_known_as_one(here: Plays, place: Path) -> None:
    played = await here(write_paths=["."])
    with pytest.raises(RunnerFailed, match="529") as failed:
        await played.turn("fault overloaded API Error: 529 Overloaded, retry-after: 7")
    assert failed.value.fault == Fault(FaultKind.OVERLOADED) and not failed.value.has_written
    with pytest.raises(RunnerFailed) as failed:
        await played.turn(f"fault {place}/new.txt authentication_failed API Error: 401")
    assert failed.value.fault == Fault(FaultKind.KEY) and failed.value.has_written
    with pytest.raises(RunnerFailed) as failed:
        await played.turn("fault unknown API Error: 401 Authentication required, retry after 604800")
    assert failed.value.fault is None
    ended = await played.turn("echo exceeded retry limit, last status: 429 Too Many Requests")
    assert (ended.status, ended.fault) == (TurnStatus.DONE, None), "what it says is no fault"


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


# What its program is given, and what is left of it.


async def test_it_takes_a_turn_and_tells_what_it_used(plays: Plays) -> None:
    ended = await (await plays()).turn("hello")
    assert (ended.status, ended.answer, ended.input_tokens, ended.output_tokens) == (TurnStatus.DONE, "Hello", 7, 3)


async def test_it_uses_the_bus_as_itself_of_a_server_whose_own_directory_is_gone(
    plays: Plays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(AGENT.parents[2]))
    monkeypatch.chdir(own)
    own.rmdir()
    played = await plays()
    key = await in_thread(WRITERS, lambda: keys.issue(agent_id="ann", operator="olga"))
    ended = await played.turn("bus agent_whoami")
    assert json.loads(ended.answer or "")["data"]["agent_id"] == "ann"
    assert await in_thread(WRITERS, lambda: agent_of_key(key)) == "ann", "its own key stays"
    assert await in_thread(WRITERS, LentKey.objects.count) == 0


async def test_what_a_person_allowed_is_the_place_that_they_saw(plays: Plays, place: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
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


async def test_a_terminals_output_is_kept_to_a_limit_and_its_leftovers_end(
    plays: Plays, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acp_client, "MOST_OUTPUT", 10)
    played = await plays(preset="trusted")
    assert (await played.turn("run echo hi")).answer == "0 False hi\n"
    assert (await played.turn("run seq 100000")).answer == "0 True 99\n100000\n"
    assert (await played.turn(f"line pwd > {place}/ran")).answer == "0", "a line of a shell"
    assert (place / "ran").read_text().strip() == str(place)
    assert (await played.turn(f"linger tail -f /dev/null {MARK}")).answer == "begun"


async def test_the_environment_and_directory_of_a_terminal_are_judged_and_shown(plays: Plays, tmp_path: Path) -> None:
    place = tmp_path / "place"
    (place / "sub").mkdir(parents=True, exist_ok=True)
    played = await plays(preset="trusted")
    played.known = [Rule(1, Effect.DENY, Kind.RUN, "touch *"), Rule(2, Effect.ALLOW, Kind.RUN, "git *")]
    pager = f"GIT_PAGER=touch:{place}/ran"  # the test's agent splits at spaces
    assert "An operator refused" in ((await played.turn(f"with {pager} {place} git --paginate version")).answer or "")
    assert "An operator refused" in ((await played.turn(f"with A=1 {place}/sub git version")).answer or "")
    assert played.asked == [f"run env GIT_PAGER=touch:{place}/ran git --paginate version",
                            f"run env --chdir={place}/sub A=1 git version"]  # fmt: skip
    played.decide = lambda subject: True
    assert (await played.turn(f"with A=1 {place} git version")).answer == "0"
    played.asked.clear()
    assert (await played.turn("run git version")).answer
    assert (await played.turn(f"with CLAUDECODE=1 {place} git version")).answer == "0"
    assert played.asked == []


@BOTH
async def test_its_environment_and_its_mcp_servers_hold_what_is_named_and_no_more(
    plays: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"TEST_SECRET": "s3cret", "TEST_OTHER": "other", "TEST_TOKEN": "token-value"}.items():
        monkeypatch.setenv(name, value)
    server = {"command": ["server", "stdio"], "env_from": ["TEST_TOKEN", "TEST_UNSET"], "env": {"SIZE": "small"}}
    played = await plays(env_from=["TEST_SECRET"], mcp_servers={"github": server})
    environment = json.loads((await played.turn("environment")).answer or "")
    assert environment["TEST_SECRET"] == environment["NEXUS_API_KEY"] == "***"  # it has them, and told them
    assert not environment.keys() & {"TEST_OTHER", "TEST_TOKEN"}
    told = await played.turn("shell test $TEST_SECRET = s3cret && echo $TEST_SECRET")
    assert told.answer == "0 ***\n"
    own, github = json.loads((await played.turn("servers")).answer or "")
    assert own["name"] == "nexus"
    assert github == {
        "name": "github",
        "command": "server",
        "args": ["stdio"],
        "env": [{"name": "TEST_TOKEN", "value": "***"}, {"name": "SIZE", "value": "small"}],
    }
    said = " ".join(f"{entry.content} {entry.meta}" for entry in await played.entries())
    assert not any(secret in said for secret in ("s3cret", "token-value", "nxs_"))


@pytest.mark.parametrize(
    ("command", "why"),
    [([sys.executable, str(AGENT), "--fails"], "I cannot start like this"), (["no-such-agent"], "no-such-agent")],
)
async def test_one_that_does_not_start_fails_the_turn(plays: Plays, command: list[str], why: str) -> None:
    played = await plays()
    played.runner = played.runner.model_copy(update={"command": command})
    with pytest.raises(RunnerFailed, match=why):
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


async def test_one_that_dies_fails_the_turn_and_no_secret_is_told(
    plays: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_SECRET", "s3cret")
    with pytest.raises(RunnerFailed, match=r"exit code 3\).*the key is \*\*\*"):
        await (await plays(env_from=["TEST_SECRET"])).turn("die 3")


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
    monkeypatch.setattr(sandbox, "state", lambda: sandbox.SandboxState(False, "the test has none"))
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
