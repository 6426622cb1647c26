"""The hub's end of relays, in the test's own process."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from coordination.services import agent_limits
from coordination.toolset import arun
from mcp_bridge import relay, relay_server, stdio
from mcp_bridge.relay import DIRECTORY, PROTOCOL, SOCKET
from nexus.core.access import holder_of
from nexus.core.config import Resolved
from nexus.core.fairness import SHARE, CallSlot, call_slots
from nexus.core.operations.caller import Caller
from nexus.core.time_limit import OutOfTime, time_limit
from nexus_site.launch import APPS
from tests.acceptance.hub import START_SECONDS
from tests.acceptance.processes import HELLO, READY

pytestmark = pytest.mark.usefixtures("starts_processes")


@pytest.fixture
def home(tmp_path: Path, settings: Settings, committed: None) -> Path:
    settings.NEXUS = settings.NEXUS.replaced(home=tmp_path)
    return tmp_path


@pytest.fixture
def hello(home: Path, settings: Settings) -> dict[str, Any]:
    """What a relay of this process would say, without settings of its own."""
    return relay.hello_of(Resolved(settings.NEXUS, {}), APPS)


@asynccontextmanager
async def serving(home: Path) -> AsyncIterator[None]:
    """A hub that takes relays in."""
    task = asyncio.create_task(relay_server.serve())
    address = home / DIRECTORY / SOCKET
    while not address.exists():
        await asyncio.sleep(0.01)
        assert not task.done()
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not address.exists()


class Client:
    """A relay that is connected, from the side of its client."""

    def __init__(self, connection: socket.socket, welcome: dict[str, Any]) -> None:
        self.welcome = welcome
        self._connection = connection
        self._file = connection.makefile("rb")

    async def say(self, *messages: Any) -> None:
        await asyncio.to_thread(self._connection.sendall, b"".join(json.dumps(m).encode() + b"\n" for m in messages))

    async def hear(self) -> Any:
        """The next message; what the hub says to the relay is left out."""
        async with asyncio.timeout(START_SECONDS):
            while (line := await asyncio.to_thread(self._file.readline)).startswith(relay.CONTROL):
                pass
        return json.loads(line) if line else None

    async def call(self, number: int, name: str, arguments: dict[str, Any]) -> None:
        params = {"name": name, "arguments": arguments}
        await self.say({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})

    def close(self) -> None:
        self._file.close()
        self._connection.close()


async def connected(home: Path, hello: dict[str, Any]) -> Client:
    connection, welcome, rest = await asyncio.to_thread(partial(relay.connect, home, hello, None))
    assert not rest
    connection.settimeout(START_SECONDS)
    return Client(connection, welcome)


async def test_one_connection_too_many_is_told_so(
    home: Path, hello: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_server, "MOST_CONNECTIONS", 1)
    async with serving(home):
        first = await connected(home, hello)
        second = await connected(home, hello)
        assert first.welcome["nexus"] == "welcome"
        assert (second.welcome["nexus"], second.welcome["code"]) == ("refused", "CONFIG_ERROR")
        first.close()
        second.close()


async def silent(home: Path) -> socket.socket:
    """A connection that says nothing."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(START_SECONDS)
    with relay.address(home) as path:
        await asyncio.to_thread(connection.connect, path)
    return connection


async def test_connections_that_say_nothing_take_no_agents_place_and_of_too_many_the_oldest_goes(
    home: Path, hello: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_server, "MOST_CONNECTIONS", 2)
    async with serving(home):
        held = [await silent(home) for _ in range(3)]
        clients = [await connected(home, hello) for _ in range(2)]
        assert [client.welcome["nexus"] for client in clients] == ["welcome", "welcome"]
        assert await asyncio.to_thread(held[0].recv, 1) == b""
        for client in clients:
            client.close()
        for connection in held:
            connection.close()


def shouted(connection: socket.socket, said: bytes) -> bytes:
    """What a connection answers to who says this and nothing more."""
    heard = b""
    with connection, suppress(OSError):
        connection.settimeout(START_SECONDS)
        connection.sendall(said)
        connection.shutdown(socket.SHUT_WR)
        while piece := connection.recv(1000):
            heard += piece
    return heard


