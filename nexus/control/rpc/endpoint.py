"""JSON-RPC over HTTP: `POST /rpc`, `POST /` and `POST /agent/{id}` (docs/reference/json-rpc.md), and an agent of the
pool live, as server-sent events: `GET /agent/{agent_id}/stream`.

A request is checked in this order: HTTP's limits, the method, the caller, the route, JSON, JSON-RPC, parameters.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import parse_qs

from channels.auth import AuthMiddlewareStack
from django.core.serializers.json import DjangoJSONEncoder
from django.db import DatabaseError

from nexus.client.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    SERVER_ERROR,
    Id,
    InvalidParamsError,
    ParseError,
    Request,
    Response,
    RpcError,
    make_error_response,
    make_success_response,
    parse_request,
    serialize_response,
)
from nexus.client.tokens import API_KEY_PREFIX, validate_api_key
from nexus.control.config import ControlSettings
from nexus.control.errors import ControlCode
from nexus.control.models import Entry
from nexus.control.permissions.members import find
from nexus.control.permissions.rules import is_agent_id
from nexus.control.rpc.agent_stream import AgentState, Follower, Piece, Position, entry_row, is_over, start_of
from nexus.control.toolset import CONTRACT, CONTROL, PREFIX
from nexus.core.access import AccessDenied, ConnectionInfo, check_place, identify, is_loopback
from nexus.core.cancellation import while_there
from nexus.core.operations import dispatch
from nexus.core.operations.caller import LOCAL_OPERATOR, Caller, of_its_own, operator_connection
from nexus.core.operations.dispatch import documented
from nexus.core.operations.errors import Code, NexusError, invalid
from nexus.core.operations.parameters import whole_number
from nexus.core.size_limits import COUNTS_VALUES, TooMuch, most_values, values_in, values_outside_texts
from nexus.core.waiting import AUTHENTICATION, READERS, in_thread

OF_AGENT = frozenset(
    ("send", "cancel", "get_tokens", "get_context", "get_messages", "compact", "set_option", "shutdown")
)

CODES = {
    Code.VALIDATION_ERROR: INVALID_PARAMS,
    Code.NOT_FOUND: INVALID_PARAMS,
    Code.NOT_OWNER: INVALID_PARAMS,
    Code.NOT_ALLOWED: INVALID_PARAMS,
    Code.CONTENT_TOO_LARGE: INVALID_PARAMS,
    Code.CONFIG_ERROR: INTERNAL_ERROR,
    Code.INTERNAL_ERROR: INTERNAL_ERROR,
    ControlCode.NOT_PERMITTED: INVALID_PARAMS,
    ControlCode.POOL_OFF: SERVER_ERROR,
    ControlCode.POOL_FULL: SERVER_ERROR - 1,
    ControlCode.TURN_FAILED: SERVER_ERROR - 2,
    ControlCode.TURN_INTERRUPTED: SERVER_ERROR - 3,
    Code.DB_ERROR: SERVER_ERROR - 4,
}


def operation_of(method: str, of_agent: bool) -> str | None:
    """Return the name of the operation behind a method; None if there is none. Those of one agent are OF_AGENT, and all
    others of the toolset are the pool's, more than the published system has."""
    name = PREFIX + method
    is_there = method in OF_AGENT if of_agent else method not in OF_AGENT and name in CONTROL.operations
    return name if is_there else None


def code_of(error: NexusError) -> int:
    """Return JSON-RPC's code for a documented error."""
    return CODES.get(error.code, SERVER_ERROR)


def error_response(request_id: Id, error: NexusError) -> Response:
    """Return JSON-RPC's response for a documented error; `data` holds its own code, and its details if there are
    any."""
    data = {"code": error.code.value, **({"details": error.details} if error.details else {})}
    return make_error_response(request_id, code_of(error), error.message, json.loads(json.dumps(data, default=str)))


PATH = re.compile(r"/agent/([^/]+)/stream/?")
HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
Who = Callable[[Any, ConnectionInfo, str], Caller]  # given the scope, and the connection's name; raises NexusError


