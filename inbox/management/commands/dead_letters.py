"""`nexus dead-letters`: mail that was handed out too often, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from django.core.management.base import CommandParser

from nexus.core.cli import EXIT_CODES, NOTHING, ago, positive
from nexus.core.verbs import Verb, VerbsCommand, several

LETTERS = several("letter", "A delivery_id, of `nexus dead-letters`.")


class Command(VerbsCommand):
    help = "List dead letters, put them back into their inboxes, forward or settle them. Without a verb it lists them."
    examples = f"""examples:
  nexus dead-letters
  nexus dead-letters requeue dlv_…
  nexus dead-letters forward dlv_… --to reviewer
  nexus dead-letters --agent builder --json | jq -r '.dead_letters[].delivery_id' | xargs -r nexus dead-letters ack

{EXIT_CODES}
  {NOTHING}  none there"""

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb("list", "List the dead letters, the newest first.", self.list, _add_filters,
                 ["nexus dead-letters list --agent builder --json"], nothing="none there"),
            self._verb("requeue", "Put dead letters back into their inboxes, unread, with all their hand-outs."),
            self._verb("ack", "Settle dead letters: they are history.", operation="dead_letter_acknowledge"),
            Verb(
                "forward",
                "Put the messages of dead letters into another agent's inbox, and settle them.",
                self.forward,
                _add_forward,
                ["nexus dead-letters forward dlv_… --to reviewer"],
            ),
            self._verb("park", "Take a requeue back while nobody pulled it, or an ack within a minute."),
        )  # fmt: skip

    def _verb(self, name: str, help: str, operation: str = "") -> Verb:
        act = partial(self._each, operation or f"dead_letter_{name}")
        return Verb(name, help, act, LETTERS, [f"nexus dead-letters {name} dlv_…"])

    def list(self, options: Mapping[str, Any]) -> int:
        """Dead letters, one a row."""
        data = self.call("dead_letter_list", agent_id=options["agent"], limit=options["limit"])
        if options["agent"] is not None and not data["dead_letters"]:
            self.call("agent_get", agent_id=options["agent"])  # a name that was mistyped is no inbox without any
        if options["json"]:
            self.print_json(data)
        else:
            self.print_table(
                ["letter", "inbox of", "from", "subject", "hand-outs", "sent", "project"],
                [
                    (
                        row["delivery_id"],
                        row["recipient"],
                        row["from_agent_id"],
                        row["subject"],
                        row["attempts"],
                        ago(row["created_at"]),
                        row["project_root"],
                    )
                    for row in data["dead_letters"]
                ],
            )
        return 0 if data["dead_letters"] else NOTHING

    def forward(self, options: Mapping[str, Any]) -> int:
        """Forwarded, each by itself."""
        return self._each("dead_letter_forward", options, agent_id=options["to"])

    def _each(self, operation: str, options: Mapping[str, Any], **more: Any) -> int:
        return self.each(options, options["letter"], lambda letter: self.call(operation, delivery_id=letter, **more))


def _add_filters(parser: CommandParser) -> None:
    parser.add_argument("--agent", help="Only those of this agent's inbox.")
    parser.add_argument("--limit", type=positive, default=50, help="Dead letters at most. [50]")


def _add_forward(parser: CommandParser) -> None:
    LETTERS(parser)
    parser.add_argument("--to", required=True, metavar="AGENT", help="Who gets the messages instead.")
