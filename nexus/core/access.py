"""Identification of the caller behind an HTTP or WebSocket connection (docs/explanation/trust.md).

One rule for REST, `/mcp`, server-sent events, WebSockets and every page: it takes plain values and returns a `Caller`,
or raises a refusal.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import time
from collections import OrderedDict
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import import_module
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest
from django.http.request import split_domain_port, validate_host

from nexus.core import waiting
from nexus.core.apps import nexus_apps
from nexus.core.config import CoreSettings
from nexus.core.domain import domain
from nexus.core.operations.caller import LOCAL_OPERATOR, Caller, operator_connection
from nexus.core.operations.errors import Code, NexusError

LOOPBACK_NAMES: list[str] = ["127.0.0.1", "localhost", "[::1]"]
# Headers that browsers, the dashboard's scripts (htmx), command-line clients and SDKs send by themselves. Any other one
# comes from a proxy or a tunnel, as far as we can see: no list of what those add is ever complete.
CLIENTS_OWN = re.compile(
    r"(accept|access-control-request|content|hx|if|mcp|sec|x-stainless)(-.*)?|authorization|baggage|cache-control"
    r"|connection|cookie|date|device-memory|dnt|downlink|dpr|ect|expect|host|idempotency-key|keep-alive|last-event-id"
    r"|origin|pragma|priority|purpose|range|referer|rtt|save-data|te|traceparent|tracestate|trailer|transfer-encoding"
    r"|upgrade|upgrade-insecure-requests|user-agent|(viewport-)?width|x-(api-key|csrftoken|requested-with|request-id)"
)
KEY = re.compile(r"nxs_[0-9a-f]{48}")
MOST_RECOGNISED = 10_000
INFO = "nexus.info"  # where the scope of a request has its ConnectionInfo

_recognised: OrderedDict[str, None] = OrderedDict()  # names of callers whose key or login was good, the latest last


class AccessDenied(NexusError):
    """A refused connection; `status` is 401 if a key or a login would help, otherwise 403."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(Code.NOT_OWNER, message)
        self.status = status


@dataclass(frozen=True)
class ConnectionInfo:
    """The credentials and addresses that a connection presents.

    `peer` is the client's address: behind a trusted proxy the one that the proxy names, None if it names none.
    `staff` names the operator who is logged in to the admin, if one is, and `session` is the key of that login;
    a `viewer` is one without Django's rights of a superuser.
    """

    peer: str | None
    headers: tuple[tuple[str, str], ...]  # names in lower case
    query: str
    staff: str | None = None
    viewer: bool = False
    session: str | None = None
    http_version: str = "1.1"

    @classmethod
    def of_scope(cls, scope: Mapping[str, Any], user: Any = None) -> ConnectionInfo:
        """Read an ASGI scope of type http or websocket."""
        info: ConnectionInfo | None = scope.get(INFO)
        if info is None:
            headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
            peer, version = scope.get("client"), scope.get("http_version", "1.1")
            query = scope["query_string"].decode("latin-1")
            info = cls(peer[0] if peer else None, tuple(headers), query, http_version=version)
        return info._of(user, scope.get("session"))

    @classmethod
    def of_request(cls, request: HttpRequest, user: Any = None) -> ConnectionInfo:
        """Read a Django request; `user` if it is known already, otherwise the session's."""
        scope = getattr(request, "scope", {})
        info: ConnectionInfo | None = scope.get(INFO)  # what it showed is read once
        if info is None:
            headers = tuple((name.lower(), value) for name, value in request.headers.items())
            peer, query = request.META.get("REMOTE_ADDR") or None, request.META.get("QUERY_STRING", "")
            info = cls(peer, headers, query, http_version=scope.get("http_version", "1.1"))
        user = getattr(request, "user", None) if user is None else user
        return info._of(user, getattr(request, "session", None))

    def _of(self, user: Any, session: Any) -> ConnectionInfo:
        """Return a copy for a login, if there is one."""
        staff, key = staff_name(user), _key_of(session)
        viewer = staff is not None and is_viewer(user)
        return replace(self, staff=staff, viewer=viewer, session=key) if staff or key else self

    def values(self, name: str) -> list[str]:
        """Return every value of a header, in order."""
        return [value for header, value in self.headers if header == name]

    @cached_property
    def keys(self) -> Set[str]:
        """Everything that was presented as a key, in any header or parameter."""
        bearers = [value.partition(" ")[2].strip() for value in self.values("authorization")]
        in_query = [part.removeprefix("api_key=") for part in self.query.split("&") if part.startswith("api_key=")]
        return {*bearers, *self.values("x-api-key"), *in_query}

    @cached_property
    def holder(self) -> str:
        """The connection's name by its key. A part of a digest tells keys apart without revealing them."""
        return holder_of(min(self.keys))


