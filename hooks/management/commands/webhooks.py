"""`nexus webhooks`: addresses that are called with events, and what they still have to get."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser

from core.cli import EXIT_CODES, NOTHING, Group, OperatorCommand, ago
from hooks import worker


class Command(OperatorCommand):
    group = Group.CLIENTS
    help = "Outgoing webhooks: signed calls of an address with events. A running server delivers them."
    examples = f"""examples:
  nexus webhooks add https://example.com/nexus --agent-id builder
  nexus webhooks add http://127.0.0.1:9000/in --allow-private --type message.created --type handoff.created
  nexus webhooks list
  nexus webhooks redeliver whk_…     try its dead letters again
  nexus webhooks remove whk_…
  nexus webhooks deliver             send what is due once, without a server

{EXIT_CODES}, or with deliver: a delivery failed
  {NOTHING}  there are none"""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("action", choices=("add", "list", "redeliver", "remove", "deliver"))
        parser.add_argument("what", nargs="?", help="add: the URL; redeliver and remove: the webhook's id")
        parser.add_argument("--agent-id", help="Only mail and handoffs of this agent.")
        parser.add_argument("--project-root", help="Only events of this project.")
        parser.add_argument("--type", action="append", help="Only events of this type; may be given several times.")
        parser.add_argument("--allow-private", action="store_true", help="The address may be private or loopback.")

    def act(self, options: Mapping[str, Any]) -> int:
        match options["action"]:
            case "list":
                return self.show(options["json"])
            case "deliver":
                return self.deliver(options["json"])
            case "add":
                data = self.call(
                    "webhook_add",
                    url=options["what"],
                    agent_id=options["agent_id"],
                    project_root=options["project_root"],
                    types=options["type"],
                    allow_private=options["allow_private"],
                )
            case action:
                data = self.call(f"webhook_{action}", webhook_id=options["what"])
        if options["json"]:
            self.print_json(data)
        else:
            for name, value in data.items():
                self.stdout.write(f"{name}: {value}")
        return 0

    def show(self, as_json: bool) -> int:
        """Every webhook."""
        data = self.call("webhook_list")
        if as_json:
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

    def deliver(self, as_json: bool) -> int:
        """Send what is due; 1 when any of it failed."""
        sent, failed = worker.deliver_once()
        if as_json:
            self.print_json({"sent": sent, "failed": failed})
        else:
            self.stdout.write(f"sent {sent}, failed {failed}")
        return 1 if failed else 0
