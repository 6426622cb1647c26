"""The runner `model`: our own loop over a model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordination.services import workspaces
from nexus.control import runners_file
from nexus.control.agents import transcript, turns
from nexus.control.agents.questions import Decision
from nexus.control.models import Role
from nexus.control.runners import contexts, model, recording, sandbox, traffic
from nexus.control.runners.base import RunnerFailed
from nexus.control.runners.model import take
from nexus.core.config import CoreSettings
from nexus.core.operations.errors import NexusError
from nexus.core.waiting import WRITERS, in_thread
from tests.acceptance.hub import START_SECONDS
from tests.control.openai_server import (
    KEY,
    Reply,
    Server,
    calls,
    floods,
    hangs_up,
    refuses,
    says,
    scripted,
    sends,
    stalls,
)
from tests.control.pool import HERE
from tests.control.scenes import Stage, created, small


@pytest.fixture
def stage(committed: None, configure: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A sandboxed agent that may write below `out`."""
    configure(control=True, home=tmp_path / "home")
    monkeypatch.setattr(model, "FIRST_PAUSE", 0.0)
    cwd = tmp_path / "project"
    (cwd / "out").mkdir(parents=True)
    (cwd / "notes.txt").write_text("one\ntwo\n")
    return Stage(created("ann", cwd, write_paths=["out"]))


def tools_of(asked: dict[str, Any]) -> set[str]:
    return {tool["function"]["name"] for tool in asked["tools"]}


async def test_it_answers_what_a_model_streams_and_tells_what_it_cost(stage: Stage) -> None:
    with scripted(says("Good ", "morning", usage=(120, 7))) as (server, url):
        ended = await stage.take(small(url), "Hello")
    assert (ended.status, ended.answer, ended.iterations) == ("done", "Good morning", 1)
    assert (ended.input_tokens, ended.output_tokens) == (120, 7)
    assert await stage.said() == [("user", "Hello"), ("assistant", "Good morning")]
    system, said = server.asked[0]["messages"]
    assert system["role"] == "system" and "You are ann" in system["content"]
    assert said == {"role": "user", "content": "Hello"}
    assert ended.cost is None, "nobody knows a price of it"


async def test_it_tells_what_a_model_cost_whose_price_is_known(stage: Stage) -> None:
    answers = (calls(("read_file", {"path": "notes.txt"}), usage=(900, 50)), says("Two lines.", usage=(100, 50)))
    with scripted(*answers) as (_, url):
        ended = await stage.take(small(url, model="openai:gpt-4o-mini"), "How long is it?")
    assert ended.cost is not None
    assert (ended.cost.currency, ended.cost.source) == ("USD", model.PRICES)
    assert 0 < ended.cost.millionths < 100_000


async def test_it_calls_tools_and_gives_their_results_back(stage: Stage) -> None:
    script = calls(("read_file", {"path": "notes.txt"}), ("write_file", {"path": "out/new.txt", "content": "x"}))
    with scripted(script, says("Done.")) as (server, url):
        ended = await stage.take(small(url), "Copy it")
    assert (ended.answer, ended.iterations, ended.input_tokens) == ("Done.", 2, 20)
    assert (Path(stage.agent.cwd) / "out" / "new.txt").read_text() == "x"
    assert await stage.said() == [
        ("user", "Copy it"),
        ("assistant", 'read_file({"path": "notes.txt"})write_file({"path": "out/new.txt", "content": "x"})'),
        ("tool", "one\ntwo\n"),
        ("tool", "out/new.txt is written."),
        ("assistant", "Done."),
    ]
    called, first, second = server.asked[1]["messages"][-3:]
    assert [call["id"] for call in called["tool_calls"]] == [first["tool_call_id"], second["tool_call_id"]]
    assert first["content"] == "one\ntwo\n"


