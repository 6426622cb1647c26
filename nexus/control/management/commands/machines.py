"""`nexus machines`: the machines that run the pool's agents."""

from __future__ import annotations

from collections.abc import Sequence

from nexus.core.verbs import Verb, VerbsCommand, time


class Command(VerbsCommand):
    toolset = "control"
    help = "List the machines that run the pool's agents."

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                operation="pool_list_machines",
                rows="machines",
                columns={
                    "machine": "machine",
                    "state": "state",
                    "labels": lambda row: ", ".join(row["labels"]),
                    "runs": lambda row: f"{row['running']} of {row['capacity']}",
                    "waiting": "waiting",
                    "agents": "agents",
                    "load": "load",
                    "host": "host",
                    "version": "version",
                    "sign of life": time("beat_at"),
                },
                examples=["nexus machines list"],
            ),
        )
