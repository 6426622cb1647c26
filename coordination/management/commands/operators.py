"""`nexus operators`: accounts that may log in to the dashboard."""

from __future__ import annotations

from collections.abc import Sequence

from nexus.core.cli import CommandGroup
from nexus.core.verbs import Verb, VerbsCommand, time


class Command(VerbsCommand):
    help = "List the dashboard's accounts, add one, or reset a password."
    group = CommandGroup.HUB

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                operation="operator_list",
                rows="operators",
                columns={
                    "operator": "operator",
                    "may log in": "active",
                    "only looks": "viewer",
                    "last login": time("last_login_at"),
                    "made": time("created_at"),
                },
                examples=["nexus operators list --json"],
                nothing="there is none; on this machine the dashboard asks for no login",
            ),
            Verb(
                "create",
                operation="operator_create",
                words=["operator"],
                options=["viewer"],
                examples=["nexus operators create maria", "nexus operators create otto --viewer"],
            ),
            Verb(
                "reset-password",
                operation="operator_password_reset",
                words=["operator"],
                examples=["nexus operators reset-password maria"],
            ),
        )
