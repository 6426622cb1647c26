"""MCP resources of this app: how delivery works, and an agent's own inbox, to which it can subscribe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from coordination.models import Event
from coordination.toolset import COORDINATION
from inbox.models import ARRIVALS
from nexus.core.operations import runner
from nexus.core.operations.caller import Caller
from nexus.core.operations.replies import AgentResource, Data, Reference, packaged


async def pending(caller: Caller, agent_id: str) -> Data:
    """Return the counts of an agent's inbox and its pending mail, without taking any. Raises NOT_OWNER for another
    agent's.

    A read of a resource carries no session: in strict trust the connection must be bound to the agent by its key.
    Raises VALIDATION_ERROR where it is not.
    """
    caller = replace(caller, vouched=caller.agent_id is not None)
    counts = await runner.aperform(COORDINATION, caller, "inbox_count", {"agent_id": agent_id})
    mail = await runner.aperform(COORDINATION, caller, "inbox_peek", {"agent_id": agent_id})
    return {**counts.result(), **mail.result()}


def recipients(event: Event) -> Sequence[str]:
    """Return the agents whose inbox an event changed."""
    return cast(Sequence[str], event.payload.get("recipients", ())) if event.type in ARRIVALS else ()


COORDINATION.references.append(
    Reference(
        "nexus://reference/delivery",
        "delivery",
        "Lanes, leases and dead letters of the inbox.",
        packaged("inbox", "delivery"),
    )
)
INBOX = AgentResource(
    "nexus://inbox/",
    "inbox",
    "Pending mail of an agent. Subscribe to be notified when mail arrives.",
    pending,
    recipients,
)
COORDINATION.agent_resources.append(INBOX)