async def test_it_offers_what_the_preset_allows_and_refuses_the_rest_when_it_is_called_anyway(
    stage: Stage, tmp_path: Path
) -> None:
    worker = Stage(await in_thread(WRITERS, lambda: created("wim", tmp_path, "worker", disabled_tools=["grep"])))
    reader = Stage(await in_thread(WRITERS, lambda: created("rea", tmp_path)))  # which writes nowhere
    anyway = calls(("write_file", {"path": "a", "content": "b"}), ("grep", {"pattern": "x"}), ("run", {"command": "w"}))
    with scripted(says("ok"), says("ok"), anyway, says("Well.")) as (server, url):
        for each in (stage, reader, worker):
            await each.take(small(url), "Hello")
    offered, reading, fewer = map(tools_of, server.asked[:3])
    assert {"write_file", "edit_file", "grep", "agent_list", "task_add", "ask_operator"} <= offered
    assert not offered & {"run", "pool_create_agent"}
    assert {"read_file", "task_add"} <= reading and not reading & {"write_file", "edit_file"}
    assert "you write no files" in server.asked[1]["messages"][0]["content"]
    assert {"read_file", "glob", "agent_list", "sync", "ask_operator"} <= fewer
    assert not fewer & {"write_file", "edit_file", "grep", "run", "task_add"}
    told = [text for role, text in await worker.said() if role == "tool"]
    assert told == [f"Error: there is no tool '{name}' for this agent." for name in ("write_file", "grep", "run")]
    assert not (tmp_path / "a").exists()


async def test_after_a_message_that_is_too_long_the_next_one_works(stage: Stage) -> None:
    with scripted(says("Hello."), says("Yes.")) as (server, url):
        runner = small(url, context_tokens=20_000)
        await stage.take(runner, "Hello")
        too_long = await stage.take(runner, "long " * 180_000)
        ended = await stage.take(runner, "Are you there?")
    assert too_long.status == "failed" and "does not fit" in (too_long.why or "")
    assert (ended.status, ended.answer) == ("done", "Yes.")
    asked = server.asked[1]["messages"]
    assert asked[1]["content"] == "Hello" and asked[-1]["content"].endswith("Are you there?")
    assert "user: long long" in asked[0]["content"], "its beginning is in the summary"


async def test_it_calls_the_hub_as_the_agent_that_it_is(stage: Stage, tmp_path: Path) -> None:
    known = str(tmp_path.parent)  # somebody made it a project
    await in_thread(WRITERS, lambda: workspaces.resolve(project_root=known, display_name=None))
    script = calls(
        ("agent_whoami", {}),
        ("message_create", {"from_agent": "bob", "to": "ann", "body": "x"}),
        ("workspace_resolve", {"project_root": str(tmp_path.parent / "elsewhere")}),
        ("workspace_resolve", {"project_root": str(tmp_path)}),
        ("workspace_resolve", {"project_root": ".."}),
        ("workspace_resolve", {"project_root": stage.agent.cwd}),
        ("workspace_resolve", {"project_root": known}),
    )
    with scripted(script, says("ok")) as (_server, url):
        await stage.take(small(url), "Who are you?")
    whoami, message, *others, here, above = [text for role, text in await stage.said() if role == "tool"]
    assert json.loads(whoami)["data"]["agent_id"] == "ann"
    assert not json.loads(message)["ok"]
    assert len(others) == 3
    assert all(other.startswith("Error: project_root must lie at or below") for other in others)
    assert json.loads(here)["ok"] and json.loads(above)["ok"]


async def test_it_gives_a_trusted_agent_the_tools_to_create_others_but_not_those_taken_from_it(
    stage: Stage, tmp_path: Path
) -> None:
    def made(name: str, *disabled: str) -> Stage:
        return Stage(created(name, tmp_path, "trusted", disabled_tools=list(disabled)))

    lead, lesser = await in_thread(WRITERS, lambda: (made("lead"), made("lesser", "create_agent")))
    with scripted(calls(("pool_create_agent", {"agent_id": "kid"})), says("ok")) as (server, url):
        await lead.take(small(url), "Make one")
        await lesser.take(small(url), "Make one")
    assert "pool_create_agent" in tools_of(server.asked[0])
    assert "pool_create_agent" not in tools_of(server.asked[-1])
    made_one = json.loads(next(text for role, text in await lead.said() if role == "tool"))
    assert made_one["data"]["agent_id"] == "kid"


@pytest.mark.usefixtures("starts_processes")
async def test_it_runs_a_program_only_when_a_person_allows_it(stage: Stage, tmp_path: Path) -> None:
    lead = Stage(await in_thread(WRITERS, lambda: created("lead", tmp_path, "trusted")))
    lead.decisions = [Decision(True), Decision(False, "not today")]
    script = [calls(("run", {"command": "echo $((6*7))"})), calls(("run", {"command": "touch made"}))]
    with scripted(*script, says("ok")) as (_server, url):
        await lead.take(small(url), "Run")
    results = [text for role, text in await lead.said() if role == "tool"]
    assert results == ["[exit 0]\n42\n", "Error: It was not allowed: not today."]
    assert lead.asked[0] == ("permission", "Run a program: echo $((6*7))", "run echo $((6*7))")
    assert not (tmp_path / "made").exists()


