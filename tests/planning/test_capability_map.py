"""What a role is kept from, in the tools of each client."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.core.coding_clients import SUBAGENTS
from nexus.core.operations.errors import NexusError
from nexus.planning.catalog import bundled
from nexus.planning.catalog.capability_map import blocks, disallowed, tools

CLASSES, AGENTS = bundled.blocked_classes(), bundled.agents()


@pytest.mark.parametrize("client", SUBAGENTS)
def test_every_class_that_is_blocked_has_a_tool_in_every_client(client: str) -> None:
    for classes in CLASSES.values():
        for each in classes:
            assert tools(client, [each])


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ("claude-code", ["Edit", "MultiEdit", "NotebookEdit", "Write", "mcp__nexus__task_add"]),
        ("codex", ["apply_patch", "mcp__nexus__task_add"]),
        ("gemini", ["mcp_nexus_task_add", "replace", "write_file"]),
        ("cursor", ["Delete", "MCP:task_add", "Write"]),
        ("opencode", ["apply_patch", "edit", "nexus_task_add", "write"]),
    ],
)
def test_it_names_a_client_s_own_tools(client: str, expected: list[str]) -> None:
    assert disallowed(AGENTS["tester"], client) == expected


@given(
    st.sampled_from(sorted(AGENTS)),
    st.sampled_from(tuple(SUBAGENTS)),
    st.lists(st.sampled_from(sorted(CLASSES)), max_size=4),
    st.lists(st.sampled_from(sorted(CLASSES)), max_size=4),
)
def test_additions_widen_and_nothing_narrows(role: str, client: str, some: list[str], more: list[str]) -> None:
    agent = AGENTS[role]
    narrow, wide = (set(disallowed(agent, client, added)) for added in (some, [*some, *more]))
    assert set(disallowed(agent, client)) <= narrow <= wide


@given(st.sampled_from(sorted(AGENTS)), st.sampled_from(tuple(SUBAGENTS)))
def test_the_gate_holds_to_what_the_agent_s_file_says(role: str, client: str) -> None:
    listed = disallowed(AGENTS[role], client)
    everything = tools(client, [each for classes in CLASSES.values() for each in classes])
    assert [tool for tool in everything if blocks(role, client, tool)] == listed


@pytest.mark.parametrize(
    ("agent", "client", "tool"),
    [
        ("nobody", "claude-code", "Edit"),
        ("tester", "another", "Edit"),
        ("tester", "claude-code", "Read"),
        ("tester", "claude-code", "mcp__nexus__task_list"),
        ("", "", ""),
    ],
)
def test_the_gate_lets_pass_what_it_does_not_know(agent: str, client: str, tool: str) -> None:
    assert blocks(agent, client, tool) is False


def test_a_capability_that_is_not_there_is_told_by_its_name() -> None:
    with pytest.raises(NexusError, match="'no_sleep'"):
        disallowed(AGENTS["tester"], "codex", ["no_sleep"])