async def test_without_unix_sockets_agents_serve_themselves(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(socket, "AF_UNIX")
    await relay_server.serve()
    assert "Agents on stdio serve themselves: there is no socket in" in caplog.text
    with pytest.raises(relay.NoHub):
        relay.connect(home, {}, None)


UNLIKE: list[dict[str, Any]] = [
    *({"protocol": PROTOCOL + 1}, {"protocol": None}, {"apps": [*APPS, "another"]}, {"namespace": "mnt:[1]"}),
    *({"process": 1}, {"place": "/elsewhere/nexus.db"}),
    *({"settings": {"durability": "another"}}, {"settings": {"unknown": "1"}}),
]


async def test_who_is_not_as_the_hub_is_serves_itself(home: Path, hello: dict[str, Any]) -> None:
    async with serving(home):
        for change in UNLIKE:
            client = await connected(home, {**hello, **change})
            assert client.welcome["nexus"] == "elsewhere" and client.welcome["message"].startswith("The hub "), change
            client.close()


NO_RELAYS = [
    *(b"", b"\n", b"GET / HTTP/1.1\r\n\r\n", b"[" * 200_000 + b"\n", b'{"nexus":"hello"', b"\xff\xfe\n"),
    b'{"nexus":"hello","protocol":1}\n',
    b'{"nexus":"hello","protocol":1,"state":{"opened":[7],"apps":{"topics":[1]}}}\n',
    b"x" * 5_000_000,
]


async def test_what_is_no_relay_gets_no_answer(
    home: Path, hello: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(home):
        for said in NO_RELAYS:
            heard = await asyncio.to_thread(shouted, await silent(home), said)
            assert heard == b"" or b'"protocol":1' not in said, "nobody is told anything, but who is of another version"
        client = await connected(home, hello)
        assert client.welcome["nexus"] == "welcome"
        client.close()
    assert not caplog.records


async def test_a_relay_that_left_before_it_was_welcomed_is_no_error(
    home: Path, hello: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """It gave up while the hub could accept nobody; the hub then writes to a closed connection."""
    async with serving(home):
        with socket.socket(socket.AF_UNIX) as left, relay.address(home) as path:
            left.connect(path)  # the hub runs on this loop, and accepts later
            left.sendall(json.dumps(hello).encode() + b"\n")
        client = await connected(home, hello)
        assert client.welcome["nexus"] == "welcome"
        client.close()
    assert not caplog.records


async def test_a_hub_that_lacks_files_now_and_then_says_so_once(
    home: Path, hello: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And serves who was connected before."""
    monkeypatch.setattr(relay_server, "PAUSE_SECONDS", 0.01)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with serving(home):
        before = await connected(home, hello)
        await before.say(HELLO, READY)
        await before.hear()
        await before.call(0, "agent_register", {"agent_id": "ann"})
        assert (await before.hear())["id"] == 0
        for number in range(1, 4):
            with socket.socket(socket.AF_UNIX) as silent, relay.address(home) as path:
                free = os.dup(silent.fileno())
                os.close(free)
                resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
                try:
                    silent.connect(path)
                    for _ in range(100):  # the hub, which runs on this loop, cannot accept it
                        await asyncio.sleep(0)
                    await before.call(number, "agent_register", {"agent_id": "ann"})
                    answer = await before.hear()
                    assert answer["id"] == number and answer["result"]["structuredContent"]["ok"]
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                client = await connected(home, hello)
                client.close()
        before.close()
    assert [record.args for record in caplog.records] == [("Too many open files",)]


async def test_half_a_line_of_a_relay_that_was_killed_is_no_call(
    home: Path, hello: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    params = {"name": "agent_register", "arguments": {"agent_id": "ann"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    async with serving(home):
        for part in (line[: len(line) // 2], line):  # a whole message without the line's end is half a line, too
            killed = await connected(home, hello)
            await killed.say(HELLO, READY)
            await killed.hear()
            await asyncio.to_thread(killed._connection.sendall, part)
            killed.close()
        other = await connected(home, hello)
        await other.say(HELLO, READY)
        await other.hear()
        await other.call(2, "agent_list", {})
        assert (await other.hear())["result"]["structuredContent"]["data"]["agents"] == []
        other.close()
    assert not caplog.records


CALL = {"client": "codex", "event": "Stop", "root": "/", "agent_id": "ann"}


NO_QUESTIONS = [
    *("{bad", "[" * 10_000, "{}"),
    json.dumps({"call": CALL | {"agent_id": "a" * 300}, "question": {"name": "seen"}}),
    json.dumps({"call": CALL | {"connection": "hook:1"}, "question": {"name": "seen"}}),
    *(
        json.dumps({"call": CALL, "question": question})
        for question in (
            {"name": "answer"},
            {"name": "seen", "more": 1},
            {"name": "owed", "keys": [1]},
            {"name": "waiting", "known": "abc"},
            {"name": "perform", "operation": "nexus_info", "arguments": []},
        )
    ),
]
NEVER_HELD: list[Any] = [{"topics": []}, {"topics": {"t": ["a"]}}, {"topics": {"t": [1, 2]}}]


async def test_what_is_no_question_of_a_hook_and_no_state_of_a_connection_gets_no_answer(
    home: Path, hello: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(home):
        questions: list[dict[str, Any]] = [{"command": ["hook", question]} for question in NO_QUESTIONS]
        for change in (*questions, *({"state": {"opened": [], "apps": held}} for held in NEVER_HELD)):
            with pytest.raises(relay.NoHub):
                await connected(home, {**hello, **change})
    assert not caplog.records


def test_a_time_limit_that_is_over_is_no_silence_of_the_hub(home: Path, hello: dict[str, Any]) -> None:
    (home / DIRECTORY).mkdir()
    with socket.socket(socket.AF_UNIX) as listening, relay.address(home) as path:
        listening.bind(path)
        listening.listen()
        with pytest.raises(OutOfTime), time_limit(0.01):
            relay.connect(home, hello, None, START_SECONDS)


async def test_a_hub_that_ends_answers_what_is_under_way(
    home: Path, hello: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says behind the last answer how many lines it took, where answers wait for one another to be sent, too."""

    class Slow(stdio.Pipe):
        async def flush(self) -> None:
            for _ in range(100):
                await asyncio.sleep(0)
            await super().flush()

    monkeypatch.setattr(relay_server, "Pipe", Slow)
    async with serving(home):
        client = await connected(home, hello)
        await client.say(HELLO, READY)
        await client.hear()
        for number in range(20):
            await client.call(number, "agent_register", {"agent_id": f"agent-{number}"})
        first = await client.hear()
    answered = [first["id"]]
    lines = [line for line in client._file.read().splitlines() if b'"state"' not in line[:20]]
    bye = json.loads(lines.pop())
    answered += [json.loads(line)["id"] for line in lines]
    assert bye["nexus"] == "bye" and bye["taken"] == 2 + len(answered)
    assert sorted(answered) == list(range(len(answered))), "in the order in which they came"
    client.close()


async def test_the_calls_of_one_key_wait_in_one_line_however_many_relays_send_them(
    home: Path, hello: dict[str, Any], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nexus.core.fairness.LAPSE_SECONDS", 3600)
    monkeypatch.setattr(agent_limits, "MOST_WAITING", 5)
    created = await arun(Caller("test", operator="olga"), "agent_create", {"agent_id": "ann"})
    key = created["data"]["api_key"]
    holding = [CallSlot(call_slots(), holder_of(key)) for _ in range(SHARE)]  # as calls over HTTP do
    for turn in holding:
        await turn.acquire()
    async with serving(home):
        clients = [await connected(home, {**hello, "key": given}) for given in (key, key, None)]
        for client in clients:
            await client.say(HELLO, READY)
            await client.hear()
        for number in range(5):
            await clients[0].call(number, "agent_list", {})
        async with asyncio.timeout(START_SECONDS):
            while call_slots().line(holder_of(key)).waiting < 5:
                await asyncio.sleep(0)
        await clients[1].call(5, "agent_list", {})
        refused = (await clients[1].hear())["result"]["structuredContent"]["error"]
        assert (refused["code"], refused["details"]) == ("QUOTA_EXCEEDED", {"retry_after_seconds": 1})
        await clients[2].call(6, "agent_list", {})
        assert (await clients[2].hear())["id"] == 6, "and nobody else waits"
        for turn in holding:
            turn.release()
        assert {(await clients[0].hear())["id"] for _ in range(5)} == set(range(5))
        for client in clients:
            client.close()
