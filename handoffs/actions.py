"""What a person can do about a handoff, there and then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.contributions import Action
from handoffs.models import Handoff


def titles(handoff_ids: Sequence[str]) -> dict[str, str]:
    """What handoffs are called, by id."""
    return dict(Handoff.objects.filter(pk__in=handoff_ids).values_list("pk", "title"))


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
