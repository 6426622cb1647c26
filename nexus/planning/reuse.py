"""The resume decision for a project's task, from the catalog, the tracker and the edits. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nexus.planning import resume
from nexus.planning.catalog import bundled
from nexus.planning.state import Task


def decided(task: Task, agent: str | None, sessions: Sequence[resume.Session], edited: resume.Edits) -> resume.Decision:
    """Decide whether an agent, by its type or as an instance, is resumed for a task."""
    instance = next((entry for entry in sessions if entry["agent_id"] == agent), None)
    agent_type = instance["agent_type"] if instance else agent or ""
    role = bundled.agents().get(agent_type) or bundled.agents().get(task.owner) or {}
    text = "\n".join((task.title, task.context, task.approach, task.acceptance))
    known = {*edited, *(path for entry in sessions for path in entry.get("files_touched", ()))}
    return resume.decide(
        tier=role.get("resume_tier"),
        policy=task.owner_reuse_policy or None,
        agent=agent,
        assigned=task.owner_agent_id or None,
        files=[path for path in known if path in text and _named(path, text)],
        tracker=sessions,
        edits=edited,
    )


def _named(path: str, text: str) -> bool:
    """Return whether a text names a path, and not a longer one that contains it."""
    return re.search(rf"(?<![\w./-]){re.escape(path)}(?![\w/-])", text) is not None
