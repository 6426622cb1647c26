"""`nexus notices`: addresses outside of Nexus to which a running hub sends what needs a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nexus.core.cli import CommandGroup
from nexus.core.verbs import Option, Verb, VerbsCommand, name_argument, time
from nexus.hooks import notices


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
                "test",
                "Send a test to an address now. Exit code 1 if it failed.",
                self.test,
                name_argument("notice_id", "The notice_id."),
                ["nexus notices test ntc_…"],
            ),
            Verb(
                "delete",
                operation="notice_remove",
                words=["notice_id"],
                asks="Send nothing to {notice_id} any more?",
                examples=["nexus notices delete ntc_…", "nexus notices delete ntc_… --yes"],
            ),
        )

    def test(self, options: Mapping[str, Any]) -> int:
        """Send a test from this process, and store how it went."""
        row = notices.find_address(options["notice_id"])
        notice = notices.Notice(row, *notices.TEST, keys=row.sent_keys)
        sent = notices.send(notice)
        notices.settle_notice(notice, sent)
        self.show(options, {"notice_id": row.pk, "sent": sent.error is None, "error": sent.error})
        return 0 if sent.error is None else 1
