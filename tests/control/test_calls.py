"""What calls of an agent answer over JSON-RPC: waits, cancels, repeats, and clients that go away."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from coordination.models import Event
from nexus.client.jsonrpc import INVALID_PARAMS
from nexus.control.agents import pool, transcript, turns
from nexus.control.models import PoolAgent, Role, Turn, TurnStatus
from nexus.control.rpc.endpoint import ENDPOINT
from nexus.control.toolset import CONTROL
from nexus.core import waiting
from nexus.core.clock import now
from nexus.core.database.store import store, write
from nexus.core.operations import dispatch
from nexus_site.serving.bounds import Bounded
from tests.conftest import OPERATOR
from tests.control.wire import TOKEN, Wire, request
from tests.core.waiting import LONG, parked

WAITING = 40  # more than the requests that the published system serves at once


def done(answer: str) -> None:
    """Take the turn that waited longest, as a worker does, and end it."""
    turn = turns.claim(Turn.objects.open().order_by("turn_id")[0].pk)
    assert turn is not None
    with write():
        meta = {"tool_calls": [{"id": "1", "name": "read_file", "arguments": {}}]}
        transcript.append(turn.agent, turn, Role.ASSISTANT, "", moment=now(), meta=meta)
        transcript.append(turn.agent, turn, Role.TOOL, "text " * 100, moment=now(), tool_call_id="1")
        transcript.append(turn.agent, turn, Role.ASSISTANT, answer, moment=now())
    turns.settle_turn(turn, turns.Ended(TurnStatus.DONE, answer, iterations=2))


class Client:
    """A connection that may close in the middle."""

    def __init__(self, path: str, message: dict[str, Any]) -> None:
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[dict[str, Any]] = []
        self.incoming.put_nowait({"type": "http.request", "body": json.dumps(message).encode(), "more_body": False})
        headers = [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {TOKEN}".encode())]
        scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
        self.task = asyncio.ensure_future(
            Bounded(ENDPOINT.alone)({**scope, "client": ("127.0.0.1", 1)}, self.incoming.get, self._send)  # type: ignore
        )

    async def _send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    def leave(self) -> None:
        self.incoming.put_nowait({"type": "http.disconnect"})

    async def answer(self) -> Any:
        await asyncio.wait_for(self.task, LONG)
        return json.loads(b"".join(message.get("body", b"") for message in self.sent))


async def settled() -> None:
    """Return once what was handed to the writers is done, and what is handed to them on account of that."""
    threads = store().WRITERS
    for _ in range(10):
        together = threading.Barrier(threads)  # met by all of them: none is at work
        meet = partial(together.wait, LONG)
        await asyncio.gather(*(waiting.in_thread(waiting.writing_calls(), meet) for _ in range(threads)))
        await waiting.in_thread(waiting.WRITERS, lambda: None)


@pytest.fixture
def agent(rpc: Wire, tmp_path: Path) -> str:
    """The path of an agent."""
    url: str = rpc.call("create_agent", agent_id="a", cwd=str(tmp_path))["url"]
    return url


async def test_a_list_waits_for_no_turn(rpc: Wire, agent: str) -> None:
    clients = [Client(agent, request("send", {"content": "x"})) for _ in range(WAITING)]
    await parked(WAITING)
    listed = json.loads((await rpc.araw(body=json.dumps(request("list_agents")).encode())).body)
    assert [row["agent_id"] for row in listed["result"]["agents"]] == ["a"]
    assert not any(client.task.done() for client in clients)
    for client in clients:
        client.leave()
    await asyncio.gather(*(client.task for client in clients))


async def test_a_send_answers_when_its_turn_is_done(rpc: Wire, agent: str) -> None:
    client = Client(agent, request("send", {"content": "x", "request_id": "r"}))
    await parked()
    await sync_to_async(done)("y")
    result = (await client.answer())["result"]
    assert result == {"content": "y", "request_id": "r", "halted_at_iteration_limit": False}


async def test_a_cancel_answers_both_who_asks_and_who_waits(rpc: Wire, agent: str) -> None:
    client = Client(agent, request("send", {"content": "x", "request_id": "r"}))
    await parked()
    cancel = json.dumps(request("cancel", {"request_id": "r"})).encode()
    assert (await rpc.araw(agent, cancel)).json["result"] == {"cancelled": True, "request_id": "r"}
    assert (await client.answer())["result"] == {"cancelled": True, "request_id": "r"}
    again = (await rpc.araw(agent, cancel)).json["result"]
    assert again == {"cancelled": False, "request_id": "r", "reason": "not_found_or_completed"}


@pytest.mark.parametrize(
    ("asked", "status"),
    [({}, "queued"), ({"on_disconnect": "leave"}, "queued"), ({"on_disconnect": "cancel"}, "cancelled")],
    ids=str,
)
async def test_a_client_that_goes_away_leaves_its_turn_or_takes_it_along(
    rpc: Wire, agent: str, asked: dict[str, Any], status: str
) -> None:
    client = Client(agent, request("send", {"content": "x", **asked}))
    await parked()
    client.leave()
    await asyncio.wait_for(client.task, LONG)
    await settled()
    assert (await Turn.objects.aget()).status == status


async def test_a_client_that_goes_away_while_its_turn_is_being_stored_takes_it_along(
    rpc: Wire, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The race: the turn is made after the connection has closed."""
    loop, reached, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    send = turns.send

    def slow(*args: Any, **kwargs: Any) -> Turn:
        loop.call_soon_threadsafe(reached.set)
        assert go_on.wait(LONG)
        return send(*args, **kwargs)

    monkeypatch.setattr(turns, "send", slow)
    client = Client(agent, request("send", {"content": "x", "on_disconnect": "cancel"}))
    await asyncio.wait_for(reached.wait(), LONG)
    client.leave()
    await asyncio.wait_for(client.task, LONG)
    go_on.set()
    await settled()
    assert (await Turn.objects.aget()).status == TurnStatus.CANCELLED