@pytest.mark.usefixtures("starts_processes")
async def test_a_program_that_it_runs_is_in_the_sandbox(stage: Stage, tmp_path: Path) -> None:
    if not sandbox.state().works:
        pytest.skip(f"no sandbox on this machine: {sandbox.state().why}")
    home, secret, mine = tmp_path / "home", tmp_path / "secret", tmp_path / "mine"
    for place in (mine, home):
        place.mkdir(exist_ok=True)
    for file in (secret, home / "rpc.token"):
        file.write_text("s3cret")
    lead = Stage(await in_thread(WRITERS, lambda: created("lead", mine, "trusted")))
    lead.decisions = [Decision(True)]
    look = calls(("run", {"command": f"echo $HOME; touch made; cat {secret} {home}/rpc.token || env"}))
    with scripted(look, says("ok")) as (_server, url):
        await lead.take(small(url), "Run")
    [looked] = [text for role, text in await lead.said() if role == "tool"]
    assert f"[exit 0]\n{home}/pool/{lead.agent.pk}\n" in looked and "s3cret" not in looked
    assert (mine / "made").exists()


async def test_it_stops_a_model_that_calls_tools_without_end(stage: Stage) -> None:
    with scripted(calls(("list_directory", {}))) as (server, url):
        ended = await stage.take(small(url, max_iterations=3), "Go on")
    assert (ended.status, ended.halted, ended.iterations) == ("done", True, 3)
    assert len(server.asked) == 3


@pytest.mark.parametrize("arguments", ["{nonsense", "[1, 2]", '"text"', "[" * 100_000, "null"])
async def test_it_tells_a_model_that_its_arguments_are_none(stage: Stage, arguments: str) -> None:
    with scripted(calls(("read_file", arguments)), says("Sorry.")) as (server, url):
        ended = await stage.take(small(url), "Read")
    assert ended.answer == "Sorry."
    [told] = [text for role, text in await stage.said() if role == "tool"]
    assert told.startswith("Error: ")
    again = server.asked[1]["messages"][-2]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(again) == {}  # strict servers refuse a history that is no JSON


@pytest.mark.parametrize("ids", [("same", "same"), ("", ""), ("x" * 300, "y" * 300)])
async def test_it_answers_each_call_whatever_ids_a_model_gives(stage: Stage, ids: tuple[str, str]) -> None:
    script = calls(("list_directory", {}), ("read_file", {"path": "notes.txt"}), ids=ids)
    with scripted(script, says("ok")) as (server, url):
        await stage.take(small(url), "Look")
    called, first, second = server.asked[1]["messages"][-3:]
    assert [call["id"] for call in called["tool_calls"]] == [first["tool_call_id"], second["tool_call_id"]]
    assert first["tool_call_id"] != second["tool_call_id"]
    assert second["content"] == "one\ntwo\n"


async def test_it_keeps_what_no_store_takes_out_of_the_transcript(stage: Stage) -> None:
    script = calls(("write_file", {"path": "out/a", "content": "nul \0, half \ud800"}))
    with scripted(script, says("nul \0 here")) as (_server, url):
        ended = await stage.take(small(url), "Write")
    assert ended.answer == "nul \N{REPLACEMENT CHARACTER} here"


PASSING = [refuses(429, retry_after="0"), refuses(500), refuses(503), hangs_up]


@pytest.mark.parametrize("failure", PASSING, ids=["429", "500", "503", "hangs up"])
async def test_it_asks_again_when_a_failure_may_pass(stage: Stage, failure: Reply) -> None:
    with scripted(failure, failure, says("At last.")) as (server, url):
        ended = await stage.take(small(url), "Hello")
    assert ended.answer == "At last."
    assert len(server.asked) == 3


NONSENSE = [
    (refuses(429, retry_after="0"), "429"),
    (refuses(500), "500"),
    (refuses(400, "no such model"), "no such model"),
    (refuses(401, "bad key"), "bad key"),
    (hangs_up, "times"),
    (sends(b""), "the model"),
    (sends(b"data: {nonsense\n\n"), "the model"),
    (sends(b"<html>hello</html>", "text/html"), "the model"),
    (sends(b'data: {"choices": "x"}\n\n'), "the model"),
    (sends(b'data: {"error": {"message": "overloaded"}}\n\n'), "overloaded"),
    (says(""), "the model"),
]


