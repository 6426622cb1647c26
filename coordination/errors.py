"""The closed catalog of error codes and the one exception that carries them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self


class Code(StrEnum):
    """Every code an envelope may carry, with what it means (contract: Response Envelope & Error Catalog)."""

    meaning: str

    def __new__(cls, value: str, meaning: str = "") -> Self:  # a value alone is a look-up
        code = str.__new__(cls, value)
        code._value_ = value
        code.meaning = meaning
        return code

    WORKSPACE_REQUIRED = "WORKSPACE_REQUIRED", "The operation needs a workspace and none was given."
    WORKSPACE_UNRESOLVED = "WORKSPACE_UNRESOLVED", "The path leads to no real directory."
    WORKSPACE_MISMATCH = "WORKSPACE_MISMATCH", "The entity lives in another workspace; check project_root."
    VALIDATION_ERROR = "VALIDATION_ERROR", "An argument is missing, malformed or unknown; details.field names it."
    NOT_FOUND = "NOT_FOUND", "There is no such entity."
    NOT_OWNER = "NOT_OWNER", "The caller may not act on, or as, this."
    INVALID_TRANSITION = "INVALID_TRANSITION", "The entity's status does not allow this step; look at it again."
    INVALID_STREAM = "INVALID_STREAM", "The stream is none of workspace, agent and handoff."
    HANDOFF_ALREADY_CLAIMED = "HANDOFF_ALREADY_CLAIMED", "Another agent has it; take another one."
    NOT_ELIGIBLE_TO_CLAIM = "NOT_ELIGIBLE_TO_CLAIM", "The target does not admit this agent, or not yet."
    CONTENT_TOO_LARGE = (
        "CONTENT_TOO_LARGE",
        "The content exceeds max_inline_bytes; put it into a file and publish its path.",
    )
    PATH_OUTSIDE_WORKSPACE = "PATH_OUTSIDE_WORKSPACE", "The path, its links resolved, leaves the project."
    CONFIG_ERROR = "CONFIG_ERROR", "A flag, a variable, a stored setting or a file of the configuration is invalid."
    MIGRATION_ERROR = "MIGRATION_ERROR", "The store could not be brought to this version, or is of a newer one."
    DB_ERROR = (
        "DB_ERROR",
        "The store failed. With details.retryable, send the same call again in a moment; without, tell the operator.",
    )
    RENDER_ERROR = "RENDER_ERROR", "A derived file, such as shared.md, could not be written."
    MIGRATED = "MIGRATED", "The tool was replaced; details.replacements names what to call."
    INTERNAL_ERROR = "INTERNAL_ERROR", "Something unexpected; the server's log has the traceback."


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