def openapi() -> dict[str, Any]:
    """Return the stream's path in the OpenAPI schema."""
    from nexus.core.rest.schema import ANY_OF, FAILURES

    text = {"schema": {"type": "string"}}
    refusal = {"application/json": {"schema": {"type": "object"}}}
    operation = {
        "operationId": "pool_agent_stream",
        "description": "With `--control`: an agent of the pool as server-sent events (`entry`, `state`, `draft`), from "
        "the beginning of its transcript or exactly after a position. A refusal is an error of JSON-RPC.",
        "tags": ["pool"],
        "parameters": [
            {"name": "agent_id", "in": "path", "required": True, **text},
            {"name": "after", "in": "query", "required": False, **text},
            {"name": "Last-Event-ID", "in": "header", "description": "As `after`.", "required": False, **text},
        ],
        "security": ANY_OF,
        "responses": {
            "200": {"description": "Until the agent ends.", "content": {"text/event-stream": text}},
            "204": {"description": "The stream has ended."},
            **{status: {"description": why, "content": refusal} for status, why in FAILURES.items()},
        },
    }
    return {"/agent/{agent_id}/stream": {"get": operation}}


def asks(path: str) -> bool:
    """Return whether a path is that of a stream."""
    return PATH.fullmatch(path) is not None


class AgentStream:
    """An agent of the pool live, as server-sent events: `GET /agent/{agent_id}/stream`.

    `entry` is an entry of its transcript, `state` its new state after a change, and `draft` a piece of the text that it
    is writing. A message's id is the exact position to resume from, by `Last-Event-ID` or `?after=`; without one the
    stream begins with the transcript. The stream ends with the agent. A client that comes back after the end gets a
    204, so that a browser stops trying.
    """

    def __init__(self, who: Who) -> None:
        self.who = who  # returns the caller

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] != "GET":
            refusal = serialize_response(make_error_response(None, INVALID_REQUEST, "A stream is read with GET."))
            await _answer(send, 405, refusal, [(b"allow", b"GET")])
            return
        try:
            follower = await self._begun(scope)
        except Exception as failure:  # including those of the database driver
            error = documented(failure)
            status = error.status if isinstance(error, AccessDenied) else error.code.status
            await _answer(send, status, serialize_response(error_response(None, error)))
            return
        if follower is None:
            await _answer(send, 204, "")
            return
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await while_there(receive, _send_all(follower, send))

    async def _begun(self, scope: Any) -> Follower | None:
        """Return a follower at the requested position; None if nothing can come any more. Raises NexusError."""
        info, connection = ConnectionInfo.of_scope(scope, scope.get("user")), of_its_own("sse")
        found = PATH.fullmatch(scope["path"])
        assert found is not None
        agent_id = found[1]

        def who() -> Caller:
            return self.who(scope, info, connection)

        caller = await in_thread(AUTHENTICATION, who)
        named = parse_qs(info.query).get("after", [])
        given = next(iter([*info.values("last-event-id"), *named]), None)

        def begin() -> tuple[Position, bool]:
            start = start_of(caller, agent_id, given)
            return start, given is not None and is_over(start)

        start, over = await in_thread(READERS, begin)
        return None if over else Follower(who, start)


