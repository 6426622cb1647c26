"""What the tools of planning cost an agent's context."""

from __future__ import annotations

import pytest

from mcp_bridge.features import instructions, tools
from nexus.core.operations import registry
from tests.mcp_bridge.context import characters

BUDGET = 8_900  # characters, of sixteen tools


def test_it_stays_within_the_budget_of_an_agents_context(capsys: pytest.CaptureFixture[str]) -> None:
    choice = registry.choose(["planning"])
    assert len(tools(choice)) == 16
    size = characters(instructions(choice), tools(choice))
    with capsys.disabled():
        print(f"\nplanning, instructions and tools/list: {size} of {BUDGET} characters")
    assert size <= BUDGET
