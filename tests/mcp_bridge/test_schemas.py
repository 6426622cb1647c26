"""Every tool's schema is one that OpenAI, Gemini and Anthropic take, by the rules that they publish."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from mcp_types import Tool

from mcp_bridge.features import tools
from nexus.core.operations import registry

# What all three name as supported, of what is used here:
# https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
# https://ai.google.dev/api/caching#Schema
# https://docs.claude.com/en/docs/build-with-claude/structured-outputs#json-schema-limitations
KEYWORDS = {"type", "properties", "required", "additionalProperties", "items", "enum", "anyOf", "description"}
TYPES = {"string", "integer", "number", "boolean", "array", "object"}
DEEPEST, MOST_PROPERTIES, MOST_ENUMERATED, LONGEST_NAME = 5, 100, 500, 64
MOST_OPTIONS = 16  # parameters with anyOf, in one request of Anthropic's

# Objects of any members, which strict mode does not have; the tools of these parameters are not for it.
FREE = {
    *("agent_register.metadata", "session_open.metadata", "artifact_put.metadata", "topic_create.metadata"),
    *("message_create.target", "handoff_create.target"),
    *("plan_decide.how_summary", "plan_decide.how_agent_ids", "sync.outbox[].metadata"),
}
# Bounds that clients of Agent Bus read, which Anthropic's strict mode does not have; `sync` is not for it, as above.
BOUNDED = {"sync.max_items", "sync.wait_seconds"}
ALL = [one for toolset in registry.choose(["all"]) for one in tools((toolset,))]


def parts(schema: dict[str, Any], path: str, depth: int = 1) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """A schema and everything inside, each with its path and its depth in objects."""
    yield path, depth, schema
    for name, part in schema.get("properties", {}).items():
        yield from parts(part, f"{path}.{name}", depth + 1)
    if "items" in schema:
        yield from parts(schema["items"], f"{path}[]", depth)
    for option in schema.get("anyOf", []):
        yield from parts(option, path, depth)


@pytest.mark.parametrize("tool", ALL, ids=lambda tool: tool.name)
def test_it_says_nothing_that_one_of_them_does_not_take(tool: Tool) -> None:
    every = list(parts(tool.input_schema, tool.name))
    assert tool.input_schema["type"] == "object" and "properties" in tool.input_schema
    assert len(tool.name) <= LONGEST_NAME
    assert tool.title and tool.annotations and tool.output_schema and tool.output_schema["type"] == "object"
    for path, depth, part in every:
        assert part.keys() <= (KEYWORDS | {"maximum"} if path in BOUNDED else KEYWORDS), path
        assert depth <= DEEPEST + 1, path
        assert part.get("type") in TYPES or "anyOf" in part, path
        assert part.get("type") != "array" or "items" in part, path
        assert "enum" not in part or (part["type"] == "string" and len(part["enum"]) <= MOST_ENUMERATED), path
        if part.get("type") == "object" and path not in FREE:
            assert "properties" in part and part["additionalProperties"] is False, path
    assert sum(len(part.get("properties", ())) for _, _, part in every) <= MOST_PROPERTIES


def test_the_free_objects_are_those_that_are_named() -> None:
    found = {
        path
        for tool in ALL
        for path, _, part in parts(tool.input_schema, tool.name)
        if part.get("type") == "object" and part.get("additionalProperties") is not False
    }
    assert found == FREE


def test_choices_between_types_are_few() -> None:
    assert sum("anyOf" in part for tool in ALL for _, _, part in parts(tool.input_schema, tool.name)) <= MOST_OPTIONS
