"""Verifiers: who checks a result before it counts. Total functions over plain values.

Stored as text: `creator`, `operator`, `agent:NAME` or `role:NAME`. The agent that did the work never verifies it; where
that leaves nobody, an operator does.
"""

from __future__ import annotations

from typing import Any

from coordination.routing import MAX_NAME, Profile, Strategy, Target
from nexus.core.operations.errors import NexusError, invalid

CREATOR, OPERATOR = "creator", "operator"
KINDS = {"agent_id": "agent", "role": "role"}


def parse_verifier(value: Any) -> str | None:
    """Return the stored text of a verifier given as "creator", "operator", {"agent_id": …} or {"role": …}; None for
    none.

    Raises VALIDATION_ERROR.
    """
    if value is None or value in (CREATOR, OPERATOR):
        return value  # type: ignore[no-any-return]
    if not isinstance(value, dict) or len(value) != 1:
        raise _wrong()
    [(key, name)] = value.items()
    if key not in KINDS or not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME:
        raise _wrong()
    return f"{KINDS[key]}:{name}"


def named_agent(verifier: str | None) -> str | None:
    """Return the agent that a verifier's text names."""
    kind, _, name = (verifier or "").partition(":")
    return name if kind == "agent" else None


def verifies(verifier: str | None, agent: Profile, *, created_by: str, done_by: str | None) -> bool:
    """Return whether an agent may verify a result."""
    if verifier is None or agent.agent_id == done_by:
        return False
    kind, _, name = verifier.partition(":")
    return {
        CREATOR: agent.agent_id == created_by,
        "agent": agent.agent_id == name,
        "role": agent.role == name,
    }.get(kind, False)


def target_of(verifier: str, *, created_by: str) -> Target:
    """Return a target that admits the agents that may verify, without operators."""
    kind, _, name = verifier.partition(":")
    if kind == "role":
        return {"strategy": Strategy.ROLE, "role": name}
    return {"strategy": Strategy.DIRECT, "agent_id": name or created_by}


def serialize(verifier: str | None) -> Any:
    """Return a verifier in the form in which callers give it."""
    kind, colon, name = (verifier or "").partition(":")
    return {given: name for given, kept in KINDS.items() if kept == kind} if colon else verifier


def describe(verifier: str) -> str:
    """Describe a verifier for people."""
    kind, _, name = verifier.partition(":")
    return {"agent": name, "role": f"an agent in the role {name}", OPERATOR: "an operator"}.get(kind, "its creator")


def _wrong() -> NexusError:
    return invalid('verifier must be "creator", "operator", {"agent_id": "…"} or {"role": "…"}.', field="verifier")
