"""The toolset of the bus: the operations of coordination, inbox, handoffs and their maintenance, answered in the
envelope."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nexus.core.operations import dispatch
from nexus.core.operations.caller import Caller
from nexus.core.operations.registry import Toolset
from nexus.core.operations.replies import Body, Data, Prompt, Reference, packaged

COORDINATION = Toolset(
    "coordination",
    "Identities and presence, an inbox with at-least-once delivery, handoffs that one agent wins, artifacts, the event "
    "log.",
    default=True,
    instructions=packaged("coordination", "instructions"),
)
operation = COORDINATION.operation


def run(caller: Caller, name: str, arguments: Mapping[str, Any] | None) -> Body:
    """Call an operation and return its envelope; blocks while a waiting operation waits."""
    return dispatch.run(COORDINATION, caller, name, arguments)


async def arun(caller: Caller, name: str, arguments: Mapping[str, Any] | None) -> Body:
    """Call `run` from an event loop."""
    return await dispatch.arun(COORDINATION, caller, name, arguments)


def call(caller: Caller, name: str, arguments: Mapping[str, Any] | None) -> Data:
    """Call an operation and return its data. Raises its error."""
    return dispatch.perform(COORDINATION, caller, name, arguments).result()


COORDINATION.references.extend(
    [
        Reference(
            "nexus://reference/targets",
            "targets",
            "Who a message or a handoff is for: the grammar of targets.",
            packaged("coordination", "targets"),
        ),
        Reference(
            "nexus://reference/monitoring",
            "monitoring",
            "Following the event log.",
            packaged("coordination", "monitoring"),
        ),
    ]
)


def first_turn(given: Mapping[str, str]) -> str:
    """Return the instructions, filled in for a known agent and project."""
    you = f"You are agent {given['agent_id']!r} in the project {given['project_root']!r}."
    return f"{COORDINATION.instructions()}\n{you} Do your first turn now."


COORDINATION.prompts.append(
    Prompt(
        "first_turn",
        "Join the team: register, open a session, look who is there, read your mail.",
        {"project_root": "Absolute path of the project.", "agent_id": "The id you will go by."},
        first_turn,
    )
)
