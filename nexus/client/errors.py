"""Errors of calls to a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ClientError(Exception):
    """A call that failed; the message is for people."""


class NotReached(ClientError):
    """No Nexus server answers there."""


class NoAnswer(ClientError):
    """The timeout is over. The server may have done what was asked all the same."""


class CallFailed(ClientError):
    """The server's error: JSON-RPC's `code`, and `data` such as {"code": "NOT_PERMITTED", "details": {…}}."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class NotAuthorized(ClientError):
    """There is no readable token, or it does not belong to this run of the server."""


def failure(status: int, error: Mapping[str, Any]) -> ClientError:
    """Return the error for a response's HTTP status and JSON-RPC error."""
    if status in (401, 403):
        return NotAuthorized(error["message"])
    return CallFailed(error["code"], error["message"], error.get("data"))
