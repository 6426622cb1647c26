"""`nexus demo`, played for real and checked by its own account."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.hub import Hub
from tests.acceptance.processes import nexus
from tests.postgres import SERVER, url


def test_it_plays_in_a_throwaway_home_and_loses_nothing(tmp_path: Path) -> None:
    played = nexus(tmp_path / "home", "demo", "--rounds", "3", "--pause", "0.02")
    assert played.returncode == 0, played.stdout + played.stderr
    assert "✗" not in played.stdout and played.stdout.count("✓") == 7
    assert "demo-reviewer  reads from demo-worker" in played.stdout
    assert not (tmp_path / "home" / "nexus.db").exists(), "one's own home is left alone"


@pytest.mark.sqlite
def test_it_leaves_the_teams_store_alone_where_no_hub_serves_it(tmp_path: Path) -> None:
    played = nexus(
        tmp_path / "home", "demo", "--rounds", "1", "--pause", "0.02", NEXUS_DB_PATH=str(tmp_path / "our.db")
    )
    assert played.returncode == 0, played.stdout + played.stderr
    assert not (tmp_path / "our.db").exists()


@pytest.mark.skipif(not SERVER, reason="needs a PostgreSQL server")
def test_it_leaves_the_teams_database_alone_where_no_hub_serves_it(tmp_path: Path) -> None:
    address = url("nexus_tests_that_is_not_there")
    played = nexus(tmp_path / "home", "demo", "--rounds", "1", "--pause", "0.02", NEXUS_DATABASE_URL=address)
    assert played.returncode == 0, played.stdout + played.stderr


def test_it_plays_on_the_hub_that_serves_the_home(hub: Hub) -> None:
    for _ in range(2):
        played = nexus(hub.home, "demo", "--rounds", "2", "--pause", "0.02")
        assert played.returncode == 0, played.stdout + played.stderr
        assert f"on the hub at {hub.url}" in played.stdout and "✗" not in played.stdout
        assert "What stays is history: the project " in played.stdout
        assert not [agent for agent in hub.call("agent_list")["agents"] if agent["agent_id"].startswith("demo-")]


def test_it_refuses_a_bad_number_of_rounds(tmp_path: Path) -> None:
    ended = nexus(tmp_path / "home", "demo", "--rounds", "none")
    assert ended.returncode == 1 and "CONFIG_ERROR" in ended.stderr