@pytest.mark.parametrize(("reply", "told"), NONSENSE)
async def test_it_fails_with_a_reason_whatever_a_provider_answers(stage: Stage, reply: Reply, told: str) -> None:
    with scripted(reply) as (_server, url):
        ended = await stage.take(small(url, retries=1), "Hello")
    assert ended.status == "failed"
    assert told in (ended.why or "")
    assert await stage.said() == [("user", "Hello")]


async def test_what_it_is_just_writing_is_shown_with_what_it_has_used(stage: Stage) -> None:
    with scripted(calls(("list_directory", {})), stalls("Half ", "a \x00 word")) as (_server, url):
        scene = await stage.scene(await stage.turn("Hello"))
        taking = asyncio.create_task(take(small(url), scene))
        while scene.draft.text != "Half a \ufffd word" and not taking.done():
            changed = asyncio.create_task(scene.draft.changed.wait())
            await asyncio.wait([changed, taking], return_when=asyncio.FIRST_COMPLETED)
            scene.draft.changed.clear()
        assert scene.draft.text == "Half a \ufffd word"
        assert (scene.draft.input_tokens, scene.draft.output_tokens) == (10, 5)
        taking.cancel()
        await asyncio.wait([taking])


async def test_what_an_attempt_wrote_that_failed_is_shown_no_more(stage: Stage) -> None:
    with scripted(stalls("Half a "), says("Hello")) as (_server, url):
        scene = await stage.scene(await stage.turn("Hello"))
        await take(small(url, stall_seconds=1, retries=1), scene)
    assert (scene.draft.text, scene.draft.begun) == ("Hello", 1)


async def left(server: Server) -> None:
    """Return once the client has gone. The event loop runs on, for a closed connection is closed by its next round."""
    assert await asyncio.to_thread(server.left.wait, START_SECONDS)


async def test_it_gives_a_model_up_that_says_nothing(stage: Stage) -> None:
    with scripted(stalls("Well, ")) as (server, url):
        ended = await stage.take(small(url, stall_seconds=1, retries=0), "Hello")
    assert ended.why == "the model said nothing for 1 second"
    await left(server)


