"""Slots of requests: whose they are, what holds none, and what a caller is told that sends too many."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from django.conf import settings

import nexus.core.fairness
from coordination.services import agent_limits
from nexus.control.rpc.endpoint import ENDPOINT
from nexus.core import access
from nexus.core.access import ConnectionInfo, caller_name, recognise_session
from nexus.core.fairness import SHARE, call_slots
from nexus_site.asgi import hub
from nexus_site.serving import metrics
from nexus_site.serving.middleware import FairOrder
from tests.acceptance.hub import START_SECONDS
from tests.control.wire import TOKEN

KEY = "nxs_" + "0123456789ab" * 4


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call lasts long enough to lose its place, however slow the machine is."""
    monkeypatch.setattr(nexus.core.fairness, "LAPSE_SECONDS", START_SECONDS)


class Gate:
    """An application whose requests wait until the test opens it; what it was asked, in order."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.open = asyncio.Event()
        self.streams = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.append(scope["path"])
        if self.streams:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await self.open.wait()
        if not self.streams:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


class Client:
    """Requests to an ASGI application, which never send a body: who reads one hangs."""

    def __init__(self, application: Any) -> None:
        self.application = application
        self.tasks: list[asyncio.Task[list[Any]]] = []

    async def send(self, path: str = "/", *, kind: str = "http", peer: str = "127.0.0.1", **headers: str) -> list[Any]:
        sent: list[Any] = []

        async def receive() -> Any:
            if kind == "websocket":
                return {"type": "websocket.connect"}
            raise AssertionError("a body was asked for")

        async def sending(message: Any) -> None:
            sent.append(message)

        given = {"host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
        pairs = [(name.encode(), value.encode()) for name, value in given.items()]
        scope = {"type": kind, "method": "POST", "path": path, "query_string": b"", "headers": pairs}
        await self.application({**scope, "client": (peer, 1)}, receive, sending)
        return sent

    def begin(self, *args: Any, **kwargs: Any) -> asyncio.Task[list[Any]]:
        self.tasks.append(asyncio.ensure_future(self.send(*args, **kwargs)))
        return self.tasks[-1]


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def in_order(gate: Gate) -> Client:
    return Client(FairOrder(gate, exempt=hub.exempt, refuse=hub.refuse))


@pytest.mark.parametrize(
    "path", ["/api/v1/operations/nexus_info", "/mcp", "/rpc", "/admin/inbox/message/", "/ws/events/"]
)
async def test_it_refuses_beyond_the_bound_in_the_form_of_each_transport(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    kind = "websocket" if path.startswith("/ws") else "http"
    monkeypatch.setattr(agent_limits, "MOST_WAITING", 5)
    monkeypatch.setattr(ENDPOINT, "token", TOKEN)
    gate = Gate()
    client = in_order(gate)
    for _ in range(SHARE + 5):
        client.begin("/work")
    await settle()
    counted = metrics.OURS.get_sample_value("nexus_refused_requests_total") or 0
    answer = await client.send(path, kind=kind)
    assert metrics.OURS.get_sample_value("nexus_refused_requests_total") == counted + 1
    assert call_slots().all_waiting == 5 and gate.asked == ["/work"] * SHARE
    if kind == "websocket":
        assert [message["type"] for message in answer] == ["websocket.close"]
    else:
        start, body = answer[0], answer[1]["body"].decode()
        headers = dict(start["headers"])
        assert start["status"] == 429 and int(headers[b"retry-after"]) >= 1
        if path == "/rpc":
            assert json.loads(body)["error"]["data"]["code"] == "QUOTA_EXCEEDED"
        elif path.startswith("/admin"):
            assert "calls are waiting already" in body
        else:
            assert json.loads(body)["error"]["code"] == "QUOTA_EXCEEDED"
    other = client.begin("/other", peer="127.0.0.2")
    await settle()
    assert gate.asked[-1] == "/other", "the others' calls are served meanwhile"
    gate.open.set()
    await asyncio.gather(*client.tasks, other)


async def test_a_flood_of_one_caller_is_passed_by_the_calls_of_another() -> None:
    gate = Gate()
    client = in_order(gate)
    for number in range(2_000):
        client.begin(f"/flood/{number}")
    await settle()
    other = client.begin("/other", peer="127.0.0.2")
    await settle()
    assert gate.asked.index("/other") == SHARE, "and nothing of the flood's rest was asked before"
    gate.open.set()
    await asyncio.gather(*client.tasks, other)
    assert gate.asked.count("/other") == 1 and len(gate.asked) == 2_001


async def test_what_streams_holds_no_slot() -> None:
    gate = Gate()
    gate.streams = True
    client = in_order(gate)
    for _ in range(3 * SHARE):
        client.begin("/stream")
    await settle()
    assert len(gate.asked) == 3 * SHARE
    gate.open.set()
    await asyncio.gather(*client.tasks)


async def test_health_is_told_without_a_slot() -> None:
    gate = Gate()
    client = in_order(gate)
    for _ in range(50):
        client.begin("/work")
    await settle()
    for path in ("/healthz", "/readyz", "/metrics"):
        client.begin(path)
    await settle()
    assert gate.asked[SHARE:] == ["/healthz", "/readyz", "/metrics"]
    gate.open.set()
    await asyncio.gather(*client.tasks)


def shown(**headers: str) -> str:
    given = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return caller_name(ConnectionInfo("10.0.0.7", given, ""))


def test_strangers_share_one_turn_however_many_keys_they_make_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "_recognised", type(access._recognised)())
    made_up = {shown(x_api_key=f"nxs_{number:048x}") for number in range(100)}
    made_up |= {shown(cookie=f"a=1; {settings.SESSION_COOKIE_NAME}={number:032x}") for number in range(100)}
    made_up |= {shown(authorization=f"Bearer {KEY}", x_api_key="nxs_other")}
    assert made_up == {"stranger:10.0.0.7"}
    recognise_session("s" * 32)
    assert shown(cookie=f"a=1; {settings.SESSION_COOKIE_NAME}={'s' * 32}").startswith("login:")
    assert shown() == "address:10.0.0.7"
