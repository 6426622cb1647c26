"""The ten tools as agents see them, and what agents read beside them."""

from __future__ import annotations

from mcp_bridge import features
from mcp_bridge.features import tools
from nexus.core.operations.registry import choose
from nexus.topics.toolset import TOPICS
from tests.mcp_bridge.context import characters

SURFACE = {
    "ping": "",
    "topic_create": "name metadata mode=reuse",
    "topic_list": "limit cursor status=open",
    "topic_resolve": "name* allow_closed=False",
    "topic_close": "topic_id* reason",
    "topic_join": "agent_name* topic_id name allow_closed=False reclaim_token",
    "topic_presence": "topic_id* window_seconds=300 limit=200",
    "cursor_reset": "topic_id* last_seq=0",
    "messages_search": "query* topic_id mode=hybrid limit=20 model include_content=False",
    "sync": "topic_id* outbox max_items=20 include_self=False wait_seconds=60 auto_advance=True ack_through",
}
CHOICE = choose(["topics"])


def test_it_offers_the_tools_of_the_contract_with_their_parameters_and_defaults() -> None:
    surface = {}
    for tool in tools(CHOICE):
        required, fields = tool.input_schema.get("required", ()), TOPICS.operations[tool.name].params.model_fields
        words = [
            name + ("*" if name in required else "" if fields[name].default is None else f"={fields[name].default}")
            for name in tool.input_schema["properties"]
        ]
        surface[tool.name] = " ".join(words)
    assert surface == SURFACE


def test_the_ten_tools_stay_within_their_budget_of_an_agents_context() -> None:
    assert characters("", tools(CHOICE)) <= 6_000


def test_each_tool_tells_the_fields_of_its_answer_and_takes_an_error_too() -> None:
    for tool in tools(CHOICE):
        assert tool.output_schema is not None and "required" not in tool.output_schema, tool.name
        shape = TOPICS.operations[tool.name].data
        assert shape is not None and tool.output_schema["properties"].keys() == shape.__annotations__.keys(), tool.name
    joined = next(tool for tool in tools(CHOICE) if tool.name == "topic_join").output_schema
    assert joined is not None and joined["properties"]["reclaim_token"] == {"type": "string"}


def test_a_limit_that_is_refused_above_its_maximum_tells_it() -> None:
    sync = next(tool for tool in tools(CHOICE) if tool.name == "sync").input_schema["properties"]
    assert (sync["max_items"]["maximum"], sync["wait_seconds"]["maximum"]) == (20, 86_400)


def test_it_teaches_the_ways_of_working_in_a_topic() -> None:
    (page,) = TOPICS.references
    assert [resource.uri for resource in features.resources(CHOICE)] == [page.uri]
    for way in ("task", "question", "review", "Handing over", "Coming back", "ack_through", "client_message_id"):
        assert way in page.text()
    assert "reclaim_token" in TOPICS.instructions()
    asked = {"topic": "cache", "agent_name": "red-squirrel"}
    (message,) = features.prompt(CHOICE, "work_in_topic", asked).messages
    told = message.content.text  # type: ignore[union-attr]
    assert "'cache'" in told and "'red-squirrel'" in told and page.text() in told
