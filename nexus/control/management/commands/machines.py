"""`nexus machines`: the machines that run the pool's agents."""

from __future__ import annotations

from collections.abc import Sequence

from nexus.core.verbs import Option, Verb, VerbsCommand, time


class Command(VerbsCommand):
    toolset = "control"
    help = "List the machines that run the pool's agents, and drain one for maintenance."

    def verbs(self) -> Sequence[Verb]:
        word = Option("machine", help="A name of `nexus machines`.")
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
            Verb(
                "drain",
                operation="pool_drain_machine",
                words=[word],
                each=True,
                examples=["nexus machines drain builder-1"],
            ),
            Verb(
                "undrain",
                operation="pool_undrain_machine",
                words=[word],
                each=True,
                examples=["nexus machines undrain builder-1"],
            ),
        )
