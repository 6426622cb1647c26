"""How Nexus knows who wrote a message or a handoff: what a sender cannot forge, and what it says of itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Annotated

from coordination.models import Agent
from nexus.core.operations.caller import LOCAL_OPERATOR, Caller
from nexus.core.operations.parameters import one_of


class Proof(StrEnum):
    """What proves a sender."""

    LOGIN = "login"
    LOCAL = "local"
    KEY = "key"
    SESSION = "session"
    HUB = "hub"


SENTENCES: Mapping[str | None, str] = {
    Proof.LOGIN: "an operator, logged in",
    Proof.LOCAL: "an operator, or a program of the same user",  # who are alike without a login
    Proof.KEY: "an agent, proven by its key",
    Proof.SESSION: "an agent, proven by its session's secret",
    Proof.HUB: "Nexus itself",
    None: "an agent; nothing proves it",
}
FromProof = Annotated[
    str,
    one_of(
        Proof,
        "What proves the sender: an operator's login, the hub's machine, an agent's key or its session's secret, "
        "or that Nexus wrote it. Absent: nothing proves the name.",
    ),
]


def proof_of(caller: Caller, session_secret: str | None) -> Proof | None:
    """Return what proves the sender of a call whose session was checked; None if nothing does."""
    if caller.operator is not None:
        return Proof.LOCAL if caller.operator == LOCAL_OPERATOR else Proof.LOGIN
    if caller.agent_id is not None:
        return Proof.KEY
    return None if session_secret is None else Proof.SESSION


def roles_of(agent_ids: Collection[str]) -> Mapping[str, str]:
    """Return the roles of those agents that have one. An agent may choose its role itself."""
    known = Agent.everyone.filter(pk__in=set(agent_ids), role__isnull=False)
    return {agent_id: role for agent_id, role in known.values_list("pk", "role") if role}
