"""`nexus webhooks`: URLs to which events are sent, and their pending deliveries."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from nexus.core.cli import Group
from nexus.core.operations.errors import not_found
from nexus.core.operations.replies import Data
from nexus.core.verbs import Option, Verb, VerbsCommand, named, time
from nexus.hooks import services


class Command(VerbsCommand):
    group = Group.CLIENTS
    help = "Register addresses to which a running hub sends signed events."

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                "List the webhooks, with the number of waiting and failed deliveries.",
                operation="webhook_list",
                rows="webhooks",
                columns={
                    "webhook": "webhook_id",
                    "url": "url",
                    "agent": "agent_id",
                    "pending": "pending",
                    "dead": "dead",
                    "delivered": time("last_delivered_at"),
                    "last error": "last_error",
                },
                examples=["nexus webhooks list", "nexus webhooks list --json | jq '.webhooks[] | select(.dead > 0)'"],
            ),
            Verb(
                "create",
                "Register an address that gets every new event. Its signing secret is shown only this once.",
                operation="webhook_add",
                words=["url"],
                options=["agent_id", "project_root", Option("types", "--type"), "allow_private"],
                examples=[
                    "nexus webhooks create https://example.com/nexus --agent builder",
                    "nexus webhooks create http://127.0.0.1:9000/in --allow-private --type message.created"
                    " --type handoff.created",
                ],
            ),
            Verb(
                "show",
                "Show a webhook: its filters, and the state of its deliveries.",
                self.show_one,
                named("webhook_id", "The webhook_id."),
                ["nexus webhooks show whk_…"],
            ),
            Verb(
                "redeliver",
                operation="webhook_redeliver",
                words=["webhook_id"],
                examples=["nexus webhooks redeliver whk_…"],
            ),
            Verb(
                "delete",
                "Delete a webhook and its waiting deliveries. Without a terminal it does not ask.",
                self.delete,
                operation="webhook_remove",
                words=["webhook_id"],
                asks=True,
                examples=["nexus webhooks delete whk_…", "nexus webhooks delete whk_… --yes --json"],
            ),
            Verb(
                "deliver",
                "Send once what is due, without a hub. Exit code 1 if a delivery failed.",
                self.deliver,
                examples=["nexus webhooks deliver --json"],
            ),
        )

    def show_one(self, options: Mapping[str, Any]) -> int:
        """Print everything about one webhook."""
        return self.show(options, self._found(options))

    def delete(self, options: Mapping[str, Any]) -> int:
        """Remove a webhook."""
        url = self._found(options)["url"]  # first, so that an unknown one is not confirmed
        if not options["yes"] and sys.stdin.isatty() and not self.ask(f"Call {url} no more?"):
            self.stdout.write("Nothing was changed.")
            return 0
        return self.present(options, self.answer(options))

    def deliver(self, options: Mapping[str, Any]) -> int:
        """Send each due delivery once."""
        sent, failed = services.deliver_once()
        self.show(options, {"sent": sent, "failed": failed})
        return 1 if failed else 0

    def _found(self, options: Mapping[str, Any]) -> Data:
        webhook_id = options["webhook_id"]
        for row in self.call("webhook_list")["webhooks"]:
            if row["webhook_id"] == webhook_id:
                found: Data = row
                return found
        raise not_found("webhook", webhook_id)
