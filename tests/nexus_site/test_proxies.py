"""Behind a reverse proxy that the operator named, the client is who the proxy says, and never local."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings
from hypothesis import given
from hypothesis import strategies as st

from nexus.core.access import allowed_hosts, is_loopback
from nexus.core.config import parse
from nexus.core.operations.errors import NexusError
from nexus_site.serving.middleware import BehindProxies

Seen = Callable[..., dict[str, Any]]
PROXIES = "127.0.0.1, ::1, 10.0.0.0/8"


async def seen(peer: str | None, kind: str = "http", **headers: str) -> dict[str, Any]:
    """What the application sees of a request."""
    scopes = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)

    pairs = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    scheme = "http" if kind == "http" else "ws"
    scope = {"type": kind, "client": (peer, 5000) if peer else None, "scheme": scheme, "headers": pairs}
    await BehindProxies(application)(scope, None, None)
    return {"client": (scopes[0]["client"] or (None,))[0], "scheme": scopes[0]["scheme"]}


@pytest.fixture
def proxies(configure: Callable[..., None]) -> None:
    configure(trusted_proxies=PROXIES)


async def test_it_names_the_last_address_that_is_no_proxys(proxies: None) -> None:
    for forwarded, client in (
        ("203.0.113.7", "203.0.113.7"),
        ("198.51.100.1, 203.0.113.7", "203.0.113.7"),  # the first one is what the client claimed
        ("203.0.113.7, 10.1.2.3", "203.0.113.7"),
        ("203.0.113.7, ::ffff:10.1.2.3,  127.0.0.1", "203.0.113.7"),
        ("2001:db8::9", "2001:db8::9"),
        *((none, None) for none in ("", "127.0.0.1", "127.0.0.2", "203.0.113.7, unknown", "203.0.113.7,")),
    ):
        assert (await seen("127.0.0.1", x_forwarded_for=forwarded))["client"] == client, forwarded


async def test_it_believes_nobody_but_the_proxies(proxies: None, configure: Callable[..., None]) -> None:
    told = {"x_forwarded_for": "203.0.113.7", "x_forwarded_proto": "https"}
    assert await seen("192.0.2.1", **told) == {"client": "192.0.2.1", "scheme": "http"}
    assert await seen(None, **told) == {"client": None, "scheme": "http"}
    configure(trusted_proxies=None)
    assert (await seen("127.0.0.1", **told))["client"] == "127.0.0.1", "no proxy is named"


async def test_it_knows_what_was_sent_to_the_proxy_in_secret(proxies: None) -> None:
    assert (await seen("10.0.0.1", x_forwarded_proto="https"))["scheme"] == "https"
    assert (await seen("10.0.0.1", "websocket", x_forwarded_proto="https"))["scheme"] == "wss"
    assert (await seen("10.0.0.1", x_forwarded_proto="http"))["scheme"] == "http"


@given(forwarded=st.text(st.characters(codec="latin-1")))
def test_it_takes_nobody_behind_a_proxy_for_local(forwarded: str) -> None:
    started = settings.NEXUS
    settings.NEXUS = started.replaced(trusted_proxies=PROXIES)
    try:
        assert not is_loopback(async_to_sync(seen)("127.0.0.1", x_forwarded_for=forwarded)["client"])
    finally:
        settings.NEXUS = started


def test_it_serves_any_host_behind_a_proxy(proxies: None) -> None:
    assert "*" in allowed_hosts("127.0.0.1")


@pytest.mark.parametrize("text", ["", "proxy.example", "10.0.0.1/8", "127.0.0.1,", "300.1.1.1"])
def test_it_refuses_what_is_no_list_of_networks(text: str) -> None:
    with pytest.raises(NexusError, match="addresses or networks"):
        parse("trusted_proxies", text, "--trusted-proxies")
