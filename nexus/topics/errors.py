"""The error codes of this app, and why there is no search by meaning."""

from __future__ import annotations

from nexus.core.operations.errors import ErrorCode, NexusError


class TopicCode(ErrorCode):
    """What may be wrong with a topic, a peer's name or an argument; the clients of this toolset know these alone."""

    TOPIC_NOT_FOUND = "TOPIC_NOT_FOUND", 404, "There is no such topic; topic_list shows those there are."
    TOPIC_CLOSED = "TOPIC_CLOSED", 409, "The topic takes no more messages; open another one."
    AGENT_NAME_IN_USE = "AGENT_NAME_IN_USE", 409, "The name is reserved: pass its reclaim_token, or take another name."
    AGENT_NOT_JOINED = "AGENT_NOT_JOINED", 409, "This connection has not joined the topic; call topic_join."
    INVALID_ARGUMENT = "INVALID_ARGUMENT", 400, "An argument is missing, malformed, unknown or out of range."
    DB_BUSY = "DB_BUSY", 503, "The store is busy; send the same call again in a moment."
    DB_SCHEMA_MISMATCH = "DB_SCHEMA_MISMATCH", 500, "The store is of another version; ask the operator."


def argument(message: str) -> NexusError:
    """An INVALID_ARGUMENT; raise what this returns."""
    return NexusError(TopicCode.INVALID_ARGUMENT, message)


def no_topic(topic: str) -> NexusError:
    """A TOPIC_NOT_FOUND; raise what this returns."""
    return NexusError(
        TopicCode.TOPIC_NOT_FOUND, f"There is no topic {topic[:255]!r}; topic_list shows those there are."
    )


class Unavailable(Exception):
    """Why not, and what to do, in sentences for whoever searched."""


class Refused(Unavailable):
    """The model takes this text at no length, and others it takes."""
