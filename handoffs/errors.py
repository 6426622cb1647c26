"""The codes of this app."""

from __future__ import annotations

from nexus.core.operations.errors import ErrorCode


class HandoffCode(ErrorCode):
    """Why a handoff cannot be claimed."""

    HANDOFF_ALREADY_CLAIMED = "HANDOFF_ALREADY_CLAIMED", 409, "Another agent has claimed it; take another one."
    NOT_ELIGIBLE_TO_CLAIM = "NOT_ELIGIBLE_TO_CLAIM", 403, "The target does not admit this agent, or not yet."
