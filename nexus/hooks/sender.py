"""One signed HTTP request to one checked address: no redirect, no second resolution, no private network.

Behind a proxy (`nexus.core.outward`) it is the proxy that resolves the name: what this machine knows of it is checked.

The signature is that of Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`, in base64, as `v1,…`.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import ipaddress
import secrets
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from nexus.core import outward
from nexus.core.operations.errors import NexusError, invalid

STEP_SECONDS, TOTAL_SECONDS = 5, 10  # limits: of resolving, reading and writing, and of the whole request
RESOLVERS = ThreadPoolExecutor(8, thread_name_prefix="nexus-resolve")  # the system's resolver has no time limit
PREFIX = "whsec_"
MAX_URL = 2048
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# IPv6 networks whose last 32 bits are an IPv4 address: compatible, mapped, translated (RFC 2765), NAT64 (RFC 6052).
IPV4_INSIDE = [
    ipaddress.IPv6Network(network) for network in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")
]
# Some releases of Python call these global; none is an address of the public internet.
NOT_PUBLIC = [
    ipaddress.ip_network(network)
    for network in (
        *("192.0.0.0/24", "192.88.99.0/24", "64:ff9b:1::/48", "100:0:0:1::/64", "3fff::/20", "5f00::/16"),
        "fec0::/10",
    )
]
ISATAP = (0x00005EFE, 0x02005EFE)  # bits 64 to 95 of an address whose last 32 are an IPv4 address (RFC 5214)


class Undelivered(Exception):
    """The reason why a request did not succeed, in a few words."""


def new_secret() -> str:
    """Return a signing secret, in the format that verifying libraries accept."""
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def signature(secret: str, delivery_id: str, timestamp: int, body: str) -> str:
    """Return the value of the webhook-signature header."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    signed = f"{delivery_id}.{timestamp}.{body}".encode()
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def check_url(url: str, *, allow_private: bool) -> SplitResult:
    """Return the parts of a webhook's URL. Raises VALIDATION_ERROR for one that could never be called."""
    if len(url) > MAX_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise _wrong(f"must be a plain URL of at most {MAX_URL} characters")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _wrong("is not a well-formed URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise _wrong("must start with http:// or https:// and name a host")
    if parts.username is not None or parts.password is not None:
        raise _wrong("must not hold credentials; the receiver checks the signature instead")
    try:
        literal = ipaddress.ip_address(parts.hostname)
    except ValueError:
        return parts
    if not allow_private and not is_public(literal):
        raise _wrong("leads to a private address; pass allow_private if that is what you want")
    return parts


def is_public(address: Address) -> bool:
    """Return whether an address belongs to the public internet; an IPv6 address that contains IPv4 is judged by
    that."""
    if isinstance(address, ipaddress.IPv6Address):
        last = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if any(address in network for network in IPV4_INSIDE):
            return is_public(last)
        if address.sixtofour:
            return is_public(address.sixtofour)
        if address.teredo:
            return all(map(is_public, address.teredo))  # the server and the client
        if int(address) >> 32 & 0xFFFFFFFF in ISATAP and not is_public(last):
            return False
    is_excluded = any(address in network for network in NOT_PUBLIC)
    return address.is_global and not address.is_multicast and not is_excluded


def post(url: str, body: str, headers: dict[str, str], *, allow_private: bool) -> None:
    """Send one request; a 2xx response is a success. Raises Undelivered for anything else."""
    try:
        parts = check_url(url, allow_private=allow_private)
        connection = _Connection(parts, allow_private)
        connection.connect()
    except (NexusError, OSError, ValueError) as error:
        raise Undelivered(_reason(error)) from None
    # Without this, a server that sends one byte at a time could exceed the total limit.
    deadline = threading.Timer(TOTAL_SECONDS, connection.cut)
    deadline.start()
    try:
        connection.request("POST", connection.target, body.encode(), {**headers, **connection.login})
        status = connection.getresponse().status
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise Undelivered(_reason(error)) from None
    finally:
        deadline.cancel()
        connection.close()
    if not 200 <= status < 300:
        raise Undelivered(f"the receiver answered {status}")


class _Connection(http.client.HTTPConnection):
    """A connection to an address that was resolved once and checked; the name is used only for Host and TLS. Or one to
    the proxy that leads there."""

    def __init__(self, parts: SplitResult, allow_private: bool) -> None:
        self.tls = parts.scheme == "https"
        self.default_port = 443 if self.tls else 80
        self.allow_private = allow_private
        self.receiver = parts.hostname or "", parts.port or self.default_port
        self.target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self.login: dict[str, str] = {}  # to the proxy
        self.proxy = _proxy(parts.geturl())
        if self.proxy is None:
            super().__init__(*self.receiver)
            return
        super().__init__(self.proxy.hostname or "", self.proxy.port or 80, timeout=STEP_SECONDS)
        login = _login(self.proxy)
        if self.tls:
            self.set_tunnel(*self.receiver, login)
        else:
            self.target, self.login = parts.geturl(), login

    def connect(self) -> None:
        if self.proxy is not None:
            with contextlib.suppress(OSError):  # only the proxy may be able to resolve it
                self._allowed()
            try:
                super().connect()
            except OSError as error:
                raise OSError(f"the proxy {self.proxy.hostname} does not lead there ({_reason(error)})") from None
        else:
            self.sock = self._dialled(list(self._allowed().values()))
            self.sock.settimeout(STEP_SECONDS)
        if self.tls:
            self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self.receiver[0])

    def _allowed(self) -> dict[int, str]:
        """Return an address of the receiver of each family: only one of them may be reachable. Raises Undelivered where
        none is allowed, and OSError where the name is unknown."""
        allowed: dict[int, str] = {}
        for family, *_, address in self._looked_up():
            if self.allow_private or is_public(ipaddress.ip_address(address[0])):
                allowed.setdefault(family, str(address[0]))
        if not allowed:
            raise Undelivered("the name leads to private addresses only")
        return allowed

    def _dialled(self, addresses: list[str]) -> socket.socket:
        """Return a connection to the first address that accepts one, within STEP_SECONDS for all of them."""
        *others, last = addresses
        for address in others:
            with contextlib.suppress(OSError):
                return socket.create_connection((address, self.port), STEP_SECONDS / len(addresses))
        return socket.create_connection((last, self.port), STEP_SECONDS / len(addresses))

    def _looked_up(self) -> list[Any]:
        """Resolve the name. Raises OSError, also if a name server does not answer in time."""
        looking = RESOLVERS.submit(socket.getaddrinfo, *self.receiver, type=socket.SOCK_STREAM)
        try:
            return looking.result(STEP_SECONDS)
        except TimeoutError:
            looking.cancel()
            raise OSError("the look-up of the host name took too long") from None

    def cut(self) -> None:
        """Close it from another thread: whatever waits for the receiver fails at once."""
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except (OSError, AttributeError):
            return


def _proxy(url: str) -> SplitResult | None:
    """Return the proxy for an address, if one leads there. Raises OSError for one of another kind."""
    proxy = outward.proxy_of(url)
    parts = None if proxy is None else urlsplit(proxy)
    if parts is not None and (parts.scheme != "http" or not parts.hostname):
        raise OSError(f"the proxy must be of the form http://host:port, and is of the kind {parts.scheme}")
    return parts


def _login(proxy: SplitResult) -> dict[str, str]:
    """Return the header with the user and the password that a proxy's address holds."""
    if proxy.username is None:
        return {}
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}


def _reason(error: Exception) -> str:
    if isinstance(error, NexusError):
        return error.message
    if isinstance(error, TimeoutError):
        return "the receiver did not answer in time"
    if isinstance(error, ssl.SSLError):
        return "TLS failed"
    if isinstance(error, socket.gaierror | UnicodeError):
        return "the host name is unknown"
    if isinstance(error, ConnectionError):
        return "the connection was refused or broken"
    if isinstance(error, http.client.HTTPException):
        return "the receiver did not answer in HTTP"
    return error.strerror or str(error) if isinstance(error, OSError) else type(error).__name__


def _wrong(why: str) -> NexusError:
    return invalid(f"url {why}.", field="url")
