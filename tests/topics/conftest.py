"""Peers that talk to topics, each over a connection of its own."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from nexus.core.operations import dispatch
from nexus.core.operations.caller import Caller
from nexus.topics.toolset import TOPICS

_connections = count()


class Client:
    """A connection, and its calls."""

    def __init__(self, agent_id: str | None = None, operator: str | None = None) -> None:
        self.caller = Caller("test", agent_id=agent_id, operator=operator, connection=f"test:{next(_connections)}")

    def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The answer; the test fails on an error."""
        body = dispatch.run(TOPICS, self.caller, tool, arguments)
        assert "error" not in body, body
        return body

    def refused(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The error of a call that must fail."""
        body = dispatch.run(TOPICS, self.caller, tool, arguments)
        assert set(body) == {"error"}, body
        error: dict[str, Any] = body["error"]
        return error

    def code(self, tool: str, /, **arguments: Any) -> str:
        code: str = self.refused(tool, **arguments)["code"]
        return code

    def join(self, topic: str, name: str, **more: Any) -> str:
        """Join by topic_id; the token."""
        token: str = self.call("topic_join", topic_id=topic, agent_name=name, **more)["reclaim_token"]
        return token

    def look(self, topic: str, **more: Any) -> dict[str, Any]:
        """Sync without waiting."""
        return self.call("sync", topic_id=topic, wait_seconds=0, **more)

    def say(self, topic: str, *texts: str, **more: Any) -> list[dict[str, Any]]:
        """Send messages and take nothing; the messages as they were sent."""
        outbox = [{"content_markdown": text, **more} for text in texts]
        sent = self.look(topic, outbox=outbox, auto_advance=False)["sent"]
        return [each["message"] for each in sent]


def texts(synced: dict[str, Any]) -> list[str]:
    """What was received."""
    return [message["content_markdown"] for message in synced["received"]]


@pytest.fixture
def connect(db: None) -> Callable[..., Client]:
    """A new connection."""
    return Client


@pytest.fixture
def ann(db: None) -> Client:
    return Client()


@pytest.fixture
def bob(db: None) -> Client:
    return Client()


@pytest.fixture
def topic(ann: Client, bob: Client) -> str:
    """A topic that ann and bob have joined."""
    topic_id: str = ann.call("topic_create", name="cache")["topic_id"]
    ann.join(topic_id, "ann")
    bob.join(topic_id, "bob")
    return topic_id
