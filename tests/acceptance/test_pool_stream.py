"""An agent of a real pool, live: nothing lost, nothing twice, over any number of cuts, on both transports."""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from tests.acceptance.hub import START_SECONDS
from tests.acceptance.pool import Pool

REFUSED, ENDED = 4008, 1000
TURNS = 12  # of two entries each


@pytest.fixture
def agent_id(pool: Pool) -> str:
    """A new agent of the pool."""
    name = f"agent-{secrets.token_hex(4)}"
    pool.operate("pool_create_agent", agent_id=name, worktree=False)
    return name


def send_many(pool: Pool, agent_id: str) -> None:
    for number in range(TURNS):
        pool.operate("pool_send", agent_id=agent_id, content=f"part {number}", timeout_seconds=0)


def events(answer: httpx.Response) -> Iterator[tuple[str, str, Any]]:
    """(event, id, data) of each server-sent message that has data."""
    fields: dict[str, str] = {}
    for line in answer.iter_lines():
        name, _, value = line.partition(": ")
        if line:
            fields[name] = value
        elif "data" in fields:
            yield fields["event"], fields.get("id", ""), json.loads(fields["data"])
            fields = {}
        else:
            fields = {}


def told(connection: Connection) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(connection.recv(timeout=START_SECONDS))
    return message


def test_sse_brings_each_entry_once_in_order_through_cuts(pool: Pool, agent_id: str) -> None:
    send_many(pool, agent_id)
    seen: list[int] = []
    token, resume = {"Authorization": f"Bearer {pool.token}"}, dict[str, str]()
    while len(seen) < 2 * TURNS:
        left = secrets.randbelow(7)
        with httpx.stream("GET", f"{pool.hub.url}/agent/{agent_id}/stream", headers={**token, **resume}) as answer:
            assert answer.status_code == 200
            for event, place, data in events(answer):
                if event == "entry":
                    seen.append(data["position"])
                    resume = {"Last-Event-ID": place}
                    left -= 1
                if left < 0 or len(seen) == 2 * TURNS:
                    break
    assert seen == list(range(2 * TURNS))


def test_a_websocket_brings_each_entry_once_in_order_through_cuts(pool: Pool, agent_id: str) -> None:
    send_many(pool, agent_id)
    seen: list[int] = []
    place = "0"
    while len(seen) < 2 * TURNS:
        left = secrets.randbelow(7)
        with connect(f"ws://{pool.hub.authority}/ws/pool/{agent_id}/?after={place}", close_timeout=0.1) as connection:
            while left >= 0 and len(seen) < 2 * TURNS:
                message = told(connection)
                place = message["after"]
                if message["type"] == "entry":
                    seen.append(message["entry"]["position"])
                    left -= 1
            if left % 2:
                connection.socket.shutdown(socket.SHUT_RDWR)  # cut, not closed
    assert seen == list(range(2 * TURNS))


def test_a_websocket_ends_with_the_agent(pool: Pool, agent_id: str) -> None:
    with connect(f"ws://{pool.hub.authority}/ws/pool/{agent_id}/") as connection:
        assert told(connection)["state"]["ended"] is False
        pool.operate("pool_destroy_agent", agent_id=agent_id)
        assert told(connection)["state"]["ended"] is True
        assert told(connection)["type"] == "closing"
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(timeout=START_SECONDS)
    assert closed.value.rcvd is not None and closed.value.rcvd.code == ENDED


def test_a_websocket_is_closed_where_its_key_is_revoked(pool: Pool, agent_id: str) -> None:
    key = pool.hub.call("agent_key_issue", agent_id=agent_id)["api_key"]
    with connect(f"ws://{pool.hub.authority}/ws/pool/{agent_id}/?api_key={key}") as connection:
        assert told(connection)["type"] == "state"
        pool.hub.call("agent_key_set_active", agent_id=agent_id, active=False)
        pool.operate("pool_send", agent_id=agent_id, content="secret")
        assert told(connection)["type"] == "closing"
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(timeout=START_SECONDS)
    assert closed.value.rcvd is not None and closed.value.rcvd.code == REFUSED


@pytest.mark.parametrize("path", ["nobody/", "{agent}/?after=x", "{agent}/?api_key=nxs_wrong"])
def test_a_websocket_is_refused_before_it_opens(pool: Pool, agent_id: str, path: str) -> None:
    with (
        pytest.raises(InvalidStatus) as refused,
        connect(f"ws://{pool.hub.authority}/ws/pool/{path.format(agent=agent_id)}"),
    ):
        pass
    assert refused.value.response.status_code == 403


def test_the_hub_goes_down_while_somebody_listens(home: Path) -> None:
    pool = Pool(home)
    pool.operate("pool_create_agent", agent_id="lead", worktree=False)
    with (
        connect(f"ws://{pool.hub.authority}/ws/pool/lead/") as connection,
        httpx.stream("GET", f"{pool.hub.url}/agent/lead/stream") as answer,
    ):
        assert told(connection)["type"] == "state"
        heard = events(answer)
        assert next(heard)[0] == "state"
        assert pool.hub.stop() == 0
        assert told(connection)["reason"] == "The server goes down."
        assert list(heard) == []
