"""Published clients over models that do what they are told: mail wakes their agents, idle in a terminal, while nobody
presses a key, by the hooks that `nexus setup` writes."""

from __future__ import annotations

import pytest

from tests.agents.person import Person, address, person

__all__ = ["address", "person"]
pytestmark = [pytest.mark.usefixtures("runs_published"), pytest.mark.sqlite]


@pytest.mark.parametrize("name", ["codex", pytest.param("qwen", marks=pytest.mark.long)])
def test_a_message_wakes_an_idle_agent_once_and_leaves_what_is_half_typed(person: Person, name: str) -> None:
    ben = person.open(name)
    ben.terminal.type("half a line")
    ben.wake("Take the parser.")
    ben.wake("Take the lexer, too.")
    assert "half a line" in ben.terminal.screen()
