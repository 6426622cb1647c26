"""Lists that come whole by default, and a page at a time for who asks for that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import time_machine

from coordination.toolset import run as coordination
from nexus.core.operations.caller import Caller
from nexus.core.operations.dispatch import run
from nexus.topics.toolset import TOPICS
from tests.conftest import LOCAL

pytestmark = pytest.mark.django_db
Listing = Callable[..., dict[str, Any]]


def agents(tmp_path: Path) -> Listing:
    for number in range(5):
        coordination(LOCAL, "agent_register", {"agent_id": f"agent-{number}"})
    return lambda **page: coordination(LOCAL, "agent_list", page)


def workspaces(tmp_path: Path) -> Listing:
    for number in range(5):
        (tmp_path / str(number)).mkdir()
        coordination(LOCAL, "workspace_resolve", {"project_root": str(tmp_path / str(number))})
    return lambda **page: coordination(LOCAL, "workspace_list", page)


def topics(tmp_path: Path) -> Listing:
    caller = Caller("test", agent_id="ann", connection="test:pages")
    for number in range(5):
        run(TOPICS, caller, "topic_create", {"name": f"topic-{number}"})
    return lambda **page: {"ok": True, "data": run(TOPICS, caller, "topic_list", page)}


@pytest.fixture(params=[agents, workspaces, topics])
def listing(request: pytest.FixtureRequest, tmp_path: Path) -> Listing:
    """Five rows, some of the same moment."""
    with time_machine.travel("2030-01-01T00:00:00Z", tick=False):
        made: Listing = request.param(tmp_path)
    return made


def rows(data: dict[str, Any]) -> list[Any]:
    return next(value for value in data.values() if isinstance(value, list))


@pytest.mark.parametrize("limit", [1, 2, 5, 6])
def test_pages_are_the_whole_list_in_its_order(listing: Listing, limit: int) -> None:
    whole = listing()["data"]
    assert len(whole) == 1 and len(rows(whole)) == 5  # as the contract has it: nothing beside the list
    found: list[Any] = []
    page: dict[str, Any] = listing(limit=limit)["data"]
    while True:
        assert len(rows(page)) <= limit
        found += rows(page)
        assert page["has_more"] == (page["next_cursor"] is not None)
        if not page["has_more"]:
            break
        page = listing(limit=limit, cursor=page["next_cursor"])["data"]
    assert found == rows(whole)


@pytest.mark.parametrize("page", [{"cursor": "nobody"}, {"cursor": "nobody", "limit": 2}, {"limit": 0}])
def test_it_refuses_a_page_that_there_is_not(page: dict[str, Any], tmp_path: Path) -> None:
    assert agents(tmp_path)(**page)["error"]["code"] == "VALIDATION_ERROR"
