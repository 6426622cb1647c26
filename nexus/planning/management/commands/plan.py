"""`nexus plan`: the plan with its issues, and earlier cycles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nexus.core.cli import NOTHING
from nexus.core.verbs import Option, Row, Verb, VerbsCommand

QUERY = Option("query", "TEXT", "Only cycles that contain this text, in any case.")


class Command(VerbsCommand):
    toolset = "planning"
    help = "Show a project's plan and its earlier cycles."

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "show",
                "Show the plan: its issues and what was decided.",
                self.show_plan,
                operation="plan_status",
                options=["project_root"],
                examples=["nexus plan show", "nexus plan show --json | jq .summary"],
                nothing="no plan is active",
            ),
            Verb(
                "history",
                "Search the cycles that were closed, oldest first.",
                self.history,
                operation="history_search",
                words=[QUERY],
                options=[Option("last_n", "--last", "At most this many cycles, the newest."), "project_root"],
                rows="cycles",
                columns={
                    "closed": "completed_at",
                    "branch": "branch",
                    "topic": "topic",
                    "tasks": "task_count",
                    "decisions": _decisions,
                },
                examples=["nexus plan history", 'nexus plan history "cache key" --last 3 --json'],
            ),
        )

    def show_plan(self, options: Mapping[str, Any]) -> int:
        """Print the plan and its issues, one a row."""
        data = self.answer(options)
        if options["json"]:
            self.print_json(data)
        elif data["active"]:
            facts = {name: data[name] for name in ("plan_id", "topic", "research_summary") if name in data}
            counted = data["summary"]
            self.print_facts({**facts, "decided": f"{counted['decided']} of {counted['total']}"})
            self.stdout.write("")
            columns = {"issue": "id", "state": "status", "title": "title", "decision": "decision"}
            self.print_rows(columns, data["issues"])
        else:
            self.stdout.write("No plan is active.")
        return 0 if data["active"] else NOTHING

    def history(self, options: Mapping[str, Any]) -> int:
        """Print cycles, one a row, each with its decisions."""
        data = self.answer(options)
        code = self.present(options, data)
        if data["showing"] < data["total"] and not options["json"]:
            self.stdout.write(f"the last {data['showing']} of {data['total']}")
        return code


def _decisions(cycle: Row) -> str:
    return "; ".join(f"{decided['title']}: {decided['decision']}" for decided in cycle.get("decisions", []))
