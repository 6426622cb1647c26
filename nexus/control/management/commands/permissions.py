"""`nexus permissions`: rules about what the pool's agents may do."""

from __future__ import annotations

from collections.abc import Sequence

from coordination.target_options import AGENT
from nexus.core.verbs import Option, Verb, VerbsCommand, time


class Command(VerbsCommand):
    toolset = "control"
    help = "Write rules about what the pool's agents may do without a person, or must not do."

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                operation="pool_list_rules",
                options=[AGENT],
                rows="rules",
                columns={
                    "rule": "rule_id",
                    "what it does": "rule",
                    "by": "written_by",
                    "written": time("written_at"),
                },
                examples=["nexus permissions list", "nexus permissions list --agent builder --json"],
            ),
            Verb(
                "add",
                operation="pool_add_rule",
                words=[
                    Option("effect", help="What it does."),
                    Option("kind", help="The actions."),
                    Option("pattern", help="Of paths, of a command, or of words; '' for everything of the kind."),
                ],
                options=["scope", "name"],
                examples=[
                    "nexus permissions add allow run 'git status *' --scope pool",
                    "nexus permissions add deny read '**/.env' --scope project --name /srv/parser",
                ],
            ),
            Verb(
                "remove",
                operation="pool_remove_rule",
                words=[Option("rule_id", help="The number of a rule, of `nexus permissions`.")],
                each=True,
                examples=["nexus permissions remove 3"],
            ),
        )
