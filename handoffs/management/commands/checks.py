"""`nexus checks`: the commands by which Nexus tests results, and their review."""

from __future__ import annotations

from collections.abc import Sequence

from nexus.core.verbs import Option, Verb, VerbsCommand


class Command(VerbsCommand):
    help = "List the checks of a project's nexus.toml; approve them."

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                "List the checks in nexus.toml, and whether they are reviewed.",
                operation="checks_list",
                options=["project_root"],
                rows="checks",
                columns={"check": "name", "runs": "run", "seconds": "seconds", "network": "network", "state": "state"},
                examples=["nexus checks", "nexus checks --project . --json | jq -r .digest"],
            ),
            Verb(
                "approve",
                "Approve the checks that you looked at, by their digest.",
                operation="checks_approve",
                words=[Option("digest", help="The digest that `nexus checks` shows.")],
                options=["project_root"],
                rows="checks",
                columns={"check": "name", "runs": "run", "state": "state"},
                examples=["nexus checks approve 3f9c…"],
            ),
        )
