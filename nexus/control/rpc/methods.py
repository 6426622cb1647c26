"""JSON-RPC's methods: the pool's operations by their short names, and the codes of their errors."""

from __future__ import annotations

import json

from nexus.client.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    SERVER_ERROR,
    Id,
    Response,
    make_error_response,
)
from nexus.control.errors import ControlCode
from nexus.control.toolset import PREFIX
from nexus.core.operations.errors import Code, NexusError

GLOBAL = frozenset(("create_agent", "destroy_agent", "list_agents", "shutdown_server"))
OF_AGENT = frozenset(("send", "cancel", "get_tokens", "get_context", "get_messages", "compact", "shutdown"))

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
    """Return the name of the operation behind a method, of one agent or of the pool; None if there is none."""
    return PREFIX + method if method in (OF_AGENT if of_agent else GLOBAL) else None


def code_of(error: NexusError) -> int:
    """Return JSON-RPC's code for a documented error."""
    return CODES.get(error.code, SERVER_ERROR)


def error_response(request_id: Id, error: NexusError) -> Response:
    """Return JSON-RPC's response for a documented error; `data` holds its own code, and its details if there are
    any."""
    data = {"code": error.code.value, **({"details": error.details} if error.details else {})}
    return make_error_response(request_id, code_of(error), error.message, json.loads(json.dumps(data, default=str)))
