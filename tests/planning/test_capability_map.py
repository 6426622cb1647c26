"""What a role is kept from, in the tools of each client."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.core.clients import SUBAGENTS
from nexus.core.operations.errors import NexusError
from nexus.planning.catalog import bundled
from nexus.planning.catalog.bundled import DIRECTORY
from nexus.planning.catalog.capability_map import blocks, disallowed, effective, tools
from nexus.planning.catalog.loader import load
from tests.planning.catalogs import changed, copied

OWN = load(DIRECTORY).manifest
CLASSES = OWN.blocked_classes
AGENTS = {agent.id: agent for agent in OWN.agents}


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
    assert disallowed(AGENTS["tester"], client, CLASSES) == expected


@given(
    st.sampled_from(sorted(AGENTS)),
    st.sampled_from(tuple(SUBAGENTS)),
    st.lists(st.sampled_from(sorted(CLASSES)), max_size=4),
    st.lists(st.sampled_from(sorted(CLASSES)), max_size=4),
)
def test_additions_widen_and_nothing_narrows(role: str, client: str, some: list[str], more: list[str]) -> None:
    agent = AGENTS[role]
    assert effective(agent) <= effective(agent, some) <= effective(agent, [*some, *more])
    narrow, wide = (set(disallowed(agent, client, CLASSES, added)) for added in (some, [*some, *more]))
    assert set(disallowed(agent, client, CLASSES)) <= narrow <= wide


@given(st.sampled_from(sorted(AGENTS)), st.sampled_from(tuple(SUBAGENTS)))
def test_the_gate_holds_to_what_the_agent_s_file_says(role: str, client: str) -> None:
    listed = disallowed(AGENTS[role], client, CLASSES)
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


@pytest.mark.parametrize("client", SUBAGENTS)
def test_a_class_of_another_catalog_without_a_tool_is_told_by_its_name(client: str, tmp_path: Path) -> None:
    other = load(
        changed(
            copied(tmp_path / "catalog"),
            lambda manifest: manifest["vocabulary"]["capabilities"][0]["blocks_semantic_classes"].append("time_travel"),
        )
    ).manifest
    tester = next(agent for agent in other.agents if agent.id == "tester")
    with pytest.raises(NexusError, match="'time_travel'") as refused:
        disallowed(tester, client, other.blocked_classes)
    assert refused.value.code == "CONFIG_ERROR"


def test_a_capability_that_is_not_there_is_told_by_its_name() -> None:
    with pytest.raises(NexusError, match="'no_sleep'"):
        disallowed(AGENTS["tester"], "codex", CLASSES, ["no_sleep"])


def test_hooks_know_the_same_classes() -> None:
    assert bundled.blocked_classes() == CLASSES
