"""`nexus operators`: who may log in to the dashboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nexus.core.cli import EXIT_CODES, NOTHING, Group, ago
from nexus.core.verbs import Verb, VerbsCommand, named

OPERATOR = named("operator", "The operator's login.")


class Command(VerbsCommand):
    help = (
        "List who may log in to the dashboard, add an operator, give one a new password. Without a verb it lists them."
    )
    group = Group.HUB
    examples = f"""examples:
  nexus operators
  nexus operators create maria
  nexus operators reset-password maria

{EXIT_CODES}
  {NOTHING}  there is none; on this machine the dashboard asks for no login"""

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb("list", "List the operators' accounts.", self.list, examples=["nexus operators list --json"],
                 nothing="there is none"),
            Verb("create", "Make an account; its password is shown this once.", self.create, OPERATOR,
                 ["nexus operators create maria"]),
            Verb(
                "reset-password",
                "Give an operator a new password, shown this once. Every login with the old one ends.",
                self.reset_password,
                OPERATOR,
                ["nexus operators reset-password maria"],
            ),
        )  # fmt: skip

    def list(self, options: Mapping[str, Any]) -> int:
        """Every account, one a row."""
        data = self.call("operator_list")
        if options["json"]:
            self.print_json(data)
        else:
            self.print_table(
                ["operator", "may log in", "last login", "made"],
                [
                    (
                        row["operator"],
                        "yes" if row["active"] else "no",
                        ago(row["last_login_at"]),
                        ago(row["created_at"]),
                    )
                    for row in data["operators"]
                ],
            )
        return 0 if data["operators"] else NOTHING

    def create(self, options: Mapping[str, Any]) -> int:
        """A new account and its password."""
        return self.show(options, self.call("operator_create", operator=options["operator"]))

    def reset_password(self, options: Mapping[str, Any]) -> int:
        """A new password."""
        return self.show(options, self.call("operator_password_reset", operator=options["operator"]))
