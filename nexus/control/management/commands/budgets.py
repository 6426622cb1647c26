"""`nexus budgets`: limits of what the pool's agents spend."""

from __future__ import annotations

from collections.abc import Sequence

from nexus.core.verbs import Option, Verb, VerbsCommand


class Command(VerbsCommand):
    toolset = "control"
    help = "Limit the tokens, money and turns that the pool's agents spend."

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                operation="pool_list_budgets",
                rows="budgets",
                columns={
                    "budget": "budget_id",
                    "scope": "scope",
                    "name": "name",
                    "limit": lambda row: f"{row['limit']:,.10g} {row['currency'] or row['measure']}",
                    "period": "period",
                    "spent": lambda row: f"{row['spent']:,.10g} ({row['percent']} %)",
                    "unknown runs": "unknown_runs",
                },
                examples=["nexus budgets list"],
            ),
            Verb(
                "set",
                operation="pool_set_budget",
                words=[
                    Option("scope", help="Whose runs it counts."),
                    Option("measure", help="What it counts."),
                    Option("limit", help="At which no run begins any more."),
                ],
                options=["name", "period", "currency"],
                examples=[
                    "nexus budgets set pool money 20",
                    "nexus budgets set subtree tokens 5000000 --name lead --period total",
                ],
            ),
            Verb(
                "remove",
                operation="pool_remove_budget",
                words=[Option("budget_id", help="A budget_id, of `nexus budgets`.")],
                each=True,
                examples=["nexus budgets remove bud_…"],
            ),
        )