@pytest.mark.parametrize("data", [b"x" * 65_536, b": ping\n" * 10_000, b"\n" * 65_536])
async def test_it_ends_an_answer_that_does_not_end(stage: Stage, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(recording, "MOST_RECEIVED", 1_000_000)
    with scripted(floods(data)) as (server, url):
        ended = await stage.take(small(url, retries=0), "Hello")
    assert ended.status == "failed"
    await left(server)


async def test_it_leaves_a_stalled_model_when_its_turn_is_cancelled(stage: Stage) -> None:
    with scripted(stalls("Well, ")) as (server, url):
        taken = asyncio.create_task(stage.take(small(url), "Hello"))
        await asyncio.to_thread(server.seen.wait)
        taken.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taken
        await left(server)


async def test_it_goes_on_after_a_crash_left_calls_without_an_answer(stage: Stage) -> None:
    turn = await stage.turn("First")
    scene = await stage.scene(turn)
    both = [{"id": "a", "name": "read_file", "arguments": {}}, {"id": "b", "name": "write_file", "arguments": {}}]
    await scene.say(Role.ASSISTANT, "", meta={"tool_calls": both})
    await scene.say(Role.TOOL, "read", tool_call_id="a")
    await scene.say(Role.TOOL, "of nobody", tool_call_id="c")
    await in_thread(WRITERS, lambda: turns.interrupt("the server ended", HERE))
    with scripted(says("On.")) as (server, url):
        ended = await stage.take(small(url), "Go on")
    assert ended.answer == "On."
    *_, called, read, written, _again = server.asked[0]["messages"]
    assert [call["id"] for call in called["tool_calls"]] == ["a", "b"]
    assert (read["tool_call_id"], read["content"]) == ("a", "read")
    assert written["tool_call_id"] == "b" and written["content"].startswith("Error: the turn was interrupted")


async def test_it_leaves_old_results_out_when_the_context_is_nearly_full(stage: Stage) -> None:
    (Path(stage.agent.cwd) / "long.txt").write_text("word " * 12_000)
    reads = [calls(("read_file", {"path": "long.txt"})) for _ in range(4)]
    with scripted(*reads, says("Read.")) as (server, url):
        ended = await stage.take(small(url, context_tokens=60_000), "Read it four times")
    assert ended.answer == "Read."
    results = [message["content"] for message in server.asked[-1]["messages"] if message["role"] == "tool"]
    assert [len(result) > 1_000 for result in results] == [False, True, True, True]


async def test_it_folds_a_very_large_context_in_parts_before_its_turn(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted(says("word " * 2_000)) as (_server, url):
        for number in range(6):
            await stage.take(small(url), f"Question {number}")
    monkeypatch.setattr(transcript, "AT_ONCE", 4_000)
    monkeypatch.setattr(contexts, "is_nearly_full", lambda agent: True)
    with scripted(says("Yes.")) as (server, url):
        ended = await stage.take(small(url), "Still there?")
    assert ended.answer == "Yes."
    system, *rest = server.asked[0]["messages"]
    assert system["content"].count("Summary of what was said") == 1 and "user: Question 4" in system["content"]
    assert [message["content"] for message in rest if message["role"] == "user"] == ["Question 5", "Still there?"]


async def test_it_needs_the_key_that_its_runner_names(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SMALL_KEY", raising=False)
    turn = await stage.turn("Hello")
    with scripted(says("ok")) as (_server, url), pytest.raises(RunnerFailed, match="no SMALL_KEY in its environment"):
        await take(small(url, api_key_env="SMALL_KEY"), await stage.scene(turn))


def test_it_says_what_to_install_before_anything_starts(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    home = CoreSettings.current().home
    home.mkdir(exist_ok=True)
    (home / runners_file.FILE).write_text('[runners.small]\nkind = "model"\nmodel = "openai:small"\n')
    assert runners_file.runners().named(None).name == "small"
    runners_file._read.cache_clear()
    monkeypatch.setattr(runners_file, "find_spec", lambda name: None)
    with pytest.raises(NexusError, match="needs the extra models: "):
        runners_file.read_runners(home / runners_file.FILE)


async def test_it_refuses_a_provider_that_there_is_not(stage: Stage) -> None:
    runner = small("http://127.0.0.1:9/v1").model_copy(update={"base_url": None, "model": "nobody:small"})
    turn = await stage.turn("Hello")
    with pytest.raises(RunnerFailed, match="cannot use nobody:small"):
        await take(runner, await stage.scene(turn))


async def test_it_logs_the_traffic_of_agents_apart_and_strikes_keys(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMALL_KEY", KEY)

    def echoes(handler: Any) -> None:
        says(f"{handler.headers['authorization']} ", handler.body["messages"][-1]["content"])(handler)

    agents = await in_thread(WRITERS, lambda: [Stage(created(f"agent-{n}", tmp_path)) for n in range(5)])
    with scripted(echoes) as (_server, url):
        runner = small(url, api_key_env="SMALL_KEY")
        ended = await asyncio.gather(*(each.take(runner, f"I am {each.agent.agent_id}.") for each in agents))
    assert all(KEY in (each.answer or "") for each in ended)
    for each in agents:
        log = (CoreSettings.current().home / "logs" / "pool" / f"{each.agent.agent_id}.jsonl").read_text()
        lines = [json.loads(line) for line in log.splitlines()]
        assert [line["what"] for line in lines][:2] == ["request", "response"]
        assert KEY not in log and "Bearer ***" in log
        others = {other.agent.agent_id for other in agents} - {each.agent.agent_id}
        assert f"I am {each.agent.agent_id}." in log
        assert not any(f"I am {other}." in log for other in others)


async def test_a_key_is_struck_before_what_holds_it_is_cut(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMALL_KEY", KEY)
    monkeypatch.setattr(model, "LONGEST_QUOTE", 25)  # in the middle of the key
    with scripted(refuses(400, KEY)) as (_server, url):
        ended = await stage.take(small(url, api_key_env="SMALL_KEY"), "Hello")
    assert ended.why and "'message': '" in ended.why and KEY[:3] not in ended.why


async def test_lines_that_came_together_are_logged_at_once(stage: Stage) -> None:
    with scripted(sends(b": ping\n" * 50_000)) as (_server, url):
        await stage.take(small(url, retries=0), "Hello")
    log = (CoreSettings.current().home / "logs" / "pool" / "ann.jsonl").read_text()
    assert log.count(": ping") == 50_000 and log.count("\n") < 1_000


async def test_it_keeps_the_log_of_an_agent_within_bounds(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "LARGEST_FILE", 300_000)
    with scripted(says("word " * 1_000)) as (_server, url):
        for _ in range(8):
            await stage.take(small(url), "word " * 1_000)
    kept = sorted((CoreSettings.current().home / "logs" / "pool").iterdir())
    assert [path.name for path in kept] == ["ann.jsonl", "ann.jsonl.1"]
    assert all(path.stat().st_size < 300_000 + traffic.LONGEST for path in kept)
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in kept)
