"""Every transport names its connection, so that an operation can tell one caller from another."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from channels.testing import WebsocketCommunicator
from django.contrib.auth.models import AnonymousUser
from django.test import AsyncRequestFactory

from coordination.log import consumers
from nexus.core.access import identify
from nexus.core.cli import OperatorCommand
from nexus.core.operations import dispatch
from nexus.core.operations.caller import Caller
from nexus.core.operations.replies import Outcome
from nexus.hooks import store_queries
from nexus.web.page import operator

HERE = "127.0.0.1:8420"


@pytest.fixture
def callers(monkeypatch: pytest.MonkeyPatch) -> list[Caller]:
    """Everybody who calls or is identified, in order; what is called does nothing."""
    noted: list[Caller] = []

    def note(*given: Any, **how: Any) -> Caller:
        noted.append(identify(*given, **how))
        return noted[-1]

    monkeypatch.setattr(consumers, "identify", note)

    def perform(toolset: Any, caller: Caller, name: str, arguments: Any) -> Outcome:
        noted.append(caller)
        return Outcome({})

    monkeypatch.setattr(dispatch, "perform", perform)
    return noted


def test_a_process_has_one_name_and_its_kind(callers: list[Caller]) -> None:
    for _ in range(2):
        OperatorCommand().call("nexus_info")
        store_queries._data(SimpleNamespace(agent_id="ann", connection=None), "nexus_info")  # type: ignore[arg-type]
    command, hook = callers[0].connection or "", callers[1].connection or ""
    assert [caller.connection for caller in callers] == [command, hook] * 2
    assert command.startswith("cli:") and hook == command.replace("cli:", "hook:")


def test_a_person_at_the_dashboard_is_one_connection() -> None:
    request: Any = SimpleNamespace(user=SimpleNamespace(get_username=lambda: "olga", is_superuser=True))
    assert operator(request).connection == "operator:olga"


async def test_each_stream_is_a_connection(callers: list[Caller], committed: None) -> None:
    for _ in range(2):
        request: Any = AsyncRequestFactory().get("/api/v1/stream?cursor=0")
        request.META["HTTP_HOST"] = HERE

        async def nobody() -> AnonymousUser:
            return AnonymousUser()

        request.auser = nobody
        assert (await consumers.stream(request)).status_code == 200
    first, second = (caller.connection or "" for caller in callers)
    assert first != second and first.startswith("sse:") and second.startswith("sse:")


async def test_each_socket_is_a_connection_for_as_long_as_it_lasts(callers: list[Caller], committed: None) -> None:
    names = []
    for _ in range(2):
        socket = WebsocketCommunicator(
            consumers.EventsConsumer.as_asgi(), "/ws/events/?cursor=0", headers=[(b"host", HERE.encode())]
        )
        socket.scope |= {"user": AnonymousUser(), "client": ["127.0.0.1", 1]}
        callers.clear()
        assert (await socket.connect())[0]
        await socket.disconnect()
        names.append({caller.connection for caller in callers})
    (first,), (second,) = names
    assert first and second and first != second and first.startswith("websocket:")