def holder_of(key: str) -> str:
    """Return the name of a key's holder, the same over every transport."""
    return f"key:{hashlib.sha256(key.encode(errors='replace')).hexdigest()[:16]}"


def identify(
    info: ConnectionInfo, *, transport: str, connection: str | None = None, key_required: bool = False
) -> Caller:
    """Return the caller behind a connection; reads the store if a key was presented.

    A key binds to its agent. Whoever presents the hub's token, or is logged in as a member of the staff, is
    an operator; so is a direct local request, while the server is bound to loopback and runs no programs but the
    operator's own. With `key_required` (for `/mcp`) only a key counts. Raises AccessDenied: 403 for a foreign Host or
    Origin, 401 for an unknown key or none. A long-lived connection calls this from time to time, with a name for
    its `connection` (see Caller), because keys are regenerated and deactivated, and logins end.
    """
    host = check_place(info)
    forwarded_by = ""
    if not key_required and len(info.keys) == 1 and is_operators_token(min(info.keys)):
        return Caller(transport, operator=LOCAL_OPERATOR, connection=connection or operator_connection(LOCAL_OPERATOR))
    if info.keys:
        agent_id, credential = _bound_to(info)
        _recognise(info.holder)
        verified_at = time.monotonic() if connection is None else -math.inf
        connection = connection or info.holder
        return Caller(
            transport, agent_id=agent_id, connection=connection, credential=credential, verified_at=verified_at
        )
    if not key_required:
        if info.staff is not None and (connection is None or _still_logged_in(info)):
            recognise_session(info.session)
            connection = connection or operator_connection(info.staff)
            return Caller(transport, operator=info.staff, viewer=info.viewer, connection=connection)
        if settings.NEXUS_TRUSTS_LOCAL and _is_from_here(info, host) and not runs_others_programs():
            forwarded_by = _sign_of_a_proxy(info)
            if not forwarded_by:
                return Caller(
                    transport, operator=LOCAL_OPERATOR, connection=connection or operator_connection(LOCAL_OPERATOR)
                )
    raise AccessDenied(
        401,
        "Present an agent's API key: Authorization: Bearer nxs_…, x-api-key or ?api_key=. An operator issues it with "
        "`nexus agents create` or `nexus agents key`. Operators log in, or present the hub's token, where a "
        "request from this machine is not enough. There is no OAuth."
        + (f" This request came from this machine, but {forwarded_by}, as if through a proxy." if forwarded_by else ""),
    )


def caller_name(info: ConnectionInfo) -> str:
    """Return the name of the caller that a request counts for in fairness, without reading the store.

    A key or a login counts once it was found valid. Unknown ones could be invented in any number, so they all count
    as one caller, together with all strangers of their address.
    """
    if len(info.keys) == 1 and is_operators_token(min(info.keys)):
        return operator_connection(LOCAL_OPERATOR)
    name = info.holder if info.keys else next(map(_session_name, _sessions(info)), None)
    if name is None:
        return address_name(info.peer)
    return name if name in _recognised else f"stranger:{info.peer}"


def address_name(peer: str | None) -> str:
    """Return the name of a caller that presents only its address."""
    return f"address:{peer}"


def recognise_session(key: str | None) -> None:
    """Remember that the login whose session has this key is valid."""
    if key is not None:
        _recognise(_session_name(key))


async def aidentify(info: ConnectionInfo, *, transport: str) -> Caller:
    """Do what `identify` does from an event loop: look a key up there, and anything else on a thread of its own
    pool."""
    look = partial(identify, info, transport=transport)
    return await (waiting.on_loop_or_thread if info.keys else waiting.in_thread)(waiting.AUTHENTICATION, look)


async def caller_of(request: HttpRequest, *, transport: str) -> Caller:
    """Return the caller of a plain async Django view. Raises AccessDenied."""
    return await aidentify(ConnectionInfo.of_request(request, await request.auser()), transport=transport)


def is_operators_token(presented: str) -> bool:
    """Return whether this is the hub's token; the comparison takes the same time for every text."""
    if KEY.fullmatch(presented):  # an agent's, as nearly every call shows one
        return False
    return any(hmac.compare_digest(presented.encode(errors="replace"), token.encode()) for token in operators_tokens())


def operators_tokens() -> list[str]:
    """Return the tokens that make an operator."""
    return [token for app in nexus_apps() if (token := app.operators_token())]


def runs_others_programs() -> bool:
    """Return whether agents' programs may run on this machine: they are as local as the operator."""
    return any(app.runs_others_programs() for app in nexus_apps())


