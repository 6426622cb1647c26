"""`nexus tasks`: the tasks of a project's cycle, and which of them are ready."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from handoffs.check_runs import runs_in_words
from handoffs.lifecycle import serialize_verifier
from nexus.core.cli import text_of
from nexus.core.verbs import Column, Option, Row, Verb, VerbsCommand

NUMBER = Option("id", help="The task's number.")
COLUMNS: Mapping[str, Column] = {
    "task": "id",
    "state": "status",
    "title": "title",
    "after": lambda task: ", ".join(map(str, task["deps"])),
    "whose": "owner",
    "held by": "held_by",
}
CHECKS = (
    Option("acceptance_criteria", "--criterion", "What Nexus or the verifier tests, such as check:tests; repeatable."),
    Option("verifier", help="creator, operator, or such as role:reviewer or agent:ana.", read=serialize_verifier),
)
FIELDS = (  # of a new task
    Option("context", "--context", "The reason and the background; - reads it from standard input.", read=text_of),
    Option("deps", "--dep", "A task that must be completed first; repeatable."),
    Option("approach", help="How to do it."),
    "acceptance",
    Option("risk", help="What may go wrong."),
    "plan_issue",
    "owner",
    Option("owner_agent_id", help="The agent in that role."),
    Option("owner_reuse_policy", help="Whether a new agent does it, or one that exists already."),
    "goal",
    Option("decisions", "--decision"),
    *CHECKS,
    "project_root",
)
EDITED = (
    "title",
    "context",
    Option("deps", "--dep"),
    "acceptance",
    "approach",
    "risk",
    "owner",
    *CHECKS,
    "project_root",
)


class Command(VerbsCommand):
    toolset = "planning"
    help = "List the tasks of a project's cycle, or those that are ready; add and update tasks."

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                "List the tasks with their agents.",
                self.list,
                operation="task_list",
                options=["project_root"],
                rows="tasks",
                columns=COLUMNS,
                examples=["nexus tasks list", "nexus tasks list --json | jq .summary"],
            ),
            Verb(
                "ready",
                "List the tasks that can begin: their dependencies are completed.",
                self.ready,
                operation="task_list",
                options=["project_root"],
                rows="tasks",
                columns=COLUMNS,
                examples=["nexus tasks ready --project ../api", "nexus tasks ready --json | jq '.tasks[0].id'"],
                nothing="none is ready",
            ),
            Verb(
                "create",
                operation="task_add",
                words=[Option("title", help="What is to be done.")],
                options=FIELDS,
                shows="task",
                examples=[
                    'nexus tasks create "Write the parser" --context "All input goes through it." --owner engineer',
                    'nexus tasks create "Test the parser" --context - --dep 1 --dep 2 < context.md',
                ],
            ),
            Verb(
                "update",
                operation="task_update",
                words=[Option("id", help="The task's number."), Option("status", help="The new status.")],
                options=["project_root"],
                shows="task",
                examples=["nexus tasks update 1 in_progress", "nexus tasks update 1 completed --json"],
            ),
            Verb(
                "show",
                "Show a task with the checks of its results.",
                self.show_one,
                operation="task_get",
                words=[NUMBER],
                options=["project_root"],
                examples=["nexus tasks show 1", "nexus tasks show 1 --json | jq .checks"],
            ),
            Verb(
                "edit",
                operation="task_edit",
                words=[NUMBER],
                options=EDITED,
                shows="task",
                examples=["nexus tasks edit 1 --criterion check:tests --verifier role:reviewer"],
            ),
            Verb(
                "accept",
                operation="task_approve",
                words=[NUMBER],
                options=["project_root"],
                shows="task",
                examples=["nexus tasks accept 1"],
            ),
            Verb(
                "return",
                operation="task_send_back",
                words=[NUMBER],
                options=[Option("reasons", help="What is wrong with the result."), "project_root"],
                shows="task",
                examples=['nexus tasks return 1 --reasons "The tests fail"'],
            ),
        )

    def list(self, options: Mapping[str, Any]) -> int:
        """Print tasks, one a row."""
        data = self.answer(options)
        if options["json"]:
            return self.present(options, data)
        if data.get("goal"):
            self.print_facts({"goal": data["goal"]})
        return self.present(options, {"tasks": _marked(data)})

    def show_one(self, options: Mapping[str, Any]) -> int:
        """Print one task, and what was tested of its results."""
        data = self.answer(options)
        if options["json"]:
            return self.show(options, data)
        return self.show(options, {**data["task"], **runs_in_words(data)})

    def ready(self, options: Mapping[str, Any]) -> int:
        """Print the tasks that are ready, one a row."""
        data = self.answer(options)
        ready = _ready(data)
        tasks = data.get("tasks", []) if options["json"] else _marked(data)
        return self.present(options, {"tasks": [task for task in tasks if task["id"] in ready]})


def _ready(data: Mapping[str, Any]) -> set[int]:
    return set(data["summary"]["ready"]) if "summary" in data else set()


def _marked(data: Mapping[str, Any]) -> list[Row]:
    """Return the tasks for people: those that can begin have the status `ready`."""
    ready = _ready(data)
    return [{**task, "status": "ready"} if task["id"] in ready else task for task in data.get("tasks", [])]
