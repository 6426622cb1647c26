"""The codes of this app."""

from __future__ import annotations

from nexus.core.operations.errors import ErrorCode


class InboxCode(ErrorCode):
    """Errors of operations that were removed."""

    MIGRATED = "MIGRATED", 410, "The tool was replaced; details.replacements names what to call."
