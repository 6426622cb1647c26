"""`nexus inbox`: an agent's mail, from a shell or a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import CommandParser

from coordination import selectors
from nexus.core.cli import NOTHING, ago, one_line
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.core.operations.replies import Data
from nexus.core.verbs import Column, Option, Verb, VerbsCommand, time


def _check_agent(agent_id: str) -> None:
    """Raises NOT_FOUND for no agent; the operator is one from its first message on."""
    if agent_id != OPERATOR_AGENT:
        selectors.get_agent(agent_id)


AGENT = Option("agent_id", help="Whose inbox.", default=OPERATOR_AGENT, exists=_check_agent)
LIMIT = Option("limit", help="Messages at most, up to 200.", default=50)
COLUMNS: Mapping[str, Column] = {
    "message": "message_id",
    "from": "from_agent_id",
    "subject": "subject",
    "state": "status",
    "sent": time("created_at"),
}


class Command(VerbsCommand):
    help = "Show, pull and acknowledge an agent's mail. Only pull and ack change anything, as if the agent called them."

    def verbs(self) -> Sequence[Verb]:
        return (
            self._verb(
                "list",
                "Show pending mail.",
                "inbox_peek",
                Option("include_parked", "--parked", "Show dead letters too."),
                examples=[
                    "nexus inbox list --agent builder --full --parked",
                    'nexus inbox --agent builder > /dev/null && echo "builder has mail"',
                ],
            ),
            self._verb(
                "pull",
                "Pull the mail with a lease. Acknowledge it before the lease ends.",
                "inbox_pull",
                examples=["nexus inbox pull --json | jq -r '.messages[].message_id' | xargs -r nexus inbox ack"],
            ),
            Verb(
                "ack",
                "Acknowledge messages that were handled.",
                self.ack,
                operation="inbox_ack",
                words=[Option("message_ids", "MESSAGE", "A message_id.", repeated=True)],
                options=[AGENT],
                examples=["nexus inbox ack msg_… --agent builder"],
                nothing="they were acknowledged before",
            ),
            self._verb(
                "history",
                "Show acknowledged mail, newest first.",
                "inbox_history",
                examples=["nexus inbox history --agent builder"],
            ),
        )

    def _verb(self, name: str, help: str, operation: str, *options: Option, examples: Sequence[str]) -> Verb:
        """A verb that answers messages."""
        return Verb(
            name,
            help,
            self.messages,
            _add_full,
            examples,
            "no mail there",
            operation=operation,
            options=[AGENT, *options, LIMIT],
            rows="messages",
            columns=COLUMNS,
        )

    def messages(self, options: Mapping[str, Any]) -> int:
        """Messages, one a row, or whole."""
        data = self.answer(options)
        if not options["full"] or options["json"] or not data["messages"]:
            return self.present(options, data)
        for message in data["messages"]:
            self._print_whole(message)
        return 0

    def ack(self, options: Mapping[str, Any]) -> int:
        """Settled, all or none."""
        for message_id in options["message_ids"]:
            self.call("message_status", message_id=message_id)  # all are known, or none is settled
        data = self.answer(options)
        count = data["acknowledged"]
        if not count:
            _check_agent(options["agent_id"])
        if options["json"]:
            self.print_json(data)
        else:
            self.stdout.write(f"{count} acknowledged.")
        return 0 if count else NOTHING

    def _print_whole(self, message: Data) -> None:
        self.stdout.write(one_line(message["subject"], widest=500))
        self.stdout.write(
            f"{message['message_id']} from {one_line(message['from_agent_id'])}, "
            f"{ago(message['created_at'])}, {message['status']}\n"
        )
        for line in message["body"].splitlines():
            self.stdout.write(f"  {one_line(line, widest=10_000) if line else ''}")
        self.stdout.write("")


def _add_full(parser: CommandParser) -> None:
    parser.add_argument("--full", action="store_true", help="Show the bodies.")
