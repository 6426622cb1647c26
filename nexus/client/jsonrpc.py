"""JSON-RPC 2.0, one request at a time, with named parameters (docs/reference/json-rpc.md).

No library fits: they accept batches and positional parameters, and do not allow other checks in between.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NoReturn

VERSION = "2.0"
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
SERVER_ERROR = -32000
MAX_DIGITS = 400  # of a number; a float holds 309

Id = str | int | None


@dataclass(frozen=True)
class Request:
    """A call; without an id it is a notification, which gets no response."""

    jsonrpc: str
    method: str
    params: dict[str, Any] | None = None
    id: Id = None


@dataclass(frozen=True)
class Response:
    """The outcome of a call: a result, or an error with code, message and data."""

    jsonrpc: str
    id: Id
    result: Any = None
    error: dict[str, Any] | None = None


class RpcError(Exception):
    """An invalid message; `code` is JSON-RPC's."""

    code = INTERNAL_ERROR


class ParseError(RpcError):
    """The message is not JSON."""

    code = PARSE_ERROR


class InvalidRequestError(RpcError):
    """The message is JSON, but not a request."""

    code = INVALID_REQUEST


class InvalidParamsError(RpcError):
    """The parameters are not named; `id` is that of the request, None for a notification."""

    code = INVALID_PARAMS

    def __init__(self, message: str, id: Id) -> None:
        super().__init__(message)
        self.id = id


def parse_request(text: str | bytes) -> Request:
    """Read a request. Raises ParseError, InvalidRequestError, InvalidParamsError."""
    message = _object(text)
    if message.get("jsonrpc") != VERSION:
        raise InvalidRequestError('A request is an object with "jsonrpc": "2.0".')
    method, params, identifier = message.get("method"), message.get("params"), message.get("id")
    if not isinstance(method, str) or not method:
        raise InvalidRequestError("method must be the name of one.")
    if not _is_id(identifier):
        raise InvalidRequestError("id must be a string, a whole number, or left out.")
    if params is not None and not isinstance(params, dict):
        raise InvalidParamsError("params must be an object: parameters are named.", identifier)
    return Request(VERSION, method, params, identifier)


def serialize_request(request: Request) -> str:
    """Return a request as one line of JSON."""
    message: dict[str, Any] = {"jsonrpc": request.jsonrpc, "method": request.method}
    if request.params is not None:
        message["params"] = request.params
    if request.id is not None:
        message["id"] = request.id
    return json.dumps(message)


def parse_response(text: str | bytes) -> Response:
    """Read a response. Raises ParseError, InvalidRequestError."""
    message = _object(text)
    error = message.get("error")
    if message.get("jsonrpc") != VERSION or ("result" in message) == (error is not None):
        raise InvalidRequestError("A response holds either a result or an error.")
    if error is not None and not (
        isinstance(error, dict) and type(error.get("code")) is int and isinstance(error.get("message"), str)
    ):
        raise InvalidRequestError("An error holds a code and a message.")
    if not _is_id(message.get("id")):
        raise InvalidRequestError("id must be a string, a whole number, or null.")
    return Response(VERSION, message.get("id"), message.get("result"), error)


def serialize_response(response: Response) -> str:
    """Return a response as one line of JSON, in ASCII, so that any text of an id can be sent back."""
    message: dict[str, Any] = {"jsonrpc": response.jsonrpc, "id": response.id}
    if response.error is None:
        message["result"] = response.result
    else:
        message["error"] = response.error
    return json.dumps(message)


def make_error_response(id: Id, code: int, message: str, data: Any = None) -> Response:
    """Return the response to a call that failed."""
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return Response(VERSION, id, error=error)


def make_success_response(id: Id, result: Any) -> Response:
    """Return the response to a call."""
    return Response(VERSION, id, result=result)


def _is_id(value: Any) -> bool:
    return value is None or (isinstance(value, str | int) and not isinstance(value, bool))


def _object(text: str | bytes) -> dict[str, Any]:
    try:
        text = text if isinstance(text, str) else text.decode()  # as UTF-8; json would guess other encodings
        message = json.loads(text, parse_constant=_refuse, parse_int=_whole)
    except ValueError:
        raise ParseError("This is no JSON in UTF-8.") from None
    except RecursionError:
        raise ParseError("This is nested too deeply to be read.") from None
    if not isinstance(message, dict):
        raise InvalidRequestError("Send one object; there are no batches.")
    return message


def _whole(digits: str) -> int | float:
    """Return a whole number; with too many digits a float, which may be infinity, as for other numbers."""
    return int(digits) if len(digits) <= MAX_DIGITS else float(digits)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
