"""The client behind a reverse proxy that the operator trusts (docs/how-to/serve-beyond-loopback.md)."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

from nexus.core.access import address_of
from nexus.core.config import CoreSettings

SECURE = {"http": "https", "websocket": "wss"}
MOST_HOPS = 100  # addresses of one X-Forwarded-For that are read, from the nearest on


class BehindProxies:
    """An ASGI application that sees the client's address behind a trusted proxy.

    That is the last address in X-Forwarded-For that is not a trusted proxy's. It is unknown where there is none,
    and where it is a loopback address: a client that comes through a proxy is not on this machine. The header is
    ignored from any other sender.
    """

    def __init__(self, application: Any) -> None:
        self.application = application
        networks = CoreSettings.current().trusted_proxies
        self.trusted = [ip_network(each.strip()) for each in networks.split(",")] if networks else []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        peer = scope.get("client")
        if self.trusted and peer and self._is_trusted(peer[0]):
            scope = {**scope, "client": self._client(scope), "scheme": _scheme(scope)}
        await self.application(scope, receive, send)

    def _client(self, scope: Any) -> tuple[str, int] | None:
        hops = ",".join(_values(scope, b"x-forwarded-for")).rsplit(",", MOST_HOPS)[1 - MOST_HOPS :]
        for hop in reversed(hops):
            address = address_of(hop.strip())
            if address is None or (address.is_loopback and not self._is_trusted(str(address))):
                return None
            if not self._is_trusted(str(address)):
                return str(address), 0
        return None

    def _is_trusted(self, text: str) -> bool:
        address = address_of(text)
        return address is not None and any(address in network for network in self.trusted)


def _scheme(scope: Any) -> str:
    is_secure = _values(scope, b"x-forwarded-proto")[-1:] in (["https"], ["wss"])
    return SECURE.get(scope["type"], "https") if is_secure else str(scope.get("scheme", "http"))


def _values(scope: Any, name: bytes) -> list[str]:
    return [value.decode("latin-1").strip().lower() for header, value in scope["headers"] if header.lower() == name]
