"""`nexus webhooks`: addresses that are called with events, and what they still have to get."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import CommandParser

from nexus.core.cli import EXIT_CODES, NOTHING, Group, ago
from nexus.core.operations.errors import not_found
from nexus.core.operations.replies import Data
from nexus.core.verbs import Verb, VerbsCommand, named
from nexus.hooks import worker

WEBHOOK = named("webhook", "The webhook_id.")


class Command(VerbsCommand):
    group = Group.CLIENTS
    help = "Have addresses called with events, signed; a running hub delivers. Without a verb it lists the webhooks."
    examples = f"""examples:
  nexus webhooks
  nexus webhooks add https://example.com/nexus --agent builder
  nexus webhooks remove whk_…

{EXIT_CODES}
  {NOTHING}  there is none"""

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb("list", "List the webhooks, with what waits and what failed.", self.list,
                 examples=["nexus webhooks list", "nexus webhooks list --json | jq '.webhooks[] | select(.dead > 0)'"],
                 nothing="there is none"),
            Verb(
                "add",
                "Have an address called with every event from now on; its signing secret is shown this once.",
                self.add,
                _add_scope,
                [
                    "nexus webhooks add https://example.com/nexus --agent builder",
                    "nexus webhooks add http://127.0.0.1:9000/in --allow-private --type message.created"
                    " --type handoff.created",
                ],
            ),
            Verb("show", "Show a webhook: whom it tells of what, and how that goes.", self.show_one, WEBHOOK,
                 ["nexus webhooks show whk_…"]),
            Verb("redeliver", "Try a webhook's dead letters again, from now.", self.redeliver, WEBHOOK,
                 ["nexus webhooks redeliver whk_…"]),
            Verb(
                "remove",
                "Call an address no more; what it still had to get is dropped. Without a terminal nobody is asked.",
                self.remove,
                WEBHOOK,
                ["nexus webhooks remove whk_…", "nexus webhooks remove whk_… --yes --json"],
                asks=True,
            ),
            Verb("deliver", "Send what is due once, without a hub; exit code 1 when any of it failed.", self.deliver,
                 examples=["nexus webhooks deliver --json"]),
        )  # fmt: skip

    def list(self, options: Mapping[str, Any]) -> int:
        """Every webhook, one a row."""
        data = self.call("webhook_list")
        if options["json"]:
            self.print_json(data)
        else:
            self.print_table(
                ["webhook", "url", "agent", "pending", "dead", "delivered", "last error"],
                [
                    (
                        row["webhook_id"],
                        row["url"],
                        row["agent_id"],
                        row["pending"],
                        row["dead"],
                        ago(row["last_delivered_at"]),
                        row["last_error"],
                    )
                    for row in data["webhooks"]
                ],
            )
        return 0 if data["webhooks"] else NOTHING

    def add(self, options: Mapping[str, Any]) -> int:
        """A new webhook and its secret."""
        data = self.call(
            "webhook_add",
            url=options["url"],
            agent_id=options["agent_id"],
            project_root=options["project_root"],
            types=options["type"],
            allow_private=options["allow_private"],
        )
        return self.show(options, data)

    def show_one(self, options: Mapping[str, Any]) -> int:
        """All there is to know of one webhook."""
        return self.show(options, self._found(options["webhook"]))

    def redeliver(self, options: Mapping[str, Any]) -> int:
        """Its dead letters, once more."""
        return self.show(options, self.call("webhook_redeliver", webhook_id=options["webhook"]))

    def remove(self, options: Mapping[str, Any]) -> int:
        """Called no more."""
        url = self._found(options["webhook"])["url"]  # an unknown one is no question
        if not options["yes"] and sys.stdin.isatty() and not self.ask(f"Call {url} no more?"):
            self.stdout.write("Nothing was changed.")
            return 0
        return self.show(options, self.call("webhook_remove", webhook_id=options["webhook"]))

    def deliver(self, options: Mapping[str, Any]) -> int:
        """What is due, once each."""
        sent, failed = worker.deliver_once()
        self.show(options, {"sent": sent, "failed": failed})
        return 1 if failed else 0

    def _found(self, webhook_id: str) -> Data:
        for row in self.call("webhook_list")["webhooks"]:
            if row["webhook_id"] == webhook_id:
                found: Data = row
                return found
        raise not_found("webhook", webhook_id)


def _add_scope(parser: CommandParser) -> None:
    named("url", "What is called, with POST; http or https.")(parser)
    parser.add_argument("--agent", dest="agent_id", metavar="AGENT", help="Only mail and handoffs of this agent.")
    parser.add_argument("--project", dest="project_root", metavar="DIR", help="Only events of this project.")
    parser.add_argument("--type", action="append", help="Only events of this type; may be given several times.")
    parser.add_argument("--allow-private", action="store_true", help="The address may be private or loopback.")
