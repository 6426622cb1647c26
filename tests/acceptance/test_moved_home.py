"""A home that is moved away under the processes that serve it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.acceptance.hub import START_SECONDS, Hub, start
from tests.acceptance.processes import Raw, nexus

pytestmark = pytest.mark.sqlite  # a file moves; a database has a name

PATHS = ["/admin/", "/admin/inbox/message/", "/admin/inbox/message/", "/api/v1/agents", "/metrics", "/readyz"]


@pytest.fixture
def hub(home: Path) -> Iterator[Hub]:
    """A hub of its own, whose home is ours to move."""
    hub = start(home)
    yield hub
    hub.process.kill()
    hub.process.wait()


def answers(hub: Hub) -> set[int]:
    return {httpx.get(f"{hub.url}{path}").status_code for path in PATHS}


@pytest.mark.parametrize("another", [False, True], ids=["nothing", "another store"])
def test_it_serves_no_store_that_nobody_else_finds_and_goes_on_when_it_is_back(hub: Hub, another: bool) -> None:
    hub.call("agent_register", agent_id="before")
    away = hub.home.with_name("away")
    with Raw(hub.home) as agent:
        agent.greet()
        assert agent.call("agent_list", {})["ok"]
        assert answers(hub) == {200}

        hub.home.rename(away)
        if another:
            nexus(hub.home, "agents")
            assert (hub.home / "nexus.db").exists(), "a new process makes a store of its own"
        else:
            hub.home.mkdir()
        for _ in range(10):  # whichever thread it is that answers
            refused = httpx.post(f"{hub.url}/api/v1/operations/agent_register", json={"agent_id": "lost"})
            assert (refused.status_code, refused.json()["error"]["details"]) == (503, {"cause": "moved"})
        assert answers(hub) == {503}
        assert "no longer at" in httpx.get(f"{hub.url}/readyz").json()["data"]["problem"]
        assert "no longer at" in httpx.get(f"{hub.url}/admin/").text
        assert agent.call("agent_register", {"agent_id": "lost"})["error"]["details"] == {"cause": "moved"}
        assert another or list(hub.home.iterdir()) == [], "it makes nothing there"

        hub.home.rename(hub.home.with_name("other"))
        away.rename(hub.home)
        assert answers(hub) == {200}
        assert [row["agent_id"] for row in hub.call("agent_list")["agents"]] == ["before"]
        assert agent.call("agent_register", {"agent_id": "after"})["ok"]
    with closing(sqlite3.connect(hub.home / "nexus.db")) as store:
        assert store.execute("SELECT agent_id FROM agents ORDER BY 1").fetchall() == [("after",), ("before",)]
    assert sum("no longer at" in line and "store_file: " in line for line in hub.lines) == 1
    assert not [line for line in hub.lines if "Traceback" in line], "\n".join(hub.lines)


def test_it_says_so_from_threads_that_never_used_the_store(hub: Hub) -> None:
    """Each opens a connection of its own, and what is not there cannot be opened."""
    hub.home.rename(hub.home.with_name("away"))
    assert answers(hub) == {503}
    nobody = httpx.post(f"{hub.url}/mcp", headers={"x-api-key": f"nxs_{'0' * 48}"})
    assert (nobody.status_code, nobody.json()["error"]["details"]) == (503, {"cause": "moved"})
    stream = httpx.get(f"{hub.url}/api/v1/stream?cursor=0", timeout=START_SECONDS)
    assert (stream.status_code, stream.text) == (200, ": here\nid: 0\n\n")
    with pytest.raises(InvalidStatus, match="403"):
        connect(f"ws://{hub.authority}/ws/events/")
    with connect(f"ws://{hub.authority}/ws/events/?cursor=0") as listener:
        assert "no longer at" in json.loads(listener.recv(timeout=START_SECONDS))["reason"]
    assert not [line for line in hub.lines if "Traceback" in line], "\n".join(hub.lines)
