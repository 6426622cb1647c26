"""`nexus metrics`: figures of the team's work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.core.management.base import CommandParser

from coordination.services.workspaces import locate
from nexus.core.cli import EXIT_CODES, OperatorCommand, positive

COLUMNS = ("count", "sum", "median", "p90", "p99", "max")


class Command(OperatorCommand):
    help = "Show how long handoffs wait and take, and how long mail takes to be acknowledged."
    examples = f"""examples:
  nexus metrics
  nexus metrics --hours 168 --agent builder-1
  nexus metrics --json | jq '.figures[] | {{name, p90: .all.p90}}'

{EXIT_CODES}"""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--hours", type=positive, default=24, help="The last hours to measure. Default: 24.")
        parser.add_argument("--agent", help="Only what this agent did.")
        parser.add_argument("--project", metavar="DIR", help="Only what was done in this project.")

    def act(self, options: Mapping[str, Any]) -> int:
        """Print a table of every figure: in total, by kind, by agent."""
        project = options["project"]
        data = self.call(
            "figures",
            window_seconds=options["hours"] * 3600,
            agent_id=options["agent"],
            workspace_id=None if project is None else locate(project).workspace_id,
        )
        if options["agent"] is not None and not any(figure["all"] for figure in data["figures"]):
            self.call("agent_get", agent_id=options["agent"])  # a mistyped name is an error, not an agent without acts
        if options["json"]:
            self.print_json(data)
            return 0
        for figure in data["figures"]:
            newest = " (the newest only)" if figure["newest_only"] else ""
            self.stdout.write(f"{figure['title']}, in {figure['unit']}{newest}")
            self.print_table(["", *COLUMNS], list(_rows(figure)))
            self.stdout.write("")
        return 0


def _rows(figure: Mapping[str, Any]) -> Iterator[Sequence[Any]]:
    if figure["all"]:
        yield "all", *_numbers(figure["all"])
    for by, names in (("kind", figure["by_kind"]), ("agent", figure["by_agent"])):
        for name, summary in names.items():
            yield f"{by} {name}", *_numbers(summary)


def _numbers(summary: Mapping[str, float]) -> list[str]:
    return [
        f"{summary[column]:.{7 if column == 'sum' else 4}g}" if column != "count" else str(summary[column])
        for column in COLUMNS
    ]
