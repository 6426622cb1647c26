"""How Nexus knows who wrote a message or a handoff: what a sender cannot forge, and what it says of itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Protocol

from pydantic import Field

from coordination.models import Agent
from nexus.core.apps import nexus_apps
from nexus.core.operations.caller import LOCAL_OPERATOR, Caller
from nexus.core.operations.parameters import one_of
from nexus.core.quoting import quoted

if TYPE_CHECKING:
    from nexus.core.contributions import StartedBy


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
    None: "an agent; it showed no key",
}
FromProof = Annotated[
    str,
    one_of(
        Proof,
        "What proves the sender: an operator's login, the hub's machine, an agent's key or its session's secret, "
        "or that Nexus wrote it. Absent: no key was shown for the name.",
    ),
]
OnBehalfOf = Annotated[
    str,
    Field(
        description="Who started the sender, if it is an agent of the pool and its key proved it: an operator, or an "
        "agent and the operator behind it. Not who asked for this text."
    ),
]
NAME_LENGTH = 80  # characters of a name that are quoted


class Authored(Protocol):
    """A message or a handoff."""

    from_agent_id: str
    proof: str | None
    created_at: datetime


Behalf = Mapping[tuple[str, datetime], str]  # by a sender and the moment when it sent
NOBODY: Behalf = {}


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


def on_behalf_of(written: Iterable[Authored]) -> Behalf:
    """Return on whose behalf agents of the pool wrote, in words, for all that is `written` at once.

    Only a key proves that it was the agent of the pool: whoever else uses its name does not act for its starter.
    """
    senders = {(each.from_agent_id, each.created_at) for each in written if each.proof == Proof.KEY}
    if not senders:
        return {}
    return {sender: behalf_in_words(found) for app in nexus_apps() for sender, found in app.starters(senders).items()}


def provenance_row(written: Authored, behalf: Behalf = NOBODY) -> dict[str, str]:
    """Return the fields `from_proof` and `on_behalf_of` of a message or a handoff, those that have a value."""
    proven = written.proof == Proof.KEY
    starter = behalf.get((written.from_agent_id, written.created_at)) if proven else None
    given = {"from_proof": written.proof, "on_behalf_of": starter}
    return {name: value for name, value in given.items() if value is not None}


def sender_in_words(row: Mapping[str, str]) -> str:
    """Return what proves a sender, and on whose behalf it wrote, from a row with these fields."""
    behalf = f"; on behalf of {row['on_behalf_of']}" if "on_behalf_of" in row else ""
    return f"{SENTENCES[row.get('from_proof')]}{behalf}"


def behalf_in_words(found: StartedBy) -> str:
    """Return who started an agent, in one line: of a long chain the nearest agent, the first one and the operator."""
    local = found.operator == LOCAL_OPERATOR
    operator = f"{SENTENCES[Proof.LOCAL]}," if local else f"operator {quoted(found.operator, NAME_LENGTH)}"
    below = "" if found.above is None else f" below {_agent(found.above)}"
    if not found.agents:
        return f"{operator.removesuffix(',')}, who started it{below}"
    nearest, *others = found.agents
    levels = "a level" if len(others) == 1 else f"{len(others)} levels"
    first = f", {levels} below {_agent(others[-1])}" if others else ""
    return f"{_agent(nearest)}{first}, which {operator} started{below}"


def _agent(agent_id: str) -> str:
    return f"agent {quoted(agent_id, NAME_LENGTH)}"
