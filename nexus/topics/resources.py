"""MCP resources of topics."""

from __future__ import annotations

from collections.abc import Mapping

from nexus.core.operations.replies import Prompt, Reference, packaged
from nexus.topics.toolset import TOPICS

TOPICS.references.append(
    Reference(
        "nexus://reference/topics",
        "topics",
        "Ways of working in a topic: a task's room, questions, a review loop, handing over, coming back.",
        packaged("nexus.topics", "topics"),
    )
)


def work_in_topic(given: Mapping[str, str]) -> str:
    """Return the page, filled in for a known topic and name."""
    return (
        f"{TOPICS.instructions()}\n{packaged('nexus.topics', 'topics')()}\n"
        f"Work in the topic {given['topic']!r} now, as {given['agent_name']!r}: open it if it is not there, join it, "
        "sync until has_more is false, and answer the questions that you can."
    )


TOPICS.prompts.append(
    Prompt(
        "work_in_topic",
        "Join a topic, catch up, and take part.",
        {"topic": "The topic's name.", "agent_name": "The name to go by in it."},
        work_in_topic,
    )
)
