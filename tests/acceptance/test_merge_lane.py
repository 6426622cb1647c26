"""Merges of a real hub over real git: a lane with works that conflict, and hubs that are killed meanwhile."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.acceptance.pool import Pool, until
from tests.conftest import Furnish
from tests.git import git

AGENTS = ("one", "two", "three")


def test_all_is_merged_or_comes_back_although_the_hub_is_killed(furnish: Furnish, tmp_path: Path) -> None:
    home, place = furnish(tmp_path / "home"), tmp_path / "project"
    place.mkdir()
    git(place, "init", "--quiet")
    (place / "notes.txt").write_text("begin\n")
    git(place, "add", ".")
    git(place, "commit", "--quiet", "-m", "Begin")
    pool = Pool(home)
    try:
        for agent_id in AGENTS:
            pool.result("create_agent", agent_id=agent_id, cwd=str(place), worktree=True)
            tree = Path(pool.agents()[agent_id]["cwd"])
            (tree / f"{agent_id}.txt").write_text(f"{agent_id}\n")
            if agent_id != "three":
                (tree / "notes.txt").write_text(f"{agent_id}\n")
        for agent_id in AGENTS:
            pool.operate("pool_worktree_queue", agent_id=agent_id)
        pool.hub.stop(signal.SIGKILL)
        pool = Pool(home)
        until(lambda: pool.operate("pool_list_merges", which="merged")["merges"])
        pool.hub.stop(signal.SIGKILL)
        pool = Pool(home)
        until(lambda: not pool.operate("pool_list_merges")["merges"])
        merges = {row["agent_id"]: row for row in pool.operate("pool_list_merges", which="all")["merges"]}
        assert {name: row["state"] for name, row in merges.items()} == {
            "one": "merged",
            "two": "returned",
            "three": "merged",
        }
        [conflict] = merges["two"]["conflicts"]
        assert conflict["file"] == "notes.txt" and "one\n=======\ntwo\n" in conflict["hunk"]
        until(lambda: pool.operate("pool_list_runs", agent_id="two")["runs"])
        assert git(place, "log", "--first-parent", "--format=%s").split("\n") == [
            "Merge nexus/three, the work of three",
            "Merge nexus/one, the work of one",
            "Begin",
        ]
        assert git(place, "show", "nexus/two:two.txt") == "two"
        assert git(place, "status", "--porcelain") == ""
    finally:
        pool.hub.stop(signal.SIGKILL)
