"""`nexus dead-letters`: mail that was handed out too often, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coordination.target_options import AGENT
from nexus.core.verbs import Option, Verb, VerbsCommand, time

LETTER = Option("delivery_id", "LETTER", "A delivery_id; `nexus dead-letters` lists them.")


class Command(VerbsCommand):
    help = "List dead letters; requeue, forward or acknowledge them."

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                operation="dead_letter_list",
                options=[AGENT, "limit"],
                rows="dead_letters",
                columns={
                    "letter": "delivery_id",
                    "inbox of": "recipient",
                    "from": "from_agent_id",
                    "subject": "subject",
                    "hand-outs": "attempts",
                    "sent": time("created_at"),
                    "project": "project_root",
                },
                examples=["nexus dead-letters list --agent builder --json"],
            ),
            _verb("requeue", "dead_letter_requeue"),
            _verb("ack", "dead_letter_acknowledge"),
            _verb(
                "forward",
                "dead_letter_forward",
                help="Send the messages of dead letters to another agent, and acknowledge them here.",
                options=[Option("agent_id", "--to")],
                examples=["nexus dead-letters forward dlv_… --to reviewer"],
            ),
            _verb("park", "dead_letter_park"),
        )


def _verb(name: str, operation: str, **more: Any) -> Verb:
    """A verb over one or more dead letters."""
    example = f"nexus dead-letters {name} dlv_…"
    return Verb(name, operation=operation, words=[LETTER], each=True, **{"examples": [example], **more})
