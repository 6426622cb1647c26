"""Error codes of the planning app."""

from __future__ import annotations

from nexus.core.operations.errors import ErrorCode


class PlanningCode(ErrorCode):
    """Errors of the files in a project's `.nexus` directory."""

    STATE_FILE_INVALID = (
        "STATE_FILE_INVALID",
        409,
        "A file in .nexus breaks its schema; details name file and fault. It was left as it is: correct or remove it.",
    )
    STATE_UNAVAILABLE = (
        "STATE_UNAVAILABLE",
        503,
        "The project's .nexus directory cannot be used: read-only, full, gone, or a link that leads elsewhere.",
    )
    STATE_BUSY = "STATE_BUSY", 503, "Another process works on this project's plan; send the same call again."
