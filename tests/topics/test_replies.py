"""How answers and errors look to a program and to whoever reads text."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_bridge.features import wire
from nexus.core.operations import dispatch
from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.replies import Outcome
from nexus.topics.toolset import REPLY, TOPICS
from tests.topics.conftest import Client


def text(client: Client, tool: str, **arguments: Any) -> str:
    answer = wire(REPLY, dispatch.perform(TOPICS, client.caller, tool, arguments))
    (content,) = answer["content"]
    told: str = content["text"]
    return told


def test_the_text_of_a_join_has_the_token_on_a_line_of_its_own(ann: Client, topic: str) -> None:
    assert (
        f"reclaim_token={ann.join(topic, 'ann')}"
        in text(ann, "topic_join", topic_id=topic, agent_name="ann").splitlines()
    )


def test_the_text_of_a_sync_has_a_summary_and_every_message_with_its_body(ann: Client, bob: Client, topic: str) -> None:
    (question,) = ann.say(topic, "why?\n\n- a list", message_type="question")
    bob.say(topic, "because", message_type="answer", reply_to=question["message_id"])
    told = text(bob, "sync", topic_id=topic, wait_seconds=0, outbox=[{"content_markdown": "x"}], include_self=True)
    summary, sent, *messages = told.split("\n", 2)
    assert summary.startswith("ready: sent 1, received 3, cursor 3")
    assert sent.startswith("sent [3] id=tms_")
    assert (
        f"[1] ann (question) id={question['message_id']} reply_to=-\nwhy?\n\n- a list\n[2] bob (answer) id="
        in messages[0]
    )
    assert f"reply_to={question['message_id']}\nbecause\n[3]" in messages[0]


def test_every_answer_has_a_text(ann: Client, topic: str) -> None:
    ann.say(topic, "the cache")
    calls: dict[str, dict[str, Any]] = {
        "ping": {},
        "topic_create": {"name": "cache"},
        "topic_list": {},
        "topic_resolve": {"name": "cache"},
        "topic_presence": {"topic_id": topic},
        "messages_search": {"query": "cache"},
        "cursor_reset": {"topic_id": topic},
        "topic_close": {"topic_id": topic},
    }
    told = {tool: text(ann, tool, **arguments) for tool, arguments in calls.items()}
    assert "v6.3" in told["ping"]
    assert all(topic in told[tool] for tool in ("topic_create", "topic_list", "topic_resolve", "topic_close"))
    assert "ann: at 0" in told["topic_presence"] and "cursor 0" in told["cursor_reset"]
    assert "\ue000cache\ue001" in told["messages_search"] and "warning:" in told["messages_search"]
    assert "warning:" in text(ann, "topic_close", topic_id=topic)


def test_an_error_is_its_code_and_message_and_the_message_as_text(ann: Client) -> None:
    answer = wire(REPLY, dispatch.perform(TOPICS, ann.caller, "sync", {"topic_id": "nowhere"}))
    error = answer["structuredContent"]["error"]
    assert answer["isError"] is True and error["code"] == "TOPIC_NOT_FOUND"
    assert answer["content"] == [{"type": "text", "text": error["message"]}]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NexusError(Code.VALIDATION_ERROR, "m", {"field": "x"}), "INVALID_ARGUMENT"),
        (NexusError(Code.CONTENT_TOO_LARGE, "m", {"size": 1}), "INVALID_ARGUMENT"),
        (NexusError(Code.DB_ERROR, "m", {"retryable": True}), "DB_BUSY"),
        (NexusError(Code.DB_ERROR, "m", {"cause": "damaged"}), "DB_ERROR"),
        (NexusError(Code.MIGRATION_ERROR, "m"), "DB_SCHEMA_MISMATCH"),
        (NexusError(Code.NOT_OWNER, "m"), "NOT_OWNER"),
    ],
)
def test_what_any_call_may_fail_with_has_the_codes_of_the_toolset(error: NexusError, code: str) -> None:
    assert REPLY.body(Outcome(error=error)) == {"error": {"code": code, "message": "m"}}