def staff_name(user: Any) -> str | None:
    """Return the name of a logged-in, active member of the staff; None for everybody else."""
    if user is None or not user.is_authenticated or not user.is_active or not user.is_staff:
        return None
    return str(user.get_username())


def is_viewer(user: Any) -> bool:
    """Return whether a member of the staff may only look."""
    return not user.is_superuser


def _sessions(info: ConnectionInfo) -> list[str]:
    """Return the session keys that a request presents."""
    parts = (part.strip().partition("=") for value in info.values("cookie") for part in value.split(";"))
    return [value for name, _, value in parts if name == settings.SESSION_COOKIE_NAME]


def _session_name(key: str) -> str:
    return f"login:{hashlib.sha256(key.encode(errors='replace')).hexdigest()[:16]}"


def _recognise(name: str) -> None:
    _recognised.pop(name, None)  # it comes last; several threads do this, and each step stands alone
    _recognised[name] = None
    if len(_recognised) > MOST_RECOGNISED:
        _recognised.popitem(last=False)


def _key_of(session: Any) -> str | None:
    return None if session is None else session.session_key


def _still_logged_in(info: ConnectionInfo) -> bool:
    """Return whether the login that a connection began with is still valid: not ended, of an active account, with the
    same password and the same rights."""
    from django.contrib.auth import get_user  # not there in an agent's process

    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(info.session)
    user = get_user(request)
    return staff_name(user) == info.staff and is_viewer(user) == info.viewer


def allowed_hosts(bind: str) -> list[str]:
    """Return Django's ALLOWED_HOSTS for a server bound to `bind`.

    A server with a wildcard bind, or behind a proxy, cannot know its names, so it accepts any. Under a name that is not
    loopback's, nothing is open without a key or a login.
    """
    if bind in ("0.0.0.0", "::", "") or CoreSettings.current().trusted_proxies:  # noqa: S104  # compared with, not bound to
        return ["*"]
    return [*LOOPBACK_NAMES, f"[{bind}]" if ":" in bind else bind]


def address_of(text: str | None) -> IPv4Address | IPv6Address | None:
    """Return the address in a text, an IPv4 address inside IPv6 as IPv4; None for a name and for anything else."""
    try:
        address = ip_address(text or "")
    except ValueError:
        return None
    return (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address


def is_loopback(text: str | None) -> bool:
    """Return whether an address (not a name) is this machine's own."""
    address = address_of(text)
    return address is not None and address.is_loopback


def check_place(info: ConnectionInfo) -> str:
    """Check the Host and the Origin of a request, and return the Host: a page of another site must not reach anything
    here.

    Raises AccessDenied.
    """
    hosts = info.values("host")
    if len(hosts) != 1 or not validate_host(split_domain_port(hosts[0])[0], settings.ALLOWED_HOSTS):
        raise AccessDenied(403, "This Host is not served here; call the server by the address it printed at its start.")
    origins = info.values("origin")
    if any(_authority(origin) != hosts[0].lower() for origin in origins):
        raise AccessDenied(
            403,
            f"This Origin is not served here: a page of another site may not call {hosts[0][:100]!r}. A proxy in "
            "between must pass on the Host that was called, and be named with --trusted-proxies.",
        )
    return hosts[0]


def _authority(origin: str) -> str | None:
    """Return the authority of an Origin; None if it is not a web origin."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    return parts.netloc.lower() if parts.scheme in ("http", "https") else None


def _is_from_here(info: ConnectionInfo, host: str) -> bool:
    """Return whether a request comes from this machine and names a loopback host."""
    name = split_domain_port(host)[0]
    return is_loopback(info.peer) and (name == "localhost" or is_loopback(name.strip("[]")))


def _sign_of_a_proxy(info: ConnectionInfo) -> str:
    """Return, in words, what shows that a proxy forwarded a request; empty if nothing does."""
    if info.http_version == "1.0":  # nginx's default towards what it serves; clients have spoken 1.1 for decades
        return "speaks HTTP/1.0"
    header = next((name for name, _ in info.headers if not CLIENTS_OWN.fullmatch(name)), None)
    return f"carries the header {header[:100]!r}" if header else ""


def _bound_to(info: ConnectionInfo) -> tuple[str, str]:
    """Return the agent whose key was presented, and the credential for it. Raises AccessDenied."""
    key = min(info.keys) if len(info.keys) == 1 else ""
    credential = domain().credential_of_key(key)
    agent_id = domain().agent_of_credential(credential) if KEY.fullmatch(key) else None
    if agent_id is None:
        _recognised.pop(info.holder, None)
        raise AccessDenied(401, "This API key is unknown or deactivated. Ask an operator for a new one.")
    return agent_id, credential
