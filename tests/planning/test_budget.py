"""What the tools of planning cost an agent's context."""

from __future__ import annotations

import json

import pytest

from mcp_bridge.reading import instructions
from mcp_bridge.tools import tools
from nexus.core.operations import toolsets

BUDGET = 7_000  # characters


def test_it_stays_within_the_budget_of_an_agents_context(capsys: pytest.CaptureFixture[str]) -> None:
    choice = toolsets.choose(["planning"])
    listed = [one.model_dump(by_alias=True, mode="json", exclude_none=True) for one in tools(choice)]
    size = len(instructions(choice)) + len(json.dumps({"tools": listed}, ensure_ascii=False))
    with capsys.disabled():
        print(f"\nplanning, instructions and tools/list: {size} of {BUDGET} characters")
    assert size <= BUDGET
