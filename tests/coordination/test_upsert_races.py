"""What several agents make at the same time is made once."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from coordination.models import Agent, Channel, Workspace
from coordination.toolset import run
from tests.conftest import LOCAL, at_once

pytestmark = pytest.mark.usefixtures("committed")


def answers(name: str, /, **arguments: Any) -> list[dict[str, Any]]:
    """The data of eight calls made at once, all of which must succeed."""
    envelopes = at_once([partial(run, LOCAL, name, arguments)] * 8)
    assert all(envelope["ok"] for envelope in envelopes), envelopes
    return [envelope["data"] for envelope in envelopes]


@pytest.mark.parametrize("attempt", range(3))
def test_it_makes_a_channel_once(project: str, attempt: int) -> None:
    made = answers("channel_create", project_root=project, name="news")

    assert [channel["created"] for channel in made].count(True) == 1
    assert len({channel["channel"]["channel_id"] for channel in made}) == 1
    assert Channel.objects.count() == 1


@pytest.mark.parametrize("attempt", range(3))
def test_it_seeds_the_general_channel_once(project: str, attempt: int) -> None:
    listed = answers("channel_list", project_root=project)

    assert all(page == listed[0] for page in listed)
    assert Channel.objects.count() == 1


@pytest.mark.parametrize("attempt", range(3))
def test_it_registers_an_agent_once(attempt: int) -> None:
    answers("agent_register", agent_id="ana", role="planner")

    assert [agent.role for agent in Agent.objects.all()] == ["planner"]


@pytest.mark.parametrize("attempt", range(3))
def test_it_makes_a_workspace_once(project: str, attempt: int) -> None:
    resolved = answers("workspace_resolve", project_root=project)

    assert len({workspace["workspace_id"] for workspace in resolved}) == 1
    assert Workspace.objects.count() == 1
