"""An agent of a real pool, live: nothing lost, nothing twice, over any number of cuts, on both transports."""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from nexus.client.tokens import ServerTokenManager
from tests.acceptance import hub as hubs
from tests.acceptance.hub import START_SECONDS, Hub
from tests.conftest import Furnish

REFUSED, ENDED = 4008, 1000
TURNS = 12  # of two entries each


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, furnish: Furnish) -> Iterator[Hub]:
    """A hub with a pool that rehearses."""
    home = furnish(tmp_path_factory.mktemp("pool") / "home")
    with hubs.serving(home, "--home", str(home), "--control") as served:
        yield served


@pytest.fixture
def agent_id(hub: Hub) -> str:
    """A new agent of the pool."""
    name = f"agent-{secrets.token_hex(4)}"
    call(hub, "pool_create_agent", agent_id=name)
    return name


@pytest.fixture
def token(hub: Hub) -> dict[str, str]:
    """The headers of an operator."""
    return {"Authorization": f"Bearer {ServerTokenManager(hub.address[1], hub.home).load()}"}


def call(hub: Hub, operation: str, **arguments: Any) -> dict[str, Any]:
    """An operation's data, as the operator of this machine."""
    url = f"{hub.url}/api/v1/control/operations/{operation}"
    envelope = httpx.post(url, json=arguments, timeout=START_SECONDS).json()
    assert envelope["ok"], envelope
    data: dict[str, Any] = envelope["data"]
    return data


def send_many(hub: Hub, agent_id: str) -> None:
    for number in range(TURNS):
        call(hub, "pool_send", agent_id=agent_id, content=f"part {number}", timeout_seconds=0)


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


def test_sse_brings_each_entry_once_in_order_through_cuts(hub: Hub, agent_id: str, token: dict[str, str]) -> None:
    send_many(hub, agent_id)
    seen: list[int] = []
    resume: dict[str, str] = {}
    while len(seen) < 2 * TURNS:
        left = secrets.randbelow(7)
        with httpx.stream("GET", f"{hub.url}/agent/{agent_id}/stream", headers={**token, **resume}) as answer:
            assert answer.status_code == 200
            for event, place, data in events(answer):
                if event == "entry":
                    seen.append(data["position"])
                    resume = {"Last-Event-ID": place}
                    left -= 1
                if left < 0 or len(seen) == 2 * TURNS:
                    break
    assert seen == list(range(2 * TURNS))


def test_a_websocket_brings_each_entry_once_in_order_through_cuts(hub: Hub, agent_id: str) -> None:
    send_many(hub, agent_id)
    seen: list[int] = []
    place = "0"
    while len(seen) < 2 * TURNS:
        left = secrets.randbelow(7)
        with connect(f"ws://{hub.authority}/ws/pool/{agent_id}/?after={place}", close_timeout=0.1) as connection:
            while left >= 0 and len(seen) < 2 * TURNS:
                message = told(connection)
                place = message["after"]
                if message["type"] == "entry":
                    seen.append(message["entry"]["position"])
                    left -= 1
            if left % 2:
                connection.socket.shutdown(socket.SHUT_RDWR)  # cut, not closed
    assert seen == list(range(2 * TURNS))


def test_a_websocket_ends_with_the_agent(hub: Hub, agent_id: str) -> None:
    with connect(f"ws://{hub.authority}/ws/pool/{agent_id}/") as connection:
        assert told(connection)["state"]["ended"] is False
        call(hub, "pool_destroy_agent", agent_id=agent_id)
        assert told(connection)["state"]["ended"] is True
        assert told(connection)["type"] == "closing"
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(timeout=START_SECONDS)
    assert closed.value.rcvd is not None and closed.value.rcvd.code == ENDED


def test_a_websocket_is_closed_where_its_key_is_revoked(hub: Hub, agent_id: str) -> None:
    key = hub.call("agent_key_issue", agent_id=agent_id)["api_key"]
    with connect(f"ws://{hub.authority}/ws/pool/{agent_id}/?api_key={key}") as connection:
        assert told(connection)["type"] == "state"
        hub.call("agent_key_set_active", agent_id=agent_id, active=False)
        call(hub, "pool_send", agent_id=agent_id, content="secret")
        assert told(connection)["type"] == "closing"
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(timeout=START_SECONDS)
    assert closed.value.rcvd is not None and closed.value.rcvd.code == REFUSED


@pytest.mark.parametrize("path", ["nobody/", "{agent}/?after=x", "{agent}/?api_key=nxs_wrong"])
def test_a_websocket_is_refused_before_it_opens(hub: Hub, agent_id: str, path: str) -> None:
    with (
        pytest.raises(InvalidStatus) as refused,
        connect(f"ws://{hub.authority}/ws/pool/{path.format(agent=agent_id)}"),
    ):
        pass
    assert refused.value.response.status_code == 403


def test_the_hub_goes_down_while_somebody_listens(tmp_path_factory: pytest.TempPathFactory, furnish: Furnish) -> None:
    home = furnish(tmp_path_factory.mktemp("going") / "home")
    hub = hubs.start(home, "--control")
    call(hub, "pool_create_agent", agent_id="lead")
    with (
        connect(f"ws://{hub.authority}/ws/pool/lead/") as connection,
        httpx.stream("GET", f"{hub.url}/agent/lead/stream") as answer,
    ):
        assert told(connection)["type"] == "state"
        heard = events(answer)
        assert next(heard)[0] == "state"
        assert hub.stop() == 0
        assert told(connection)["reason"] == "The server goes down."
        assert list(heard) == []
