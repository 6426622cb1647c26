"""MCP resources of this app's toolset."""

from __future__ import annotations

from collections.abc import Mapping

from coordination.toolset import COORDINATION
from nexus.core.operations.replies import Prompt, Reference, packaged

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