async def test_a_client_that_was_answered_takes_nothing_along(rpc: Wire, agent: str) -> None:
    client = Client(agent, request("send", {"content": "x", "on_disconnect": "cancel", "timeout_seconds": 0}))
    assert (await client.answer())["result"]["status"] == "queued"
    client.leave()
    await settled()
    assert (await Turn.objects.aget()).status == TurnStatus.QUEUED


@pytest.mark.parametrize("request_id", ["r", "7", 7, -1])
def test_the_same_request_id_is_the_same_turn_and_keeps_its_cancel(
    rpc: Wire, agent: str, request_id: str | int
) -> None:
    sent: dict[str, Any] = {"content": "x", "request_id": request_id, "timeout_seconds": 0}
    first = rpc.call("send", agent, **sent)
    assert (first["request_id"], type(first["request_id"])) == (request_id, type(request_id))
    assert rpc.call("send", agent, **sent) == first
    assert rpc.refused("send", agent, **{**sent, "content": "y"})["code"] == INVALID_PARAMS
    assert Turn.objects.count() == 1
    assert rpc.call("cancel", agent, request_id=request_id)["cancelled"] is True
    assert rpc.call("send", agent, **sent) == {"cancelled": True, "request_id": request_id}


def test_messages_show_the_tool_calls(rpc: Wire, agent: str) -> None:
    rpc.call("send", agent, content="x", timeout_seconds=0)
    done("y")
    page = rpc.call("get_messages", agent)
    assert (page["agent_id"], page["total"], page["offset"], page["limit"]) == ("a", 4, 0, 200)
    user, calls, result, answer = page["messages"]
    assert [row["role"] for row in page["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert [row["index"] for row in page["messages"]] == [0, 1, 2, 3]
    assert calls["meta"]["tool_calls"][0]["id"] == result["tool_call_id"] == "1"
    assert (user["content"], answer["content"], answer["tool_call_id"]) == ("x", "y", None)
    assert rpc.call("get_messages", agent, offset=3, limit=2000)["messages"] == [answer]
    assert rpc.call("get_messages", agent, offset=9)["messages"] == []


def test_a_page_of_long_messages_is_shorter(rpc: Wire, agent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript, "LARGEST_PAGE", 100)
    for _ in range(3):
        rpc.call("send", agent, content="word " * 60, timeout_seconds=0)
        done("short")
    pages = [[message["index"] for message in rpc.call("get_messages", agent, offset=at)["messages"]] for at in (0, 2)]
    assert pages[0] == [0, 1] and pages[1][0] == 2
    assert rpc.call("get_messages", agent)["total"] == 12


def test_compact_answers_what_it_did(rpc: Wire, agent: str) -> None:
    assert rpc.call("compact", agent) == {"compacted": False, "reason": "nothing_to_compact"}
    for number in range(4):
        rpc.call("send", agent, content=f"question {number}", timeout_seconds=0)
        done("y")
    assert rpc.call("compact", agent, force=False) == {"compacted": False, "reason": "nothing_to_compact"}
    compacted = rpc.call("compact", agent)
    assert compacted["compacted"] is True
    assert compacted["tokens_saved"] == compacted["tokens_before"] - compacted["tokens_after"] > 0
    assert rpc.call("get_tokens", agent)["total"] == compacted["tokens_after"]


def test_it_compacts_one_message_that_fills_the_context(rpc: Wire, agent: str) -> None:
    for content in ("one", "x" * 1_000_000, "two"):
        rpc.call("send", agent, content=content, timeout_seconds=0)
        done("y")
    assert rpc.call("compact", agent)["tokens_after"] < 1_000
    kept = [message["content"] for message in rpc.call("get_messages", agent)["messages"]]
    assert {"one", "two"} < set(kept) and any("user: xxx" in content for content in kept)


@pytest.mark.parametrize("content", ["x" * 1_048_000, "," * 1_048_000], ids=["letters", "commas"])
def test_a_message_may_fill_the_whole_request(rpc: Wire, agent: str, content: str) -> None:
    sent = rpc.call("send", agent, content=content, timeout_seconds=0)
    done("y")
    assert rpc.call("send", agent, content=content, request_id=sent["request_id"])["content"] == "y"
    assert len(rpc.call("get_messages", agent)["messages"][0]["content"]) == 1_048_000


def test_tokens_and_context_have_every_field_of_the_contract(rpc: Wire, agent: str) -> None:
    tokens = rpc.call("get_tokens", agent)
    assert set(tokens) == set("system tools messages total budget available remaining".split())
    context = rpc.call("get_context", agent)
    assert context == {
        "message_count": 0,
        "system_prompt": False,
        "halted_at_iteration_limit": False,
        "last_iteration_count": 0,
        "max_tool_iterations": 50,
    }


def test_a_list_has_every_field_of_the_contract(rpc: Wire, agent: str, tmp_path: Path) -> None:
    rpc.call("create_agent", agent_id=".t", preset="trusted", cwd=str(tmp_path))
    first, temporary = rpc.call("list_agents")["agents"]
    fields = "agent_id is_temp created_at message_count should_shutdown parent_agent_id child_count"
    fields += " halted_at_iteration_limit model last_action_at permission_level cwd write_paths"
    assert set(first) == set(fields.split())
    assert (first["is_temp"], first["permission_level"], first["write_paths"]) == (False, "sandboxed", [])
    assert (temporary["is_temp"], temporary["write_paths"]) == (True, [str(tmp_path)]), "a list, never null"


def test_create_tells_of_its_first_turn(rpc: Wire, tmp_path: Path) -> None:
    made = rpc.call("create_agent")
    assert len(made["agent_id"]) == 8 and int(made["agent_id"], 16) >= 0
    assert made == {"agent_id": made["agent_id"], "url": f"/agent/{made['agent_id']}"}
    made = rpc.call("create_agent", agent_id="b", initial_message="x")
    assert set(made) == {"agent_id", "url", "initial_request_id", "initial_status"}
    assert made["initial_status"] == "queued"


async def test_create_may_wait_for_its_first_answer(rpc: Wire) -> None:
    asked = {"agent_id": "b", "initial_message": "x", "wait_for_initial_response": True}
    client = Client("/rpc", request("create_agent", asked))
    await parked()
    await sync_to_async(done)("y")
    result = (await client.answer())["result"]
    assert (result["agent_id"], result["url"], result["response"]["content"]) == ("b", "/agent/b", "y")


async def test_create_waits_for_its_first_answer_as_long_as_it_was_told(rpc: Wire) -> None:
    asked = {"agent_id": "b", "initial_message": "x", "wait_for_initial_response": True, "timeout_seconds": 0.01}
    result = (await Client("/rpc", request("create_agent", asked)).answer())["result"]
    assert (result["agent_id"], result["initial_status"]) == ("b", "queued")
    assert (await Turn.objects.aget()).request_id == result["initial_request_id"]


def test_the_pool_and_the_queue_of_an_agent_are_bounded(
    rpc: Wire, agent: str, tmp_path: Path, configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(control=True, pool_agents=2)
    monkeypatch.setattr(turns, "QUEUE", 2)
    rpc.call("create_agent", agent_id="b", cwd=str(tmp_path))
    error = rpc.refused("create_agent", agent_id="c", cwd=str(tmp_path))
    assert (error["code"], error["data"]) == (-32001, {"code": "POOL_FULL"})
    rpc.call("destroy_agent", agent_id="b")
    rpc.call("create_agent", agent_id="c", cwd=str(tmp_path))
    for _ in range(2):
        rpc.call("send", agent, content="x", timeout_seconds=0)
    error = rpc.refused("send", agent, content="x", timeout_seconds=0)
    assert (error["code"], error["data"]) == (-32001, {"code": "POOL_FULL"})
    done("one")
    rpc.call("send", agent, content="x", timeout_seconds=0)


def test_a_name_is_taken_once(rpc: Wire, agent: str) -> None:
    assert rpc.refused("create_agent", agent_id="a")["code"] == INVALID_PARAMS
    rpc.call("destroy_agent", agent_id="a")
    assert rpc.post(agent, request("get_context")).status == 404
    rpc.call("create_agent", agent_id="a")
    assert PoolAgent.objects.living().count() == 1


def test_an_agent_that_may_go_still_answers(rpc: Wire, agent: str) -> None:
    rpc.call("create_agent", agent_id="b")
    assert rpc.call("shutdown", agent) == {"success": True}
    assert [row["should_shutdown"] for row in rpc.call("list_agents")["agents"]] == [True, False]
    assert rpc.call("send", agent, content="x", timeout_seconds=0)["status"] == "queued"


def test_the_server_is_asked_to_end_once_all_that_there_are_may_go(rpc: Wire, agent: str) -> None:
    def asked() -> int:
        return Event.objects.filter(type=pool.END_ASKED).count()

    for name in ("b", "c"):
        rpc.call("create_agent", agent_id=name)
    rpc.call("shutdown", agent)
    rpc.call("destroy_agent", agent_id="b")
    assert not asked(), "one may not go"
    rpc.call("destroy_agent", agent_id="c")
    assert asked() == 1
    rpc.call("destroy_agent", agent_id="a")
    assert asked() == 1, "none is there, and none was told that it may go"


def test_no_agent_ends_the_server_of_its_own_accord(rpc: Wire) -> None:
    def asked() -> int:
        return Event.objects.filter(type=pool.END_ASKED).count()

    def acting(name: str, method: str, path: str, **params: Any) -> Any:
        return rpc.post(path, request(method, params), headers=[("x-nexus-agent", name)]).json["result"]

    rpc.call("create_agent", agent_id="lead", preset="trusted")
    rpc.call("create_agent", agent_id="child", preset="worker", parent_agent_id="lead")
    for agent_id, path in (("child", "/agent/child"), ("lead", "/agent/lead"), ("lead", "/agent/child")):
        assert acting(agent_id, "shutdown", path) == {"success": True}
    assert [row["should_shutdown"] for row in rpc.call("list_agents")["agents"]] == [True, True] and not asked()
    rpc.call("shutdown", "/agent/lead")
    assert not asked(), "the child's word is its own"
    assert acting("lead", "destroy_agent", "/rpc", agent_id="child")["success"]
    assert not asked(), "an agent that ends another does not end the server, either"
    rpc.call("create_agent", agent_id="b")
    rpc.call("destroy_agent", agent_id="b")
    assert asked() == 1, "operators said so of all that there are"


def test_the_end_of_a_server_is_refused_where_none_runs_the_pool(rpc: Wire) -> None:
    def asked() -> bool:
        return Event.objects.filter(type=pool.END_ASKED).exists()

    assert rpc.refused("shutdown_server")["data"]["code"] == "POOL_OFF" and not asked()
    running = store().exclusive_lock(pool.SERVER)
    assert running is not None
    assert rpc.call("shutdown_server")["success"] and asked()
    running.release()


def test_a_hub_without_a_pool_says_so(db: None) -> None:
    """The operations are there; the pool is not."""
    error = dispatch.run(CONTROL, OPERATOR, "pool_list_agents", {})["error"]
    assert error["code"] == "POOL_OFF" and "NEXUS_CONTROL=true" in error["message"]