async def _send_all(follower: Follower, send: Any) -> None:
    async for message in _messages(follower):
        await send({"type": "http.response.body", "body": message.encode(), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _messages(follower: Follower) -> AsyncIterator[str]:
    yield _position_comment(follower.position)  # so that a client that is cut off before its first entry can resume
    try:
        async with aclosing(follower.follow()) as items:
            async for item in items:
                yield _message(follower.position, item)
    except Exception as failure:  # refused now, or the store is away: a reconnect gets the error
        error = documented(failure)
        yield f"event: closing\ndata: {_json({'code': error.code, 'reason': error.message})}\n\n"


def _message(position: Position, item: Entry | AgentState | Piece | None) -> str:
    if isinstance(item, Entry):
        behind = Position(position.agent, item.position + 1)
        return f"event: entry\nid: {behind}\ndata: {_json(entry_row(item))}\n\n"
    if isinstance(item, Piece):
        return f"event: draft\ndata: {_json(vars(item))}\n\n"
    return _position_comment(position) if item is None else f"event: state\ndata: {_json(item)}\n\n"


def _position_comment(position: Position) -> str:
    """Return a comment with an id: it keeps the connection alive and moves the client's position without an event."""
    return f": here\nid: {position}\n\n"


def _json(value: Any) -> str:
    return json.dumps(value, cls=DjangoJSONEncoder)


async def _answer(send: Any, status: int, text: str, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    body = text.encode()
    kind = [(b"content-type", b"application/json")] if body else []
    await send({"type": "http.response.start", "status": status, "headers": [*kind, *(headers or [])]})
    await send({"type": "http.response.body", "body": body})


MAX_BODY_BYTES = 1_048_576
MAX_HEADERS, MAX_HEADER_BYTES = 128, 32 * 1024
POOL_PATHS, AGENT_PATH = ("/", "/rpc"), "/agent/"
NARROWED = "x-nexus-agent"


class Failed(Exception):
    """A request that is answered with an error before it is dispatched."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class RpcEndpoint:
    """The ASGI application; `token` is the operator's token, valid while the server runs."""

    def __init__(self) -> None:
        self.token: str | None = None

    def serves(self, scope: Mapping[str, Any]) -> bool:
        """Return whether a request is for JSON-RPC and not for the pages of the hub."""
        path: str = scope["path"]
        if self.token is None:  # no pool runs
            return False
        return path == "/rpc" or path.startswith(AGENT_PATH) or (path == "/" and scope["method"] == "POST")

    async def alone(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve a port that has nothing but JSON-RPC: connections other than HTTP are closed."""
        if scope["type"] == "http":
            await self(scope, receive, send)
        else:
            await send({"type": "websocket.close"})

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers: list[tuple[bytes, bytes]] = []
        try:
            if asks(scope["path"]):
                await STREAM(scope, receive, send)
                return
            status, content = 200, await self._answer(scope, receive)
        except Failed as failed:
            status = failed.status
            content = serialize_response(make_error_response(None, failed.code, str(failed)))
            if status in (401, 405):
                headers = [(b"www-authenticate", b"Bearer") if status == 401 else (b"allow", b"POST")]
        except (DatabaseError, NexusError) as failure:  # from the lookup of the caller, the agent or a login
            error = dispatch.documented(failure)
            status, content = error.code.status, serialize_response(error_response(None, error))
        body = content.encode()
        headers += [(b"content-type", b"application/json")] if body else []  # an empty body is not JSON
        headers += [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Any, receive: Any) -> str:
        """Return the body of the answer. Raises Failed."""
        _check_limits(scope)
        scope[COUNTS_VALUES] = True  # a message of MAX_BODY_BYTES may be all commas
        body = await _body(receive)
        if scope["method"] != "POST":
            raise Failed(405, INVALID_REQUEST, "Send a POST.")
        info = ConnectionInfo.of_scope(scope)
        caller = await in_thread(AUTHENTICATION, lambda: self._caller(scope, info))
        agent_id = await _routed(scope["path"], caller)
        try:
            request = parse_request(body)
        except ParseError as error:
            raise Failed(400, error.code, str(error)) from None
        except InvalidParamsError as error:
            return "" if error.id is None else serialize_response(make_error_response(error.id, error.code, str(error)))
        except RpcError as error:
            return serialize_response(make_error_response(None, error.code, str(error)))
        response = await while_there(receive, _dispatched(request, agent_id, caller, info))
        if response is None:
            raise Failed(400, INVALID_REQUEST, "The client left before its answer.")  # nobody reads this
        return "" if request.id is None else serialize_response(response)

    def _caller(self, scope: Any, info: ConnectionInfo) -> Caller:
        """Return the caller: the operator, or the agent that the key belongs to. Raises Failed."""
        try:
            check_place(info)
            _check_machine(scope)
            presented = [value.partition(" ")[2].strip() for value in info.values("authorization") if _is_bearer(value)]
            if not presented:
                raise Failed(401, INVALID_REQUEST, "Present the server's token: Authorization: Bearer nxk_…")
            if len(presented) == 1 and presented[0].startswith(API_KEY_PREFIX):
                if not _is_from_here(scope):
                    raise AccessDenied(403, "The hub's token counts on the hub's machine only; use an agent's key.")
                if not validate_api_key(presented[0], self.token or ""):
                    raise Failed(403, INVALID_REQUEST, "This is not the hub's token; read it again.")
                return Caller("rpc", operator=LOCAL_OPERATOR, connection=operator_connection(LOCAL_OPERATOR))
            return identify(info, transport="rpc", key_required=True)
        except AccessDenied as refused:
            raise Failed(403, INVALID_REQUEST, refused.message) from None

    def follower(self, scope: Any, info: ConnectionInfo, connection: str) -> Caller:
        """Return the caller that follows an agent: by JSON-RPC's credentials, or without its header by the hub's.
        Raises AccessDenied."""
        if not info.values("authorization"):
            if info.keys:
                _check_machine(scope)
            return identify(info, transport="rpc", connection=connection)
        try:
            return _narrowed(self._caller(scope, info), info)
        except Failed as failed:
            raise AccessDenied(failed.status, str(failed)) from None


def _is_from_here(scope: Any) -> bool:
    """Return whether a request comes from this machine: from loopback, or from the very address that it reached."""
    (peer, *_), (server, *_) = scope.get("client") or (None,), scope.get("server") or (None,)
    return is_loopback(peer) or (peer is not None and peer == server)


def _check_machine(scope: Any) -> None:
    """Check that a request comes from this machine, unless a setting admits others. Raises AccessDenied."""
    if not _is_from_here(scope) and not ControlSettings.current().rpc_beyond_loopback:
        raise AccessDenied(
            403, "JSON-RPC answers on the hub's machine only; its operator can set `rpc_beyond_loopback` for keys."
        )


def _is_bearer(value: str) -> bool:
    return value.partition(" ")[0].lower() == "bearer" and bool(value.partition(" ")[2].strip())


def _check_limits(scope: Any) -> None:
    size = sum(len(name) + len(value) for name, value in scope["headers"])
    if len(scope["headers"]) > MAX_HEADERS or size > MAX_HEADER_BYTES:
        raise Failed(400, PARSE_ERROR, f"A request has at most {MAX_HEADERS} headers, of {MAX_HEADER_BYTES} bytes.")
    declared = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"content-length"), "0")
    if whole_number(declared, MAX_BODY_BYTES) is None:
        raise _too_large()


async def _routed(path: str, caller: Caller) -> str | None:
    """Return the agent that a path names; None for the pool. Raises Failed."""
    if path in POOL_PATHS:
        return None
    if not path.startswith(AGENT_PATH):
        raise Failed(404, INVALID_PARAMS, "JSON-RPC is at /rpc, and at /agent/ID for one agent.")
    agent_id = path.removeprefix(AGENT_PATH)
    if not is_agent_id(agent_id) or not await in_thread(AUTHENTICATION, lambda: _may_exist(agent_id, caller)):
        raise Failed(404, INVALID_PARAMS, f"There is no agent {agent_id[:100]!r} in the pool.")
    return agent_id


def _may_exist(agent_id: str, caller: Caller) -> bool:
    """Return whether there is an agent of this name. A caller that is not of the pool learns no names: its call is
    refused, whatever it names."""
    return find(agent_id) is not None or (caller.agent_id is not None and find(caller.agent_id) is None)


async def _body(receive: Any) -> bytes:
    body = bytearray()
    while True:
        try:
            message = await receive()
        except TooMuch as error:
            raise Failed(400, PARSE_ERROR, str(error)) from None
        if message["type"] == "http.disconnect":
            raise Failed(400, PARSE_ERROR, "The client left before its request was whole.")
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise _too_large()
        if not message.get("more_body", False):
            break
    whole = bytes(body)
    if values_in(whole) > most_values() < values_outside_texts(whole):
        raise Failed(400, PARSE_ERROR, "The request holds more values than any call takes.")
    return whole


def _too_large() -> Failed:
    return Failed(400, PARSE_ERROR, f"A request's body has at most {MAX_BODY_BYTES} bytes.")


async def _dispatched(request: Request, agent_id: str | None, caller: Caller, info: ConnectionInfo) -> Response:
    """Call the operation and return JSON-RPC's response."""
    name = operation_of(request.method, agent_id is not None)
    if name is None:
        return make_error_response(request.id, METHOD_NOT_FOUND, f"There is no method {request.method[:100]!r} here.")
    arguments = {**CONTRACT.get(request.method, {}), **(request.params or {})}
    if agent_id is not None:
        if "agent_id" in arguments:
            return make_error_response(request.id, INVALID_PARAMS, "agent_id stands in the path; leave it out.")
        arguments["agent_id"] = agent_id
    try:
        caller = await in_thread(AUTHENTICATION, lambda: _narrowed(caller, info))
    except NexusError as error:
        return error_response(request.id, error)
    outcome = await dispatch.aperform(CONTROL, caller, name, arguments)
    if outcome.error is not None:
        return error_response(request.id, outcome.error)
    return make_success_response(request.id, outcome.data)


def _narrowed(caller: Caller, info: ConnectionInfo) -> Caller:
    """Return the caller, narrowed to the agent that a header names: an operator may act as an agent. Raises
    VALIDATION_ERROR."""
    named = info.values(NARROWED)
    if not named:
        return caller
    if caller.agent_id is not None and named != [caller.agent_id]:
        raise invalid(f"This key is of {caller.agent_id!r}; X-Nexus-Agent names another.", field="X-Nexus-Agent")
    if len(named) != 1 or not is_agent_id(named[0]) or (agent := find(named[0])) is None:
        raise invalid("X-Nexus-Agent must name an agent of the pool.", field="X-Nexus-Agent")
    if caller.agent_id is not None:
        return caller
    return Caller("rpc", agent_id=agent.agent_id, connection=f"rpc:{agent.pk}")


ENDPOINT = RpcEndpoint()
STREAM = AuthMiddlewareStack(AgentStream(ENDPOINT.follower))  # a login to the pages is accepted, too
