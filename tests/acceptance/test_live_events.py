"""The event log live, over server-sent events and over a WebSocket: nothing lost, nothing twice, in order."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from tests.acceptance.hub import START_SECONDS, Hub
from tests.acceptance.log import append

MANY = 5_000
RANDOM = random.Random(7)
Received = Generator[tuple[int, int | None], None, None]


@pytest.fixture
def workspace(hub: Hub, tmp_path: Path) -> str:
    """The id of a workspace of this test's own."""
    workspace_id: str = hub.call("workspace_resolve", project_root=str(tmp_path))["workspace_id"]
    return workspace_id


@pytest.fixture
def start(hub: Hub) -> int:
    """The newest event's id before the test."""
    with httpx.stream("GET", f"{hub.url}/api/v1/stream") as answer:
        return next(int(line.removeprefix("id: ")) for line in answer.iter_lines() if line.startswith("id: "))


def write_many(hub: Hub, workspace: str, written: list[int]) -> None:
    while len(written) < MANY:
        written += append(hub.home, workspace, ["a.b"] * RANDOM.randint(1, 300))
        time.sleep(RANDOM.uniform(0, 0.01))


def messages(answer: httpx.Response) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """(id, data) of each server-sent message; data is None for one that only moves the cursor."""
    cursor, data = 0, None
    for line in answer.iter_lines():
        if line.startswith("id: "):
            cursor = int(line.removeprefix("id: "))
        elif line.startswith("data: "):
            data = json.loads(line.removeprefix("data: "))
        elif not line:
            yield cursor, data
            data = None


def socket_url(hub: Hub, query: str) -> str:
    return f"ws://{hub.authority}/ws/events/?{query}"


def listen(connection: Connection) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(connection.recv(timeout=START_SECONDS))
    return message


def next_event(connection: Connection) -> int:
    """The id of the next event; heartbeats come before it where the machine is slow."""
    while (message := listen(connection))["type"] == "heartbeat":
        continue
    event_id: int = message["event"]["event_id"]
    return event_id


def by_sse(hub: Hub, workspace: str, cursor: int) -> Received:
    """(cursor, event id) of each message of a connection; the id is None for one that only moves the cursor."""
    with httpx.stream("GET", f"{hub.url}/api/v1/stream", headers={"Last-Event-ID": str(cursor)}) as answer:
        for place, data in messages(answer):
            yield place, data["event_id"] if data else None


def by_websocket(hub: Hub, workspace: str, cursor: int) -> Received:
    with connect(socket_url(hub, f"cursor={cursor}&workspace={workspace}"), close_timeout=0.1) as connection:
        try:
            while message := listen(connection):
                yield message["cursor"], message["event"]["event_id"] if message["type"] == "event" else None
        finally:
            if RANDOM.random() < 0.5:
                connection.socket.shutdown(socket.SHUT_RDWR)  # cut, not closed


@pytest.mark.parametrize("connection", [by_sse, by_websocket])
def test_each_event_comes_once_in_order_through_random_cuts(
    hub: Hub, workspace: str, start: int, connection: Callable[[Hub, str, int], Received]
) -> None:
    written: list[int] = []
    seen: list[int] = []
    cuts = 0
    writing = threading.Thread(target=write_many, args=(hub, workspace, written))
    writing.start()
    cursor = start
    while writing.is_alive() or len(seen) < len(written):
        cuts += 1
        left = RANDOM.randint(1, 400)
        with closing(connection(hub, workspace, cursor)) as received:
            for place, event_id in received:
                cursor = place  # where the next connection starts
                if event_id is not None:
                    seen.append(event_id)
                    left -= 1
                if left <= 0 or MANY <= len(seen) == len(written):
                    break
    assert cuts > 10
    assert seen == written


