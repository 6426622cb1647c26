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

PROXIES = "127.0.0.1, ::1, 10.0.0.0/8"


async def seen(peer: str | None, kind: str = "http", path: str = "/", **headers: str) -> dict[str, Any]:
    """What the application sees of a request."""
    scopes = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)

    pairs = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    scheme = "http" if kind == "http" else "ws"
    scope = {"type": kind, "client": (peer, 5000) if peer else None, "scheme": scheme, "headers": pairs, "path": path}
    await BehindProxies(application)(scope, None, None)
    return {**scopes[0], "client": (scopes[0]["client"] or (None,))[0]}


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
        ("203.0.113.7:4711, 10.1.2.3:80", "203.0.113.7"),
        ("[2001:db8::9]:4711", "2001:db8::9"),
        *(
            (none, None)
            for none in ("", "127.0.0.1", "127.0.0.2", "127.0.0.2:80", "203.0.113.7, unknown", "203.0.113.7,")
        ),
    ):
        assert (await seen("127.0.0.1", x_forwarded_for=forwarded))["client"] == client, forwarded


async def test_it_believes_nobody_but_the_proxies(proxies: None, configure: Callable[..., None]) -> None:
    told = {"host": "a", "x_forwarded_for": "203.0.113.7", "x_forwarded_proto": "https", "x_forwarded_host": "b"}
    for peer in ("192.0.2.1", None):
        found = await seen(peer, x_forwarded_prefix="/nexus", **told)
        assert (found["client"], found["scheme"], host(found)) == (peer, "http", ["a"])
        assert "root_path" not in found
    configure(trusted_proxies=None)
    assert (await seen("127.0.0.1", **told))["client"] == "127.0.0.1", "no proxy is named"


async def test_it_knows_what_was_sent_to_the_proxy_in_secret(proxies: None) -> None:
    assert (await seen("10.0.0.1", x_forwarded_proto="https"))["scheme"] == "https"
    assert (await seen("10.0.0.1", "websocket", x_forwarded_proto="https"))["scheme"] == "wss"
    assert (await seen("10.0.0.1", x_forwarded_proto="http"))["scheme"] == "http"
    assert (await seen("10.0.0.1", x_forwarded_proto="https, http"))["scheme"] == "https", "the outer one of two"


async def test_the_password_of_a_proxy_is_no_key_of_the_hub(proxies: None) -> None:
    for shown, left in (("Basic YTpi", []), ("basic YTpi", []), ("Bearer nxs_1", [b"Bearer nxs_1"])):
        found = await seen("10.0.0.1", host="a", authorization=shown)
        assert [value for name, value in found["headers"] if name == b"authorization"] == left
    found = await seen("192.0.2.1", authorization="Basic YTpi")
    assert found["headers"] == [(b"authorization", b"Basic YTpi")], "of nobody else"


PORT = {"x_forwarded_port": "8443"}
PAGE = {"origin": "https://hub.example:8443"}


@pytest.mark.parametrize(
    ("given", "called"),
    [
        ({"host": "hub.example:8443"}, "hub.example:8443"),
        ({"host": "hub.example", **PAGE}, "hub.example:8443"),  # nginx's $host
        ({"host": "hub.example", **PORT}, "hub.example:8443"),
        ({"host": "hub.example", "x_forwarded_port": "443", **PAGE}, "hub.example:8443"),  # a container's own port
        ({"host": "hub.example:443"}, "hub.example"),  # nginx's $host:$server_port
        ({"host": "HUB.example."}, "hub.example"),
        ({"host": "127.0.0.1:8420", "x_forwarded_host": "hub.example:8443"}, "hub.example:8443"),
        ({"host": "127.0.0.1:8420", "x_forwarded_host": "hub.example, inner"}, "hub.example"),
        ({"host": "[2001:db8::1]", "origin": "https://[2001:db8::1]:8443"}, "[2001:db8::1]:8443"),
        ({"host": "hub.example", "origin": "https://other.example:8443"}, "hub.example"),
        ({"host": "hub.example", "origin": "null"}, "hub.example"),
        ({"host": "hub.example:80", "x_forwarded_proto": "http"}, "hub.example"),
    ],
)
async def test_it_knows_the_host_that_was_called(proxies: None, given: dict[str, str], called: str) -> None:
    assert host(await seen("10.0.0.1", **{"x_forwarded_proto": "https", **given})) == [called]


async def test_a_proxy_that_names_no_scheme_passes_on_a_pages_origin(proxies: None) -> None:
    assert (await seen("10.0.0.1", host="hub.example", origin="https://hub.example"))["scheme"] == "https"
    assert (await seen("10.0.0.1", host="hub.example", origin="https://other.example"))["scheme"] == "http"


@pytest.mark.parametrize("path", ["/admin/", "/nexus/admin/"])
@pytest.mark.parametrize("prefix", ["/nexus", "/nexus/"])
async def test_it_serves_below_a_path(proxies: None, path: str, prefix: str) -> None:
    found = await seen("10.0.0.1", path=path, host="a", x_forwarded_prefix=prefix)
    assert (found["root_path"], found["path"]) == ("/nexus", "/admin/")


@pytest.mark.parametrize("prefix", ["", "/", "nexus", "//evil.example", "/a b", "/a?b", "/a/../\\\\b"])
async def test_it_takes_no_other_prefix(proxies: None, prefix: str) -> None:
    assert "root_path" not in await seen("10.0.0.1", host="a", x_forwarded_prefix=prefix)


def host(scope: dict[str, Any]) -> list[str]:
    return [value.decode() for name, value in scope["headers"] if name == b"host"]


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
