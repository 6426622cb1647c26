"""`nexus mail`: how far messages have come."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from inbox.receipts import Stages
from nexus.core.cli import ago
from nexus.core.operations.replies import Data
from nexus.core.verbs import Column, Option, Verb, VerbsCommand


def _stage(name: str) -> Column:
    def show(row: Data) -> str:
        stage = next(each for each in row["stages"] if each["stage"] == name)
        return ago(stage["at"]) if stage["reached"] else "not yet"

    return show


def _awaits(row: Data) -> str:
    """The stage after the last one that was reached counts: mail that was pulled needs no notice any more."""
    later = list(takewhile(lambda stage: not stage["reached"], reversed(row["stages"])))
    return str(later[-1]["awaits"]) if later else ""


class Command(VerbsCommand):
    help = "Show how far a message has come with each recipient, and what it waits for."

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "status",
                operation="message_receipts",
                words=[Option("message_id", "MESSAGE", "A message_id.")],
                rows="receipts",
                columns={
                    "recipient": "recipient",
                    **{stage.label: _stage(stage) for stage in Stages},
                    "waits for": _awaits,
                },
                nothing="it reached nobody",
                examples=[
                    "nexus mail status msg_…",
                    "nexus mail status msg_… --json | jq '.receipts[].stages[] | select(.reached | not)'",
                ],
            ),
        )