def test_sse_filters_by_workspace_stream_type_and_agent(hub: Hub, workspace: str, start: int, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = hub.call("workspace_resolve", project_root=str(tmp_path / "other"))["workspace_id"]
    append(hub.home, other, ["x.one"])
    first, second, _ = append(hub.home, workspace, ["x.one", "x.two", "x.three"])

    def got(query: str) -> list[int]:
        with httpx.stream("GET", f"{hub.url}/api/v1/stream?cursor={start}&{query}") as answer:
            ids = []
            for cursor, data in messages(answer):
                if data is not None:
                    ids.append(cursor)
                if (data is None and ids) or len(ids) == 2:
                    break
            return ids

    assert got(f"workspace={workspace}&type=x.one,x.two") == [first, second]
    assert got(f"workspace={workspace}&type=x.one&type=x.two&stream=workspace&agent=writer") == [first, second]
    refused = httpx.get(f"{hub.url}/api/v1/stream?stream=nonsense")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "VALIDATION_ERROR")
    assert httpx.get(f"{hub.url}/api/v1/stream?cursor=-1").status_code == 400
    assert httpx.get(f"{hub.url}/api/v1/stream?cursr=1").status_code == 400


def test_a_websocket_takes_its_filters_from_its_address(hub: Hub, workspace: str, start: int) -> None:
    _, two = append(hub.home, workspace, ["y.one", "y.two"])
    with connect(socket_url(hub, f"cursor={start}&type=y.two")) as connection:
        assert listen(connection)["event"]["event_id"] == two
        connection.send("no JSON")
        assert listen(connection)["error"]["code"] == "VALIDATION_ERROR"
        (three,) = append(hub.home, workspace, ["y.two"])
        assert listen(connection)["event"]["event_id"] == three


def test_a_slow_websocket_reader_is_told_its_cursor_and_closed(hub: Hub, workspace: str, start: int) -> None:
    written: list[int] = []
    with socket.socket() as narrow:
        narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        narrow.connect(hub.address)
        connection: Connection = connect(
            socket_url(hub, f"cursor={start}"), sock=narrow, max_queue=1, ping_interval=None
        )
        written += append(hub.home, workspace, ["slow." + "x" * 50] * 20_000)
        seen = [next_event(connection)]
        while hub.parked():  # reads nothing until the server has given it up
            time.sleep(0.2)
        last: dict[str, Any] = {}
        with pytest.raises(ConnectionClosed):
            while True:
                last = listen(connection)
                if last["type"] == "event":
                    seen.append(last["event"]["event_id"])
    assert last["type"] == "closing" and last["cursor"] == seen[-1]
    assert len(seen) < len(written)
    with connect(socket_url(hub, f"cursor={last['cursor']}")) as connection:
        while len(seen) < len(written):
            seen.append(next_event(connection))
    assert seen == written


def test_an_agents_key_hears_what_the_agent_may_see(hub: Hub, workspace: str, start: int) -> None:
    key = hub.key("listener")
    append(hub.home, workspace, ["z.hidden"], visibility="private", target='{"strategy":"direct","agent_id":"other"}')
    append(hub.home, workspace, ["z.mine"], visibility="private", target='{"strategy":"direct","agent_id":"listener"}')
    append(hub.home, workspace, ["z.open"])

    def types(received: Iterator[dict[str, Any]]) -> list[str]:
        return [event["type"] for _, event in zip(range(2), received, strict=False)]

    with httpx.stream("GET", f"{hub.url}/api/v1/stream?cursor={start}", headers={"x-api-key": key}) as answer:
        assert types(data for _, data in messages(answer) if data) == ["z.mine", "z.open"]
    with connect(socket_url(hub, f"cursor={start}&api_key={key}")) as connection:
        assert types(listen(connection)["event"] for _ in range(2)) == ["z.mine", "z.open"]


def test_a_key_that_is_replaced_ends_its_live_connections(hub: Hub, workspace: str) -> None:
    key = hub.key("replaced")
    with connect(socket_url(hub, f"api_key={key}")) as connection:
        hub.call("agent_key_issue", agent_id="replaced")
        append(hub.home, workspace, ["after.replacement"])
        assert listen(connection)["type"] == "closing"
        with pytest.raises(ConnectionClosed):
            listen(connection)
    with pytest.raises(InvalidStatus):
        connect(socket_url(hub, f"api_key={key}"))
    assert httpx.get(f"{hub.url}/api/v1/stream?api_key={key}").status_code == 401
