"""The codes of this app."""

from __future__ import annotations

from nexus.core.operations.errors import ErrorCode


class InboxCode(ErrorCode):
    """Error of an operation that was replaced."""

    MIGRATED = "MIGRATED", 410, "The tool was replaced; details.replacements names what to call."
