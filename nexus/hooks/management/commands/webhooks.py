"""`nexus webhooks`: URLs to which events are sent."""

from __future__ import annotations

from collections.abc import Sequence

from nexus.core.cli import CommandGroup
from nexus.core.verbs import Option, Verb, VerbsCommand, time


class Command(VerbsCommand):
    group = CommandGroup.CLIENTS
    help = "Register addresses to which a running hub sends signed events."

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                "List the webhooks, and how the last attempt of each went.",
                operation="webhook_list",
                rows="webhooks",
                columns={
                    "webhook": "webhook_id",
                    "url": "url",
                    "agent": "agent_id",
                    "delivered": time("last_delivered_at"),
                    "given up": "given_up",
                    "last error": "last_error",
                },
                examples=["nexus webhooks list", "nexus webhooks list --json | jq '.webhooks[] | select(.last_error)'"],
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
                "redeliver",
                operation="webhook_redeliver",
                words=["webhook_id"],
                examples=["nexus webhooks redeliver whk_…"],
            ),
            Verb(
                "delete",
                operation="webhook_remove",
                words=["webhook_id"],
                asks="Send nothing to {webhook_id} any more?",
                examples=["nexus webhooks delete whk_…", "nexus webhooks delete whk_… --yes --json"],
            ),
        )
