"""What a call may not be: the contract's code, a message that says what is wrong, and nothing half-written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordination.models import Event
from nexus.core.operations import dispatch
from nexus.topics.models import Peer, Topic, TopicMessage
from nexus.topics.toolset import TOPICS
from tests.conftest import examples
from tests.topics.conftest import Client

DEEP: dict[str, Any] = {}
for _ in range(70):
    DEEP = {"a": DEEP}
BAD_METADATA: list[Any] = [[], "{}", 1, DEEP, {"a": "x" * 65_536}]
BAD_MESSAGES: list[dict[str, Any]] = [
    *({"content_markdown": text} for text in (None, "", " \n", 7, "x" * 65_537, "ü" * 32_769, "\ud800")),
    *({"message_type": kind} for kind in (None, "", "x" * 33, "a\nb", 7)),
    *({"reply_to": message_id} for message_id in ("", "nowhere", 7)),
    *({"client_message_id": key} for key in ("", "x" * 129, "a\nb", 7)),
    *({"metadata": metadata} for metadata in BAD_METADATA),
    {"content": "x"},
]

WRONG: dict[str, list[dict[str, Any]]] = {
    "ping": [{"extra": 1}],
    "topic_create": [
        *({"name": name} for name in ("", "  ", "x" * 256, "a\nb", "a\x00b", "a\u202eb", 7, ["a"])),
        *({"mode": mode} for mode in ("old", "", 1, True, None)),
        *({"metadata": metadata} for metadata in [*BAD_METADATA, {"a": float("nan")}]),
        {"nmae": "x"},
    ],
    "topic_list": [{"status": status} for status in ("opened", "", None, 1, ["open"])],
    "topic_resolve": [{}, {"name": None}, {"name": ""}, {"name": 7}, {"name": "cache", "allow_closed": "yes"}],
    "topic_close": [{}, {"topic_id": None}, {"topic_id": ""}, {"reason": 7}, {"reason": "x" * 65_537}],
    "topic_join": [
        {"agent_name": "cleo", "topic_id": None},
        {"agent_name": "cleo", "name": "cache"},
        *({"agent_name": name} for name in (None, "", " ", "x" * 65, "a\tb", 7)),
        {"agent_name": "cleo", "reclaim_token": 7},
    ],
    "topic_presence": [
        *({"window_seconds": seconds} for seconds in (0, -1, "300", 1.5, True, None)),
        *({"limit": limit} for limit in (0, -1, "2", None)),
    ],
    "cursor_reset": [{"last_seq": seq} for seq in (-1, 2, "0", 1.0, True, None, 2**70)],
    "messages_search": [
        {},
        *({"query": query} for query in ("", "  ", None, 7, "x" * 1001)),
        *({"query": "x", "mode": mode} for mode in ("exact", "", None)),
        *({"query": "x", "limit": limit} for limit in (0, -1, "2")),
        {"query": "x", "include_content": 1},
        {"query": "x", "topic_id": ""},
    ],
    "sync": [
        *({"max_items": items} for items in (0, 21, "5", True, None)),
        *({"wait_seconds": seconds} for seconds in (-1, 1.5, "0", None, 86_401)),
        *({"ack_through": seq, "auto_advance": False} for seq in (-1, 2, "0", True)),
        {"include_self": "no"},
        {"auto_advance": None},
        {"outbox": "no JSON"},
        {"outbox": "7"},
        {"outbox": "\ud800"},
        {"outbox": "[" * 100_000},
        {"outbox": '[{"content_markdown": "a\\u0000b"}]'},
        {"outbox": '[{"content_markdown": NaN}]'},
        {"outbox": 7},
        {"outbox": ["text"]},
        {"outbox": [{"content_markdown": "x"}] * 51},
        *({"outbox": [{"content_markdown": "good"}, {"content_markdown": "bad", **bad}]} for bad in BAD_MESSAGES),
        {"outbox": [{"content": "x"}]},
        {"unknown": 1},
    ],
}


def rows() -> list[Any]:
    return [list(model.objects.values()) for model in (Topic, Peer, TopicMessage, Event)]


@pytest.mark.parametrize("tool", WRONG)
def test_it_refuses_what_is_wrong_and_writes_nothing(ann: Client, topic: str, tool: str) -> None:
    ann.say(topic, "one")
    before = rows()
    of_a_topic = "topic_id" in TOPICS.operations[tool].params.model_fields and tool != "messages_search"
    given = {**({"topic_id": topic} if of_a_topic else {}), **({"wait_seconds": 0} if tool == "sync" else {})}
    for wrong in WRONG[tool]:
        arguments = {**given, **wrong} if wrong else wrong
        error = ann.refused(tool, **arguments)
        assert error["code"] == "INVALID_ARGUMENT", (arguments, error)
        assert set(error) == {"code", "message"} and len(error["message"]) < 500
        assert any(name in error["message"] for name in wrong) or tool == "topic_join" or not wrong, (arguments, error)
    assert rows() == before


def test_it_says_where_in_an_outbox_the_error_is(ann: Client, topic: str) -> None:
    outbox = [{"content_markdown": "good"}, {"content": "bad"}]
    message = ann.refused("sync", topic_id=topic, outbox=outbox)["message"]
    assert "outbox[1].content_markdown is required" in message
    outbox[1]["content_markdown"] = "good"
    assert "'content' in outbox[1]" in ann.refused("sync", topic_id=topic, outbox=outbox)["message"]
    assert "outbox[0] must be an object" in ann.refused("sync", topic_id=topic, outbox=["text"])["message"]


def test_it_says_that_one_of_topic_id_and_name_is_wanted(ann: Client, topic: str) -> None:
    for both in ({}, {"topic_id": topic, "name": "cache"}):
        assert "topic_id or name" in ann.refused("topic_join", agent_name="cleo", **both)["message"]


def test_an_unknown_tool_is_answered_in_the_form_of_the_toolset(ann: Client) -> None:
    assert ann.code("nothing") == "NOT_FOUND"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
FIELDS = sorted({name for operation in TOPICS.operations.values() for name in operation.params.model_fields})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(150))
@given(data=st.data())
def test_no_arguments_break_a_tool(ann: Client, topic: str, data: st.DataObject) -> None:
    tool = data.draw(st.sampled_from(sorted(name for name, one in TOPICS.operations.items() if one.tool)))
    arguments = data.draw(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4))
    arguments |= data.draw(st.sampled_from([{}, {"topic_id": topic}, {"topic_id": topic, "agent_name": "cleo"}]))
    body = dispatch.run(TOPICS, ann.caller, tool, {**arguments, **({"wait_seconds": 0} if tool == "sync" else {})})
    assert "error" not in body or body["error"]["code"] in {
        *("INVALID_ARGUMENT", "TOPIC_NOT_FOUND", "AGENT_NOT_JOINED", "AGENT_NAME_IN_USE", "TOPIC_CLOSED")
    }, (tool, arguments, body)
