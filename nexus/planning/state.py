"""plan.json and tasks.json as a hook reads them, and whether an agent is resumed for a task: without Django; malformed
parts are skipped."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nexus.planning import resume, rules
from nexus.planning.catalog import bundled
from nexus.planning.directory import PLAN, TASKS, Directory

STATUSES = ("pending", "in_progress", "completed")


class IssueState(NamedTuple):
    """A question to decide, or decided."""

    id: int
    title: str
    status: str


class Task(NamedTuple):
    """A task; an absent text is empty."""

    id: int
    title: str
    status: str
    deps: tuple[int, ...] = ()
    context: str = ""
    approach: str = ""
    acceptance: str = ""
    owner: str = ""
    owner_agent_id: str = ""
    owner_reuse_policy: str = ""


class PlanState(NamedTuple):
    """The active plan and the tasks of the cycle; None where the file is missing or cannot be read."""

    topic: str | None
    issues: tuple[IssueState, ...]
    tasks: tuple[Task, ...] | None

    @property
    def pending(self) -> list[IssueState]:
        """The undecided issues."""
        return [issue for issue in self.issues if issue.status != "decided"]

    @property
    def open(self) -> list[Task]:
        """The tasks that are not completed."""
        return [task for task in self.tasks or () if task.status != "completed"]

    @property
    def ready(self) -> list[Task]:
        """The tasks that can begin."""
        tasks = self.tasks or ()
        free = set(rules.ready({task.id: task.deps for task in tasks}, {task.id: task.status for task in tasks}))
        return [task for task in tasks if task.id in free]


def read_state(directory: Directory) -> PlanState:
    """Return the content of the files. Raises STATE_UNAVAILABLE."""
    plan, board = _object(directory.read(PLAN)), _object(directory.read(TASKS))
    return PlanState(
        topic=None if plan is None else _text(plan, "topic"),
        issues=tuple(
            IssueState(entry["id"], _text(entry, "title"), _text(entry, "status")) for entry in _entries(plan, "issues")
        ),
        tasks=None if board is None else tuple(task_of(entry) for entry in _entries(board, "tasks")),
    )


def task_of(entry: Mapping[str, Any]) -> Task:
    """Return a task from its entry in the file, which has at least an id."""
    names = ("context", "approach", "acceptance", "owner", "owner_agent_id", "owner_reuse_policy")
    deps = entry.get("deps")
    return Task(
        id=entry["id"],
        title=_text(entry, "title"),
        status=status if (status := _text(entry, "status")) in STATUSES else STATUSES[0],
        deps=tuple(each for each in deps if type(each) is int) if isinstance(deps, list) else (),
        **{name: _text(entry, name) for name in names},
    )


def _object(content: bytes | None) -> dict[str, Any] | None:
    try:
        document = json.loads(content or b"null")
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _entries(document: dict[str, Any] | None, name: str) -> list[dict[str, Any]]:
    entries = (document or {}).get(name)
    found = entries if isinstance(entries, list) else []
    return [entry for entry in found if isinstance(entry, dict) and type(entry.get("id")) is int]


def _text(entry: Mapping[str, Any], name: str) -> str:
    value = entry.get(name)
    return value if isinstance(value, str) else ""


def resume_decision(
    task: Task, agent: str | None, sessions: Sequence[resume.Session], edited: resume.Edits
) -> resume.ResumeDecision:
    """Decide whether an agent, by its type or as an instance, is resumed for a task."""
    instance = next((entry for entry in sessions if entry["agent_id"] == agent), None)
    agent_type = instance["agent_type"] if instance else agent or ""
    role = bundled.agents().get(agent_type) or bundled.agents().get(task.owner)
    text = "\n".join((task.title, task.context, task.approach, task.acceptance))
    known = {*edited, *(path for entry in sessions for path in entry.get("files_touched", ()))}
    return resume.decide(
        tier=role.resume_tier if role else None,
        policy=task.owner_reuse_policy or None,
        agent=agent,
        assigned=task.owner_agent_id or None,
        files=[path for path in known if path in text and _names_path(path, text)],
        tracker=sessions,
        edits=edited,
    )


def _names_path(path: str, text: str) -> bool:
    """Return whether a text names a path, and not a longer one that contains it."""
    return re.search(rf"(?<![\w./-]){re.escape(path)}(?![\w/-])", text) is not None
