"""The error codes of this app."""

from __future__ import annotations

from nexus.core.operations.errors import ErrorCode


class ControlCode(ErrorCode):
    """Reasons why the pool cannot do what a call asks."""

    NOT_PERMITTED = (
        "NOT_PERMITTED",
        403,
        "The caller's position in the pool, or its ceiling, does not allow this; details.rule names the rule.",
    )
    POOL_OFF = "POOL_OFF", 409, "No pool runs: start the server with --control."
    NO_MACHINE = (
        "NO_MACHINE",
        409,
        "No working machine has what the agent's runner needs; the message says what is missing.",
    )
    POOL_FULL = (
        "POOL_FULL",
        429,
        "The number of agents, or of waiting turns, has reached its limit, or an agent its share.",
    )
    WORKTREE_REFUSED = (
        "WORKTREE_REFUSED",
        409,
        "git or the worktree's content does not allow this; nothing was changed. The message says why.",
    )
    TURN_FAILED = "TURN_FAILED", 502, "The agent's runner did not finish the turn; details.why says how it ended."
    TURN_INTERRUPTED = (
        "TURN_INTERRUPTED",
        503,
        "The server or its worker ended in the middle of the turn. Send the message again.",
    )
