"""`nexus plan`: what is to be decided and what was, earlier cycles, and how the tasks depend on each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import CommandParser

from nexus.core.cli import EXIT_CODES, NOTHING, add_project_root, positive
from nexus.core.verbs import Verb, VerbsCommand
from nexus.planning import graph


class Command(VerbsCommand):
    toolset = "planning"
    help = "Show a project's plan, its earlier cycles and the order of its tasks. Without a verb it shows the plan."
    examples = f"""examples:
  nexus plan
  nexus plan history "cache key" --last 3
  nexus plan graph --project ../api

{EXIT_CODES}
  {NOTHING}  there is none"""

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb("status", "Show the plan: its issues and what was decided.", self.status, add_project_root,
                 ["nexus plan status", "nexus plan status --json | jq .summary"], nothing="no plan is active"),
            Verb("history", "Search the cycles that were closed, oldest first.", self.history, _add_search,
                 ["nexus plan history", 'nexus plan history "cache key" --last 3 --json'], nothing="none found"),
            Verb("graph", "Show the tasks in the order of their dependencies.", self.graph, _add_form,
                 ["nexus plan graph", "nexus plan graph --mermaid > tasks.mmd"], nothing="there are no tasks"),
        )  # fmt: skip

    def status(self, options: Mapping[str, Any]) -> int:
        """The plan and its issues, one a row."""
        data = self.call("plan_status", project_root=options["project_root"])
        if options["json"]:
            self.print_json(data)
        elif data["active"]:
            told = {name: data[name] for name in ("plan_id", "topic", "research_summary") if name in data}
            counted = data["summary"]
            self.print_facts({**told, "decided": f"{counted['decided']} of {counted['total']}"})
            self.stdout.write("")
            self.print_table(
                ["issue", "state", "title", "decision"],
                [(row["id"], row["status"], row["title"], row.get("decision")) for row in data["issues"]],
            )
        else:
            self.stdout.write("No plan is active.")
        return 0 if data["active"] else NOTHING

    def history(self, options: Mapping[str, Any]) -> int:
        """Cycles, one a row, each with its decisions."""
        data = self.call(
            "history_search", project_root=options["project_root"], query=options["query"], last_n=options["last"]
        )
        if options["json"]:
            self.print_json(data)
        else:
            self.print_table(
                ["closed", "branch", "topic", "tasks", "decisions"],
                [
                    (
                        row["completed_at"],
                        row["branch"],
                        row.get("topic"),
                        row["task_count"],
                        "; ".join(f"{decided['title']}: {decided['decision']}" for decided in row.get("decisions", [])),
                    )
                    for row in data["cycles"]
                ],
            )
            if data["showing"] < data["total"]:
                self.stdout.write(f"the last {data['showing']} of {data['total']}")
        return 0 if data["cycles"] else NOTHING

    def graph(self, options: Mapping[str, Any]) -> int:
        """Tasks, each below what it waits for."""
        tasks = self.call("task_list", project_root=options["project_root"]).get("tasks", [])
        drawn = graph.drawn(tasks)
        if options["json"]:
            self.print_json({"tasks": [node._asdict() for node in drawn.nodes], "critical_path": drawn.critical_path})
        elif options["mermaid"]:
            self.stdout.write(graph.mermaid(drawn))
        else:
            self.print_table(
                ["step", "task", "state", "title", "waits for"],
                [(node.step, node.id, node.state, node.title, _listed(node.waits_for)) for node in drawn.nodes],
            )
            if drawn.critical_path:
                self.stdout.write(f"critical path: {' → '.join(map(str, drawn.critical_path))}")
        return 0 if drawn.nodes else NOTHING


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _add_search(parser: CommandParser) -> None:
    parser.add_argument("query", nargs="?", metavar="TEXT", help="Only cycles that have it, whatever its case.")
    parser.add_argument("--last", type=positive, default=10, help="Cycles at most, the newest. [10]")
    add_project_root(parser)


def _add_form(parser: CommandParser) -> None:
    parser.add_argument("--mermaid", action="store_true", help="As a flowchart in Mermaid's language.")
    add_project_root(parser)
