"""JSON-RPC over HTTP: `POST /rpc`, `POST /` and `POST /agent/{id}` (docs/reference/json-rpc.md).

A request is checked in this order: HTTP's limits, the method, the caller, the route, JSON, JSON-RPC, parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from channels.auth import AuthMiddlewareStack
from django.db import DatabaseError

from nexus.client.jsonrpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
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
from nexus.control.members import find
from nexus.control.rpc import stream
from nexus.control.rpc.methods import error_response, operation_of
from nexus.control.rules import is_agent_id
from nexus.control.toolset import CONTROL
from nexus.core.access import ConnectionInfo, Refused, check_place, identify
from nexus.core.cancellation import while_there
from nexus.core.limits import TooMuch
from nexus.core.operations import runner
from nexus.core.operations.caller import LOCAL_OPERATOR, Caller, operator_connection
from nexus.core.operations.errors import NexusError, invalid
from nexus.core.operations.parameters import whole_number
from nexus.core.waiting import AUTHENTICATION, in_thread

MAX_BODY_BYTES = 1_048_576
MAX_HEADERS, MAX_HEADER_BYTES = 128, 32 * 1024
POOL_PATHS, AGENT_PATH = ("/", "/rpc"), "/agent/"
NARROWED = "x-nexus-agent"


class Failed(Exception):
    """A request that is answered with an error before it is dispatched."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class Endpoint:
    """The ASGI application; `token` is the administrator's token, valid while the server runs."""

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
            if stream.asks(scope["path"]):
                await STREAM(scope, receive, send)
                return
            status, content = 200, await self._answer(scope, receive)
        except Failed as failed:
            status = failed.status
            content = serialize_response(make_error_response(None, failed.code, str(failed)))
            if status in (401, 405):
                headers = [(b"www-authenticate", b"Bearer") if status == 401 else (b"allow", b"POST")]
        except (DatabaseError, NexusError) as failure:  # from the lookup of the caller, the agent or a login
            error = runner.documented(failure)
            status, content = error.code.status, serialize_response(error_response(None, error))
        body = content.encode()
        headers += [(b"content-type", b"application/json")] if body else []  # an empty body is not JSON
        headers += [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Any, receive: Any) -> str:
        """Return the body of the answer. Raises Failed."""
        _check_limits(scope)
        body = await _body(receive)
        if scope["method"] != "POST":
            raise Failed(405, INVALID_REQUEST, "Send a POST.")
        info = ConnectionInfo.of_scope(scope)
        caller = await in_thread(AUTHENTICATION, lambda: self._caller(info))
        agent_id = await _routed(scope["path"])
        try:
            request = parse_request(body)
        except ParseError as error:
            raise Failed(400, error.code, str(error)) from None
        except InvalidParamsError as error:
            return "" if error.notified else serialize_response(make_error_response(None, error.code, str(error)))
        except RpcError as error:
            return serialize_response(make_error_response(None, error.code, str(error)))
        response = await while_there(receive, _dispatched(request, agent_id, caller, info))
        if response is None:
            raise Failed(400, INVALID_REQUEST, "The client left before its answer.")  # nobody reads this
        return "" if request.id is None else serialize_response(response)

    def _caller(self, info: ConnectionInfo) -> Caller:
        """Return the caller: the administrator, or the agent that the key belongs to. Raises Failed."""
        try:
            check_place(info)
            presented = [value.partition(" ")[2].strip() for value in info.values("authorization") if _is_bearer(value)]
            if not presented:
                raise Failed(401, INVALID_REQUEST, "Present the server's token: Authorization: Bearer nxk_…")
            if len(presented) == 1 and presented[0].startswith(API_KEY_PREFIX):
                if not validate_api_key(presented[0], self.token or ""):
                    raise Failed(
                        403, INVALID_REQUEST, "This is not the token of this run of the server; read it again."
                    )
                return Caller("rpc", operator=LOCAL_OPERATOR, connection=operator_connection(LOCAL_OPERATOR))
            return identify(info, transport="rpc", key_required=True)
        except Refused as refused:
            raise Failed(403, INVALID_REQUEST, refused.message) from None

    def follower(self, info: ConnectionInfo, connection: str) -> Caller:
        """Return the caller that follows an agent: by JSON-RPC's credentials, or without its header by the hub's.
        Raises Refused."""
        if not info.values("authorization"):
            return identify(info, transport="rpc", connection=connection)
        try:
            return _narrowed(self._caller(info), info)
        except Failed as failed:
            raise Refused(failed.status, str(failed)) from None


