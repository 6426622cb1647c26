"""`nexus notices`: addresses outside of Nexus to which a running hub sends what needs a person."""

from __future__ import annotations

from collections.abc import Sequence

from nexus.core.cli import CommandGroup
from nexus.core.verbs import Option, Verb, VerbsCommand, time


class Command(VerbsCommand):
    group = CommandGroup.TEAM
    help = "Hear on your phone, by mail or on your desktop what needs a person."

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                "List the addresses, and how the last notice to each went.",
                operation="notice_list",
                rows="notices",
                columns={
                    "notice": "notice_id",
                    "address": "name",
                    "quiet": "quiet",
                    "sent": time("last_sent_at"),
                    "last error": "last_error",
                },
                examples=["nexus notices list"],
            ),
            Verb(
                "create",
                operation="notice_add",
                words=["url"],
                options=[
                    Option("kinds", "--kind"),
                    "project_root",
                    "quiet",
                    "timezone",
                    "with_text",
                    "with_answers",
                    "allow_private",
                ],
                examples=[
                    "nexus notices create ntfys://ntfy.sh/my-secret-topic --quiet 22:00-07:00",
                    "nexus notices create mailtos://me:password@example.org --kind permissions --kind questions",
                ],
            ),
            Verb(
                "update",
                operation="notice_update",
                words=["notice_id"],
                options=[
                    "url",
                    Option("kinds", "--kind"),
                    "quiet",
                    "timezone",
                    "with_text",
                    "with_answers",
                    "allow_private",
                ],
                examples=["nexus notices update ntc_… --quiet 20:00-08:00"],
            ),
            Verb(
                "test",
                operation="notice_test",
                words=["notice_id"],
                examples=["nexus notices test ntc_…"],
            ),
            Verb(
                "delete",
                operation="notice_remove",
                words=["notice_id"],
                asks="Send nothing to {notice_id} any more?",
                examples=["nexus notices delete ntc_…", "nexus notices delete ntc_… --yes"],
            ),
        )
