"""The life of a handoff: total functions over plain values.

                              ┌────────────────── return (verifier) ─────────────────┐
                              ▼                                                      │
OPEN ──claim (admitted)──▶ CLAIMED ──start──▶ IN_PROGRESS                        SUBMITTED ──accept (verifier)──┐
 │ ▲                          │  │               │   ▲                               ▲                          │
 │ │                          │  └──────block────┤   │ start                         │ submit                   │
 │ │                          │                  ▼   │                               │                          │
 │ │                          │                 BLOCKED                              │                          │
 │ └─── the lease lapses ─────┴──── held: by its claimant, who alone does these ─────┤                          ▼
 │                                                                                   └──────complete──▶ COMPLETED
 ├──reject (direct target)──▶ REJECTED ◀──reject (claimant) from every held state
 ├──cancel (creator)──▶ CANCELLED
 └──its deadline passes──▶ EXPIRED

To complete is to submit where a verifier is named. An operator may cancel, extend, accept and return what anybody may,
release what is held (it is open again, and is restored while nobody acted on it) and reassign what is live and not
submitted (it is open, for one agent); what came to nothing is offered once more as a new handoff, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from nexus.core.operations.errors import Code, NexusError


class Part(StrEnum):
    """What an agent is to a handoff."""

    CLAIMANT = "its claimant"
    TARGET = "the agent of its direct target"
    CREATOR = "its creator"
    VERIFIER = "its verifier, who did not do the work,"
    OPERATOR = "an operator"


class Step(NamedTuple):
    """Where a verb leads and who may take it. A claim depends on the target instead."""

    to: str
    who: frozenset[Part]


HELD = ("CLAIMED", "IN_PROGRESS", "BLOCKED")
_holder = frozenset({Part.CLAIMANT})
_holder_or_operator = frozenset({Part.CLAIMANT, Part.OPERATOR})
_verifier = frozenset({Part.VERIFIER, Part.OPERATOR})
_operator = frozenset({Part.OPERATOR})

STEPS: Mapping[tuple[str, str], Step] = {
    ("claim", "OPEN"): Step("CLAIMED", frozenset()),
    ("reject", "OPEN"): Step("REJECTED", frozenset({Part.TARGET})),
    ("cancel", "OPEN"): Step("CANCELLED", frozenset({Part.CREATOR, Part.OPERATOR})),
    **{("start", held): Step("IN_PROGRESS", _holder) for held in HELD},
    **{("block", held): Step("BLOCKED", _holder) for held in HELD},
    **{("extend", held): Step(held, _holder_or_operator) for held in HELD},
    **{("complete", held): Step("COMPLETED", _holder) for held in HELD},
    **{("submit", held): Step("SUBMITTED", _holder) for held in HELD},
    **{("reject", held): Step("REJECTED", _holder) for held in HELD},
    ("accept", "SUBMITTED"): Step("COMPLETED", _verifier),
    ("return", "SUBMITTED"): Step("CLAIMED", _verifier),
    **{("release", held): Step("OPEN", _operator) for held in HELD},
    ("restore", "OPEN"): Step("CLAIMED", _operator),  # or to what it was when it was released
    **{("reassign", live): Step("OPEN", _operator) for live in ("OPEN", *HELD)},
    **{("reoffer", ended): Step(ended, _operator) for ended in ("REJECTED", "CANCELLED", "EXPIRED")},
}
OWNED = {"cancel": frozenset({Part.CREATOR, Part.OPERATOR})}  # asked for its owner before the state, as documented
HINTS = {
    **dict.fromkeys(HELD, "It is its claimant's to resolve, until the lease lapses."),
    "OPEN": "handoff_claim takes it.",
    "SUBMITTED": "It waits for its verifier.",
    "EXPIRED": "Nobody had it when its deadline passed.",
}


def lapsed(*, lease_expires_at: datetime | None, now: datetime) -> bool:
    """Return whether a lease ended strictly before `now`, so that the handoff counts as open again."""
    return lease_expires_at is not None and lease_expires_at < now


def state_at(*, status: str, lease_expires_at: datetime | None, deadline_at: datetime | None, now: datetime) -> str:
    """Return the state at `now`, whether or not it was recorded: held with an expired lease is open again, and open
    with its deadline strictly before `now` is expired."""
    if status in HELD and lapsed(lease_expires_at=lease_expires_at, now=now):
        status = "OPEN"
    if status == "OPEN" and deadline_at is not None and deadline_at < now:
        return "EXPIRED"
    return status


def step(verb: str, status: str, parts: Set[Part]) -> str:
    """Return the state that a verb leads to for an agent with these parts.

    Raises INVALID_TRANSITION where the state has no such step, then NOT_OWNER; `cancel` checks the two the other
    way round.
    """
    if verb in OWNED and not parts & OWNED[verb]:
        raise _not_owner(verb, OWNED[verb])
    if (verb, status) not in STEPS:
        hint = HINTS.get(status)
        raise NexusError(
            Code.INVALID_TRANSITION,
            f"Cannot {verb} a handoff that is {status}.{f' {hint}' if hint else ''}",
            {"status": status},
        )
    to, who = STEPS[verb, status]
    if who and not parts & who:
        raise _not_owner(verb, who)
    return to


def _not_owner(verb: str, who: Set[Part]) -> NexusError:
    return NexusError(Code.NOT_OWNER, f"Only {' or '.join(sorted(who))} may {verb} this handoff.")
