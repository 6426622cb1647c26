"""ASGI applications around the hub's own: the client behind a trusted reverse proxy, and requests served in fair order.

docs/how-to/run-it-for-real.md describes proxies. Slots keep the many calls of one caller from delaying others, on
any transport.
"""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import Any

from django.http.request import split_domain_port

from coordination.services.agent_limits import slot_of
from nexus.core.access import INFO, ConnectionInfo, address_of, caller_name
from nexus.core.config import CoreSettings
from nexus.core.fairness import SLOT, hold
from nexus.core.operations.errors import NexusError

SECURE = {"http": "https", "websocket": "wss"}
DEFAULT_PORT = {"http": "80", "ws": "80", "https": "443", "wss": "443"}
PREFIX = re.compile(r"((?:/[\w.~-]+)+)/?", re.ASCII)
MOST_HOPS = 100  # addresses of one X-Forwarded-For that are read, from the nearest on


class BehindProxies:
    """An ASGI application that sees the client's address behind a trusted proxy, and the address that it called.

    The client's is the last address in X-Forwarded-For that is not a trusted proxy's. It is unknown where there is
    none, and where it is a loopback address: a client that comes through a proxy is not on this machine. The headers
    are ignored from any other sender. A `root_path` is not in the scope's path.
    """

    def __init__(self, application: Any) -> None:
        self.application = application
        networks = CoreSettings.current().trusted_proxies
        self.trusted = [ip_network(each.strip()) for each in networks.split(",")] if networks else []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        peer = scope.get("client")
        if self.trusted and peer and self._is_trusted(peer[0]):
            scope = {**scope, "headers": [pair for pair in scope["headers"] if not _is_password(*pair)]}
            scope = {**scope, "client": self._client(scope), **_called(scope)}
        await self.application(scope, receive, send)

    def _client(self, scope: Any) -> tuple[str, int] | None:
        hops = ",".join(_values(scope, b"x-forwarded-for")).rsplit(",", MOST_HOPS)[1 - MOST_HOPS :]
        for hop in reversed(hops):
            hop = hop.strip()
            address = address_of(hop) or address_of(split_domain_port(hop)[0].strip("[]"))  # some add the port
            if address is None or (address.is_loopback and not self._is_trusted(str(address))):
                return None
            if not self._is_trusted(str(address)):
                return str(address), 0
        return None

    def _is_trusted(self, text: str) -> bool:
        address = address_of(text)
        return address is not None and any(address in network for network in self.trusted)


def _is_password(name: bytes, value: bytes) -> bool:
    """Return whether a header has the password that the proxy itself asks for: the hub has only keys and logins."""
    return name.lower() == b"authorization" and value[:6].lower() == b"basic "


def _called(scope: Any) -> dict[str, Any]:
    """Return the scheme, the Host and the path that the client called. Where a page of this host calls, its Origin has
    what the proxy leaves out."""
    host, port = split_domain_port(_first(scope, b"x-forwarded-host") or _first(scope, b"host"))
    page_scheme, _, authority = _first(scope, b"origin").partition("://")
    page_host, page_port = split_domain_port(authority)
    if page_host != host:
        page_scheme, page_port = "", _first(scope, b"x-forwarded-port")
    is_secure = (_first(scope, b"x-forwarded-proto") or page_scheme).lower() in ("https", "wss")
    scheme = SECURE.get(scope["type"], "https") if is_secure else str(scope.get("scheme", "http"))
    called: dict[str, Any] = {"scheme": scheme}
    if host and len(_values(scope, b"host")) < 2:
        port = port or page_port
        authority = host if port in ("", DEFAULT_PORT[scheme]) else f"{host}:{port}"
        others = [pair for pair in scope["headers"] if pair[0].lower() != b"host"]
        called["headers"] = [*others, (b"host", authority.encode("latin-1"))]
    if below := PREFIX.fullmatch(_first(scope, b"x-forwarded-prefix")):
        called["root_path"] = prefix = below[1]
        if f"{scope['path']}/".startswith(f"{prefix}/"):  # a proxy may pass it on in the path, too
            called["path"] = scope["path"].removeprefix(prefix) or "/"
    return called


def _first(scope: Any, name: bytes) -> str:
    """Return a header's first value, which is of the proxy next to the client; empty where there is none."""
    return ",".join(_values(scope, name)).partition(",")[0].strip()


def _values(scope: Any, name: bytes) -> list[str]:
    return [value.decode("latin-1") for header, value in scope["headers"] if header.lower() == name]


BEGUN = frozenset(("http.response.start", "websocket.accept", "websocket.close"))


class FairOrder:
    """An ASGI application whose requests are served in rotation among their callers.

    Before it has a slot, only the head of a request is read. The slot ends with the start of the response: a stream,
    and a response that a slow client has not read yet, hold none. `refuse` answers a caller that has too many waiting
    calls.
    """

    def __init__(self, application: Any, *, exempt: Any, refuse: Any) -> None:
        self.application, self.exempt, self.refuse = application, exempt, refuse

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan" or self.exempt(scope):
            await self.application(scope, receive, send)
            return
        info = ConnectionInfo.of_scope(scope)
        caller = caller_name(info)
        try:
            slot = slot_of(caller)
        except NexusError as error:
            await self.refuse(scope, receive, send, error)
            return

        async def sending(message: Any) -> None:
            if message["type"] in BEGUN and not slot.kept:
                slot.release()
            await send(message)

        await slot.acquire()
        try:
            hold(slot)
            await self.application({**scope, SLOT: slot, INFO: info}, receive, sending)
        finally:
            slot.release()
