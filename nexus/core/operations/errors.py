"""Error codes, and the exception that carries them. Each app declares its own codes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self


class ErrorCode(StrEnum):
    """The base of every catalog of codes: each code has a meaning and the HTTP status of its answers."""

    meaning: str
    status: int

    def __new__(cls, value: str, status: int = 500, meaning: str = "") -> Self:  # a value alone is a look-up
        code = str.__new__(cls, value)
        code._value_ = value
        code.status = status
        code.meaning = meaning
        return code


class Code(ErrorCode):
    """The codes that any operation may return."""

    VALIDATION_ERROR = "VALIDATION_ERROR", 400, "An argument is missing, malformed or unknown; details.field names it."
    NOT_FOUND = "NOT_FOUND", 404, "There is no such entity."
    NOT_OWNER = "NOT_OWNER", 403, "The caller may not act on, or as, this."
    NOT_ALLOWED = "NOT_ALLOWED", 403, "An operator does not allow this agent to call this operation."
    INVALID_TRANSITION = (
        "INVALID_TRANSITION",
        409,
        "The entity's status does not allow this step; look at it again.",
    )
    CONTENT_TOO_LARGE = (
        "CONTENT_TOO_LARGE",
        413,
        "The content exceeds max_inline_bytes; put it into a file and publish its path.",
    )
    CONFIG_ERROR = (
        "CONFIG_ERROR",
        409,
        "A flag, a variable, a stored setting or a file of the configuration is invalid.",
    )
    MIGRATION_ERROR = (
        "MIGRATION_ERROR",
        500,
        "The store could not be migrated to this version, is too old for that, or a newer version made it.",
    )
    DB_ERROR = (
        "DB_ERROR",
        503,
        "The store failed. With details.retryable, send the same call again in a moment; without, tell the operator.",
    )
    INTERNAL_ERROR = "INTERNAL_ERROR", 500, "Something unexpected; the server's log has the traceback."


class NexusError(Exception):
    """A failure with a documented code; the message says what to do about it."""

    def __init__(self, code: ErrorCode, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = dict(details or {})


def invalid(message: str, **details: Any) -> NexusError:
    """Return a VALIDATION_ERROR, for the caller to raise."""
    return NexusError(Code.VALIDATION_ERROR, message, details)


def not_found(what: str, value: str) -> NexusError:
    """Return a NOT_FOUND that names the kind of entity and the requested id, for the caller to raise."""
    return NexusError(Code.NOT_FOUND, f"No such {what}: {value!r}.", {what.replace(" ", "_"): value})
