"""The actions that an operator can take on a handoff from its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from handoffs.lifecycle import STEPS, Part
from handoffs.sentences import titles
from nexus.core.contributions import Action


def _handoff(handoff_id: str) -> dict[str, str]:
    return {"handoff_id": handoff_id}


def _action(
    operation: str,
    label: str,
    done: str,
    asks: Mapping[str, str] = {},  # never changed
    *,
    needed: Sequence[str] = (),
    undo: str = "",
    danger: bool = False,
) -> Action:
    things = ("handoff", "handoffs")
    return Action(operation, label, done, things, _handoff, titles, asks, needed, undo, danger)


WHY = "Why (whom it concerns is told)"

ACTIONS = (
    _action("handoff_approve", "Accept", "accepted"),
    _action("handoff_send_back", "Return…", "returned", {"reasons": "What is wrong with it"}, needed=["reasons"]),
    _action("handoff_release", "Release", "released", undo="handoff_release_undo"),
    _action("handoff_release_undo", "Undo", "given back to whom it was taken from"),
    _action(
        "handoff_reassign",
        "Reassign…",
        "reassigned",
        {"agent_id": "To which agent", "reason": WHY},
        needed=["agent_id"],
    ),
    _action("handoff_prolong", "Extend", "extended"),
    _action(
        "handoff_reoffer", "Offer again…", "offered again", {"agent_id": "For which agent alone (nobody: as before)"}
    ),
    _action("handoff_withdraw", "Cancel…", "cancelled", {"reason": "Reason (optional)"}, danger=True),
)

VERBS = {  # by step of the lifecycle, the action that takes it; the likeliest first
    "accept": "handoff_approve",
    "return": "handoff_send_back",
    "extend": "handoff_prolong",
    "release": "handoff_release",
    "reassign": "handoff_reassign",
    "reoffer": "handoff_reoffer",
    "cancel": "handoff_withdraw",
}


def possible(status: str) -> list[Action]:
    """Return the actions that an operator can take on a handoff in a state."""
    by_name = {action.operation: action for action in ACTIONS}
    steps = ((operation, STEPS.get((verb, status))) for verb, operation in VERBS.items())
    return [by_name[operation] for operation, step in steps if step is not None and Part.OPERATOR in step.who]
