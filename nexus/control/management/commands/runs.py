"""`nexus runs`: the turns of the pool's agents, and what to do about those that failed."""

from __future__ import annotations

from collections.abc import Sequence

from coordination.target_options import AGENT
from nexus.core.verbs import Option, Verb, VerbsCommand, time

RUN = Option("run_id", help="A run_id; `nexus runs` lists them.")


class Command(VerbsCommand):
    toolset = "control"
    help = "List the runs of the pool's agents, and retry, dismiss or cancel one."

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                operation="pool_list_runs",
                options=["which", AGENT, "outcome", "before", "limit"],
                rows="runs",
                columns={
                    "run": "run_id",
                    "agent": "agent_id",
                    "outcome": lambda row: f"{row['outcome']}, needs you" if row["needs_person"] else row["outcome"],
                    "prompt": "prompt",
                    "queued": time("queued_at"),
                    "ended": time("ended_at"),
                },
                examples=["nexus runs list --which needing_person"],
            ),
            Verb(
                "show",
                operation="pool_get_run",
                words=[RUN],
                help="Show a run: its prompt, its steps, its answer, and why it ended.",
                examples=["nexus runs show turn_…"],
            ),
            Verb(
                "trace",
                operation="pool_get_trace",
                words=[RUN],
                options=["after", "limit"],
                rows="lines",
                columns={"at": time("at"), "what": "what", "about": "about", "text": "text"},
                examples=["nexus runs trace turn_…", "nexus runs trace turn_… --limit 500 --json"],
            ),
            Verb(
                "retry",
                operation="pool_retry_run",
                words=[RUN],
                options=["content"],
                examples=["nexus runs retry turn_…", 'nexus runs retry turn_… --content "Use the other branch."'],
            ),
            Verb(
                "dismiss",
                operation="pool_dismiss_run",
                words=[RUN],
                each=True,
                examples=["nexus runs dismiss turn_…"],
            ),
            Verb(
                "cancel",
                operation="pool_cancel_run",
                words=[RUN],
                each=True,
                examples=["nexus runs cancel turn_…"],
            ),
        )
