"""The error codes of this app, and the reasons why semantic search is not available."""

from __future__ import annotations

from nexus.core.operations.errors import ErrorCode, NexusError


class TopicCode(ErrorCode):
    """Errors of topics, peers' names and arguments. The clients of this toolset know only these."""

    TOPIC_NOT_FOUND = "TOPIC_NOT_FOUND", 404, "There is no such topic; topic_list lists the topics."
    TOPIC_CLOSED = "TOPIC_CLOSED", 409, "The topic takes no more messages; open another one."
    AGENT_NAME_IN_USE = "AGENT_NAME_IN_USE", 409, "The name is reserved: pass its reclaim_token, or take another name."
    AGENT_NOT_JOINED = "AGENT_NOT_JOINED", 409, "This connection has not joined the topic; call topic_join."
    INVALID_ARGUMENT = "INVALID_ARGUMENT", 400, "An argument is missing, malformed, unknown or out of range."
    DB_BUSY = "DB_BUSY", 503, "The store is busy; send the same call again in a moment."
    DB_SCHEMA_MISMATCH = "DB_SCHEMA_MISMATCH", 500, "The store has another version; ask the operator."


def argument(message: str) -> NexusError:
    """Return an INVALID_ARGUMENT, to raise."""
    return NexusError(TopicCode.INVALID_ARGUMENT, message)


def no_topic(topic: str) -> NexusError:
    """Return a TOPIC_NOT_FOUND, to raise."""
    return NexusError(
        TopicCode.TOPIC_NOT_FOUND, f"There is no topic {topic[:255]!r}; topic_list shows those there are."
    )


class Unavailable(Exception):
    """Semantic search is not available. The text tells the searcher why, and what to do."""


class Refused(Unavailable):
    """The model refuses this text at any length, but accepts others."""
