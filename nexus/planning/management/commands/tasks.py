"""`nexus tasks`: the tasks of a project's cycle, and which of them can be begun."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.core.management.base import CommandParser

from nexus.core.cli import EXIT_CODES, NOTHING, add_project_root, text_of
from nexus.core.operations.parameters import MAX_INTEGER, whole_number
from nexus.core.operations.replies import Data
from nexus.core.verbs import Verb, VerbsCommand
from nexus.planning.models import ReusePolicy, TaskStatus


class Command(VerbsCommand):
    toolset = "planning"
    help = "List the tasks of a project's cycle, those that are ready, add and update them. Without a verb it lists."
    examples = f"""examples:
  nexus tasks
  nexus tasks ready --project ../api
  nexus tasks add "Test the parser" --context "It has no tests yet." --dep 1
  nexus tasks update 1 completed

{EXIT_CODES}
  {NOTHING}  there are none"""

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb("list", "List the tasks, and who has them.", self.list, add_project_root,
                 ["nexus tasks list", "nexus tasks list --json | jq .summary"], nothing="there are none"),
            Verb("ready", "List the tasks that can be begun: all that they wait for is completed.", self.ready,
                 add_project_root, ["nexus tasks ready", "nexus tasks ready --json | jq '.tasks[0].id'"],
                 nothing="none is ready"),
            Verb("add", "Add a task.", self.add, _add_fields,
                 ['nexus tasks add "Write the parser" --context "Everything reads by it." --owner engineer',
                  'nexus tasks add "Test the parser" --context - --dep 1 --dep 2 < context.md']),
            Verb("update", "Give a task another status.", self.update, _add_status,
                 ["nexus tasks update 1 in_progress", "nexus tasks update 1 completed --json"]),
        )  # fmt: skip

    def list(self, options: Mapping[str, Any]) -> int:
        """Tasks, one a row."""
        data = self._found(options)
        if options["json"]:
            self.print_json(data)
        else:
            if data.get("goal"):
                self.print_facts({"goal": data["goal"]})
            self._print_tasks(data, data.get("tasks", []))
        return 0 if data.get("tasks") else NOTHING

    def ready(self, options: Mapping[str, Any]) -> int:
        """Tasks that can be begun, one a row."""
        data = self._found(options)
        ready = set(data["summary"]["ready"]) if "summary" in data else set()
        tasks = [task for task in data.get("tasks", []) if task["id"] in ready]
        if options["json"]:
            self.print_json({"tasks": tasks})
        else:
            self._print_tasks(data, tasks)
        return 0 if tasks else NOTHING

    def add(self, options: Mapping[str, Any]) -> int:
        """A new task; what is wrong with its dependencies goes to stderr."""
        fields = {name: options[name] for name in FIELDS}
        data = self.call("task_add", **{**fields, "context": text_of(options["context"])})
        for warning in data.get("warnings", []):
            self.stderr.write(warning)
        return self.show(options, data if options["json"] else data["task"])

    def update(self, options: Mapping[str, Any]) -> int:
        """Another status."""
        data = self.call(
            "task_update", project_root=options["project_root"], id=options["id"], status=options["status"]
        )
        return self.show(options, data if options["json"] else data["task"])

    def _found(self, options: Mapping[str, Any]) -> Data:
        return self.call("task_list", project_root=options["project_root"])

    def _print_tasks(self, data: Mapping[str, Any], tasks: Iterable[Mapping[str, Any]]) -> None:
        ready = set(data["summary"]["ready"]) if "summary" in data else set()
        self.print_table(
            ["task", "state", "title", "waits for", "whose", "held by"],
            [
                (
                    task["id"],
                    "ready" if task["id"] in ready else task["status"],
                    task["title"],
                    ", ".join(map(str, task["deps"])),
                    task.get("owner"),
                    task.get("held_by"),
                )
                for task in tasks
            ],
        )


def _number(text: str) -> int:
    """The type of an argument that is a task's or an issue's id."""
    number = whole_number(text, MAX_INTEGER)
    if number is None:
        raise argparse.ArgumentTypeError("use the number of one")
    return number


FIELDS = (  # of a task, by the option's name
    *("project_root", "title", "deps", "approach", "acceptance", "risk", "plan_issue", "goal", "decisions"),
    *("owner", "owner_agent_id", "owner_reuse_policy"),
)


def _add_fields(parser: CommandParser) -> None:
    parser.add_argument("title", metavar="TITLE", help="What is to be done.")
    parser.add_argument("--context", required=True, metavar="TEXT", help="Why, and what one must know; - reads stdin.")
    parser.add_argument("--dep", dest="deps", action="append", type=_number, metavar="ID", help="A task to be "
                        "completed first; as often as there are some.")  # fmt: skip
    parser.add_argument("--approach", metavar="TEXT", help="How to go about it.")
    parser.add_argument("--acceptance", metavar="TEXT", help="When it is done.")
    parser.add_argument("--risk", metavar="TEXT", help="What may go wrong.")
    parser.add_argument("--plan-issue", type=_number, metavar="ID", help="The issue of the plan that it comes from.")
    parser.add_argument("--owner", help="Whose it is: a role such as engineer, or an agent.")
    parser.add_argument("--owner-agent-id", metavar="ID", help="Which instance of it.")
    parser.add_argument(
        "--owner-reuse-policy", choices=ReusePolicy.values, help="Whether whoever it is is started afresh for it."
    )
    parser.add_argument("--goal", metavar="TEXT", help="Replaces the goal of all tasks.")
    parser.add_argument(
        "--decision", dest="decisions", action="append", metavar="TEXT", help="Appended to those of all tasks."
    )
    add_project_root(parser)


def _add_status(parser: CommandParser) -> None:
    parser.add_argument("id", type=_number, metavar="ID", help="The task's number.")
    parser.add_argument("status", choices=TaskStatus.values, help="What it is now.")
    add_project_root(parser)
