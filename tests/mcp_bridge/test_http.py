"""`/mcp` as an ASGI application, before a request comes to the SDK."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import OperationalError
from sse_starlette.sse import EventSourceResponse

from coordination.toolset import arun
from mcp_bridge import choices, http, server, sessions
from mcp_bridge.presence import PRESENCE
from mcp_bridge.subscriptions import MOST_OF_AGENT, Pushes
from nexus.core.database.sql import is_on_loop
from nexus.core.operations.caller import Caller
from nexus.core.operations.registry import Choice
from nexus.core.waiting import WRITERS, in_thread
from tests.acceptance.hub import START_SECONDS
from tests.acceptance.processes import HELLO

HOUR = 3600


async def test_it_answers_in_the_envelope_where_who_asks_cannot_be_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any, **how: Any) -> Any:
        raise OperationalError("disk I/O error")

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    sent: list[Any] = []
    monkeypatch.setattr(http, "identify", fails)
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": [], "query_string": b""}
    await http.McpEndpoint()(scope, receive, send)
    start, body = sent
    assert start["status"] == 503
    assert json.loads(body["body"])["error"]["code"] == "DB_ERROR"


class Endpoint:
    """`/mcp` as ann's client meets it, message by message."""

    def __init__(self, api_key: str) -> None:
        self.application = http.McpEndpoint()
        self._key, self._started = api_key.encode(), False

    async def begin(self, method: str, body: Any, *more: tuple[bytes, bytes]) -> tuple[asyncio.Task[None], Any]:
        """The request, and what it is answered."""
        asked, answered = asyncio.Queue[Any](), asyncio.Queue[Any]()
        asked.put_nowait({"type": "http.request", "body": json.dumps(body).encode()})
        accepted = (b"accept", b"text/event-stream, application/json")
        headers = [(b"x-api-key", self._key), accepted, (b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": method, "path": "/mcp", "headers": [*headers, *more], "query_string": b""}
        if not self._started:
            self._started = True
            await self.application.start()
        return asyncio.create_task(self.application(scope, asked.get, answered.put)), answered

    async def session(self) -> tuple[bytes, bytes]:
        """The header of a new session."""
        initialized, answers = await self.begin("POST", HELLO)
        session = dict((await answers.get())["headers"])[b"mcp-session-id"]
        await initialized
        return b"mcp-session-id", session

    async def subscribe(self, *session: tuple[bytes, bytes]) -> Any:
        """The answer to a session that subscribes to ann's inbox."""
        body = {"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": {"uri": "nexus://inbox/ann"}}
        subscribed, answers = await self.begin("POST", body, *session)
        await subscribed
        await answers.get()
        return json.loads((await answers.get())["body"])

    async def call(self, tool: str, *more: tuple[bytes, bytes], **arguments: Any) -> Any:
        """What a tool answers, in one body."""
        params = {"name": tool, "arguments": {"agent_id": "ann", **arguments}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        called, answers = await self.begin("POST", body, *more)
        await called
        assert (await answers.get())["status"] == 200
        return json.loads((await answers.get())["body"])["result"]["structuredContent"]


@pytest.fixture
async def endpoint(committed: None) -> AsyncIterator[Endpoint]:
    created = await arun(Caller("test", operator="olga"), "agent_create", {"agent_id": "ann"})
    endpoint = Endpoint(created["data"]["api_key"])
    async with asyncio.timeout(START_SECONDS):
        yield endpoint
        await endpoint.application.stop()


async def test_a_silent_streams_first_ping_comes_soon_after_its_beginning(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "FIRST_PING_SECONDS", 0)
    monkeypatch.setattr(EventSourceResponse, "DEFAULT_PING_INTERVAL", HOUR)
    stream, answers = await endpoint.begin("GET", None, await endpoint.session())
    assert (await answers.get())["status"] == 200
    assert [(await answers.get())["body"] for _ in range(2)] == [b": open\n\n", b": ping\n\n"]
    stream.cancel()
    await asyncio.gather(stream, return_exceptions=True)


async def test_an_agent_is_present_as_long_as_its_stream_is_open(endpoint: Endpoint, project: str) -> None:
    session = await endpoint.session()
    assert PRESENCE.queues() == []
    stream, answers = await endpoint.begin("GET", None, session)
    assert (await answers.get())["status"] == 200
    assert PRESENCE.claim(*PRESENCE.queues()) == ({"ann"}, set())
    joined = await endpoint.call("join", session, project_root=project)
    assert PRESENCE.claim(*PRESENCE.queues()) == ({"ann"}, {joined["data"]["session_id"]})
    opened = await endpoint.call("session_open", session, agent_id="ann", workspace_id=joined["data"]["workspace_id"])
    both = {joined["data"]["session_id"], opened["data"]["session_id"]}
    assert PRESENCE.claim(*PRESENCE.queues()) == ({"ann"}, both)
    stream.cancel()
    await asyncio.gather(stream, return_exceptions=True)
    assert PRESENCE.queues() == []


async def test_an_update_that_no_stream_takes_is_no_evidence(
    endpoint: Endpoint, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send() -> str:
        """A message to ann, once its update was passed to the SDK."""
        sent.clear()
        mail = {"project_root": project, "from_agent_id": "olga", "subject": "s", "body": "b"}
        answer = await arun(lead, "message_create", {**mail, "target": {"strategy": "direct", "agent_id": "ann"}})
        await sent.wait()
        await in_thread(WRITERS, lambda: None)  # what is recorded of it
        return str(answer["data"]["message_id"])

    async def noticed(message_id: str) -> Any:
        answer = await arun(lead, "message_receipts", {"message_id": message_id})
        return answer["data"]["receipts"][0]["stages"][1]

    class Pushed(Pushes):
        def sent(self, *given: Any) -> None:
            super().sent(*given)
            asyncio.get_running_loop().call_soon(sent.set)  # after the task that records it has begun

    monkeypatch.setattr(server, "Pushes", Pushed)
    sent, lead, session = asyncio.Event(), Caller("test", operator="olga"), await endpoint.session()
    await arun(lead, "agent_register", {"agent_id": "olga"})
    assert "result" in await endpoint.subscribe(session)
    assert not (await noticed(await send()))["reached"]
    stream, answers = await endpoint.begin("GET", None, session)
    assert (await answers.get())["status"] == 200
    assert (await answers.get())["body"] == b": open\n\n"
    assert (await noticed(await send()))["evidence"] == [f"push over MCP to mcp:{session[1].decode()}"]
    stream.cancel()
    await asyncio.gather(stream, return_exceptions=True)


async def test_a_session_works_whose_first_request_failed(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its agent's toolsets are read where the store may be asked: on an event loop PostgreSQL may not."""
    from_agent = choices.from_agent

    def as_on_postgresql(agent_id: str) -> Choice:
        if is_on_loop():
            raise SynchronousOnlyOperation
        return from_agent(agent_id)

    monkeypatch.setattr(choices, "from_agent", as_on_postgresql)
    refused, answers = await endpoint.begin("POST", {**HELLO, "params": {}})
    session = b"mcp-session-id", dict((await answers.get())["headers"])[b"mcp-session-id"]
    await refused
    begun, _ = await endpoint.begin("POST", HELLO, session)
    await begun
    assert (await endpoint.call("inbox_count", session))["ok"]


@pytest.mark.parametrize("ended", ["by its client", "beyond its agent's share", "idle"])
async def test_a_sessions_subscriptions_end_with_it(
    endpoint: Endpoint, ended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent may have only so many: those of sessions that are over would lock it out."""
    if ended == "idle":
        monkeypatch.setattr(sessions, "IDLE_SECONDS", 0)
        monkeypatch.setattr(sessions, "MAX_SESSIONS", 2 * MOST_OF_AGENT)
    for number in range(MOST_OF_AGENT + 1):
        session = await endpoint.session()
        assert "result" in await endpoint.subscribe(session), number
        if ended == "by its client":
            await (await endpoint.begin("DELETE", None, session))[0]
        await asyncio.sleep(0)  # its timers are due


async def test_a_session_keeps_the_toolsets_that_it_began_with(endpoint: Endpoint) -> None:
    async def tools(*session: tuple[bytes, bytes]) -> set[str]:
        listed, answers = await endpoint.begin("POST", {"jsonrpc": "2.0", "id": 3, "method": "tools/list"}, *session)
        await listed
        await answers.get()
        return {tool["name"] for tool in json.loads((await answers.get())["body"])["result"]["tools"]}

    session = await endpoint.session()
    before = await tools(session)
    await arun(Caller("test", operator="olga"), "agent_update", {"agent_id": "ann", "toolsets": ["topics"]})
    assert "sync" not in before
    assert await tools(session) == before
    assert "sync" in await tools(await endpoint.session())