def _is_bearer(value: str) -> bool:
    return value.partition(" ")[0].lower() == "bearer" and bool(value.partition(" ")[2].strip())


def _check_limits(scope: Any) -> None:
    size = sum(len(name) + len(value) for name, value in scope["headers"])
    if len(scope["headers"]) > MAX_HEADERS or size > MAX_HEADER_BYTES:
        raise Failed(400, PARSE_ERROR, f"A request has at most {MAX_HEADERS} headers, of {MAX_HEADER_BYTES} bytes.")
    declared = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"content-length"), "0")
    if whole_number(declared, MAX_BODY_BYTES) is None:
        raise _too_large()


async def _routed(path: str) -> str | None:
    """Return the agent that a path names; None for the pool. Raises Failed."""
    if path in POOL_PATHS:
        return None
    if not path.startswith(AGENT_PATH):
        raise Failed(404, INVALID_PARAMS, "JSON-RPC is at /rpc, and at /agent/ID for one agent.")
    agent_id = path.removeprefix(AGENT_PATH)
    if not is_agent_id(agent_id) or await in_thread(AUTHENTICATION, lambda: find(agent_id)) is None:
        raise Failed(404, INVALID_PARAMS, f"There is no agent {agent_id[:100]!r} in the pool.")
    return agent_id


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
            return bytes(body)


def _too_large() -> Failed:
    return Failed(400, PARSE_ERROR, f"A request's body has at most {MAX_BODY_BYTES} bytes.")


async def _dispatched(request: Request, agent_id: str | None, caller: Caller, info: ConnectionInfo) -> Response:
    """Call the operation and return JSON-RPC's response."""
    name = operation_of(request.method, agent_id is not None)
    if name is None:
        return make_error_response(request.id, METHOD_NOT_FOUND, f"There is no method {request.method[:100]!r} here.")
    arguments = dict(request.params or {})
    if agent_id is not None:
        if "agent_id" in arguments:
            return make_error_response(request.id, INVALID_PARAMS, "agent_id stands in the path; leave it out.")
        arguments["agent_id"] = agent_id
    try:
        caller = await in_thread(AUTHENTICATION, lambda: _narrowed(caller, info))
    except NexusError as error:
        return error_response(request.id, error)
    outcome = await runner.aperform(CONTROL, caller, name, arguments)
    if outcome.error is not None:
        return error_response(request.id, outcome.error)
    return make_success_response(request.id, outcome.data)


def _narrowed(caller: Caller, info: ConnectionInfo) -> Caller:
    """Return the caller, narrowed to the agent that a header names: an administrator may act as an agent. Raises
    VALIDATION_ERROR."""
    named = info.values(NARROWED)
    if not named:
        return caller
    if len(named) != 1 or not is_agent_id(named[0]) or (agent := find(named[0])) is None:
        raise invalid("X-Nexus-Agent must name an agent of the pool.", field="X-Nexus-Agent")
    if caller.agent_id is not None and caller.agent_id != agent.agent_id:
        raise invalid(f"This key is of {caller.agent_id!r}; X-Nexus-Agent names another.", field="X-Nexus-Agent")
    if caller.agent_id is not None:
        return caller
    return Caller("rpc", agent_id=agent.agent_id, connection=f"rpc:{agent.pk}")


ENDPOINT = Endpoint()
STREAM = AuthMiddlewareStack(stream.Stream(ENDPOINT.follower))  # a login to the pages is accepted, too
