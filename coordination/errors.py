"""The closed catalog of error codes and the one exception that carries them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class Code(StrEnum):
    """Every code an envelope may carry (contract: Response Envelope & Error Catalog)."""

    WORKSPACE_REQUIRED = "WORKSPACE_REQUIRED"  # the operation needs a workspace and none was given
    WORKSPACE_UNRESOLVED = "WORKSPACE_UNRESOLVED"  # the path leads to no real directory
    WORKSPACE_MISMATCH = "WORKSPACE_MISMATCH"  # the entity lives in another workspace
    VALIDATION_ERROR = "VALIDATION_ERROR"  # an argument is missing, malformed or unknown
    NOT_FOUND = "NOT_FOUND"  # no such entity
    NOT_OWNER = "NOT_OWNER"  # the caller may not act on, or as, this
    INVALID_TRANSITION = "INVALID_TRANSITION"  # the state machine has no such step
    INVALID_STREAM = "INVALID_STREAM"  # not one of the event streams
    HANDOFF_ALREADY_CLAIMED = "HANDOFF_ALREADY_CLAIMED"  # somebody else won
    NOT_ELIGIBLE_TO_CLAIM = "NOT_ELIGIBLE_TO_CLAIM"  # the target does not name this agent
    CONTENT_TOO_LARGE = "CONTENT_TOO_LARGE"  # inline content above max_inline_bytes
    PATH_OUTSIDE_WORKSPACE = "PATH_OUTSIDE_WORKSPACE"  # the resolved path leaves the workspace
    CONFIG_ERROR = "CONFIG_ERROR"  # a flag, variable or file of the configuration is invalid
    MIGRATION_ERROR = "MIGRATION_ERROR"  # the store could not be brought to this version
    DB_ERROR = "DB_ERROR"  # the store failed; details.retryable says whether to try again
    RENDER_ERROR = "RENDER_ERROR"  # a derived file could not be written
    MIGRATED = "MIGRATED"  # the tool was replaced; the message names what to call
    INTERNAL_ERROR = "INTERNAL_ERROR"  # unexpected; the log has the traceback


class NexusError(Exception):
    """A failure with a documented code; the message says what to do about it."""

    def __init__(self, code: Code, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = dict(details or {})


def invalid(message: str, **details: Any) -> NexusError:
    """A VALIDATION_ERROR; raise what this returns."""
    return NexusError(Code.VALIDATION_ERROR, message, details)


def not_found(what: str, value: str) -> NexusError:
    """A NOT_FOUND that names the kind of entity and the id that was asked for."""
    return NexusError(Code.NOT_FOUND, f"No such {what}: {value!r}.", {what.replace(" ", "_"): value})


def ok(data: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The success envelope."""
    return {"ok": True, "data": dict(data or {})}


def failure(error: NexusError) -> dict[str, Any]:
    """The failure envelope; `details` only where there are any."""
    body: dict[str, Any] = {"code": error.code.value, "message": error.message}
    if error.details:
        body["details"] = error.details
    return {"ok": False, "error": body}
