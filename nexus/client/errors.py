"""What a call to a server may raise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ClientError(Exception):
    """A call that came to nothing; the message is for people."""


class NotReached(ClientError):
    """No server of ours answers there."""


class NoAnswer(ClientError):
    """The time was over. What was asked for may be done all the same."""


class CallFailed(ClientError):
    """The server's own error: JSON-RPC's `code`, and `data` such as {"code": "NOT_PERMITTED", "details": {…}}."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class NotAuthorized(ClientError):
    """There is no token that can be read, or it is none of this server's run."""


def failure(status: int, error: Mapping[str, Any]) -> ClientError:
    """What an answer of this HTTP status says, by the error of JSON-RPC in it."""
    if status in (401, 403):
        return NotAuthorized(error["message"])
    return CallFailed(error["code"], error["message"], error.get("data"))
