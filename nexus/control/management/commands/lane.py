"""`nexus lane`: the merge queue."""

from __future__ import annotations

from collections.abc import Sequence

from nexus.core.verbs import Option, Verb, VerbsCommand, time


class Command(VerbsCommand):
    toolset = "control"
    help = "Show the merge queue: what waits, what runs, and what came back."

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                operation="pool_list_merges",
                options=["which", "limit"],
                rows="merges",
                columns={
                    "merge": "merge_id",
                    "agent": "agent_id",
                    "branch": "branch",
                    "into": "target",
                    "state": lambda row: row["step"] or row["state"],
                    "why": lambda row: row["why"][-100:],
                    "queued": time("queued_at"),
                },
                examples=["nexus lane", "nexus lane list --which returned --json"],
            ),
            Verb(
                "add",
                operation="pool_worktree_queue",
                words=[Option("agent_id", help="The agent whose worktree it is.")],
                options=["worktree_id"],
                examples=["nexus lane add smith"],
            ),
            Verb(
                "withdraw",
                operation="pool_withdraw_merge",
                words=[Option("merge_id", help="A merge_id, of `nexus lane`.")],
                each=True,
                examples=["nexus lane withdraw merge_…"],
            ),
        )
