"""The life of a handoff, and who may verify its result: total functions over plain values.

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

To complete is to submit where a verifier is named or Nexus has checks to run. Their failure returns it; their success
completes it, unless a verifier is named. An operator may cancel, extend, accept and return what anybody may, hand what
is held to another holder, release it (it is open again) and reassign what is live and not submitted (it is open, for
one agent); what came to nothing is offered once more as a new handoff, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from coordination.routing import MAX_NAME, Profile, Strategy, Target
from nexus.core.operations.errors import Code, ErrorCode, NexusError, invalid


class HandoffCode(ErrorCode):
    """Why a handoff cannot be claimed."""

    HANDOFF_ALREADY_CLAIMED = "HANDOFF_ALREADY_CLAIMED", 409, "Another agent has claimed it; take another one."
    NOT_ELIGIBLE_TO_CLAIM = "NOT_ELIGIBLE_TO_CLAIM", 403, "The target does not admit this agent, or not yet."


class Party(StrEnum):
    """What an agent is to a handoff."""

    CLAIMANT = "its claimant"
    TARGET = "the agent of its direct target"
    CREATOR = "its creator"
    VERIFIER = "its verifier, who did not do the work,"
    OPERATOR = "an operator"


class Transition(NamedTuple):
    """Where a verb leads and who may take it. A claim depends on the target instead."""

    to: str
    who: frozenset[Party]


HELD = ("CLAIMED", "IN_PROGRESS", "BLOCKED")
_holder = frozenset({Party.CLAIMANT})
_holder_or_operator = frozenset({Party.CLAIMANT, Party.OPERATOR})
_verifier = frozenset({Party.VERIFIER, Party.OPERATOR})
_operator = frozenset({Party.OPERATOR})

STEPS: Mapping[tuple[str, str], Transition] = {
    ("claim", "OPEN"): Transition("CLAIMED", frozenset()),
    ("reject", "OPEN"): Transition("REJECTED", frozenset({Party.TARGET})),
    ("cancel", "OPEN"): Transition("CANCELLED", frozenset({Party.CREATOR, Party.OPERATOR})),
    **{("start", held): Transition("IN_PROGRESS", _holder) for held in HELD},
    **{("block", held): Transition("BLOCKED", _holder) for held in HELD},
    **{("extend", held): Transition(held, _holder_or_operator) for held in HELD},
    **{("complete", held): Transition("COMPLETED", _holder) for held in HELD},
    **{("submit", held): Transition("SUBMITTED", _holder) for held in HELD},
    **{("reject", held): Transition("REJECTED", _holder) for held in HELD},
    ("accept", "SUBMITTED"): Transition("COMPLETED", _verifier),
    ("return", "SUBMITTED"): Transition("CLAIMED", _verifier),
    **{("release", held): Transition("OPEN", _operator) for held in HELD},
    **{("reassign", live): Transition("OPEN", _operator) for live in ("OPEN", *HELD)},
    **{("reoffer", ended): Transition(ended, _operator) for ended in ("REJECTED", "CANCELLED", "EXPIRED")},
}
OWNED = {"cancel": frozenset({Party.CREATOR, Party.OPERATOR})}  # asked for its owner before the state, as documented
HINTS = {
    **dict.fromkeys(HELD, "It is its claimant's to resolve, until the lease lapses."),
    "OPEN": "handoff_claim takes it.",
    "SUBMITTED": "It waits for its checks or its verifier.",
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


def step(verb: str, status: str, parts: Set[Party]) -> str:
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


def _not_owner(verb: str, who: Set[Party]) -> NexusError:
    return NexusError(Code.NOT_OWNER, f"Only {' or '.join(sorted(who))} may {verb} this handoff.")


# A verifier checks a result before it counts. It is stored as text: `creator`, `operator`, `agent:NAME`, `role:NAME`
# or `capability:NAME`.
# The agent that did the work never verifies it; where that leaves nobody, an operator does.
CREATOR, OPERATOR = "creator", "operator"
VERIFIER_KINDS = {"agent_id": "agent", "role": "role", "capability": "capability"}


def parse_verifier(value: Any) -> str | None:
    """Return the stored text of a verifier given as "creator", "operator", {"agent_id": …}, {"role": …} or
    {"capability": …}; None for none.

    Raises VALIDATION_ERROR.
    """
    if value is None or value in (CREATOR, OPERATOR):
        return value  # type: ignore[no-any-return]
    if not isinstance(value, dict) or len(value) != 1:
        raise _invalid_verifier()
    [(key, name)] = value.items()
    if key not in VERIFIER_KINDS or not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME:
        raise _invalid_verifier()
    return f"{VERIFIER_KINDS[key]}:{name}"


def named_agent(verifier: str | None) -> str | None:
    """Return the agent that a verifier's text names."""
    kind, _, name = (verifier or "").partition(":")
    return name if kind == "agent" else None


def verifies(verifier: str | None, agent: Profile, *, created_by: str, done_by: Collection[str | None]) -> bool:
    """Return whether an agent may verify a result."""
    if verifier is None or agent.agent_id in done_by:
        return False
    kind, _, name = verifier.partition(":")
    return {
        CREATOR: agent.agent_id == created_by,
        "agent": agent.agent_id == name,
        "role": agent.role == name,
        "capability": name in agent.capabilities,
    }.get(kind, False)


def target_of_verifier(verifier: str, *, created_by: str) -> Target:
    """Return a target that admits the agents that may verify, without operators."""
    kind, _, name = verifier.partition(":")
    if kind in ("role", "capability"):
        return {"strategy": kind, kind: name}
    return {"strategy": Strategy.DIRECT, "agent_id": name or created_by}


def serialize_verifier(verifier: str | None) -> Any:
    """Return a verifier in the form in which callers give it; a text that names none stays, for them to refuse."""
    kind, _, name = (verifier or "").partition(":")
    return {given: name for given, kept in VERIFIER_KINDS.items() if kept == kind} or verifier


def describe_verifier(verifier: str) -> str:
    """Describe a verifier for people."""
    kind, _, name = verifier.partition(":")
    return {
        "agent": name,
        "role": f"an agent in the role {name}",
        "capability": f"an agent that has {name}",
        OPERATOR: "an operator",
    }.get(kind, "its creator")


def _invalid_verifier() -> NexusError:
    return invalid(
        'verifier must be "creator", "operator", {"agent_id": "…"}, {"role": "…"} or {"capability": "…"}.',
        field="verifier",
    )
