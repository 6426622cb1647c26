"""Merges of a real hub over real git: a lane with works that conflict, and hubs that are killed meanwhile."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from nexus.control.moving import MOVING
from tests.acceptance.pool import Pool, arguments, until
from tests.conftest import Furnish
from tests.control.test_worktrees import git

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


def test_a_merge_that_a_kill_ended_is_taken_back_when_the_hub_starts_again(furnish: Furnish, tmp_path: Path) -> None:
    home, place = furnish(tmp_path / "home"), tmp_path / "project"
    place.mkdir()
    git(place, "init", "--quiet")
    git(place, "commit", "--quiet", "--allow-empty", "-m", "Begin")
    pool = Pool(home)
    try:
        pool.result("create_agent", agent_id="smith", cwd=str(place), worktree=True)
        tree = Path(pool.agents()["smith"]["cwd"])
        for number in range(4_000):
            path = tree / str(number % 40) / f"{number}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{number}\n")
        merge = pool.threads.submit(pool.operate, "pool_worktree_merge", agent_id="smith")
        while not (place / ".git" / "index.lock").exists() and not merge.done():
            pass
        pool.hub.stop(signal.SIGKILL)
        until(lambda: not any(str(place) in word for word in arguments()))  # git ends with its sandbox
        for lock in (place / ".git").rglob("*.lock"):
            os.utime(lock, (time.time() - 90,) * 2)
        pool = Pool(home)
        until(lambda: git(place, "for-each-ref", MOVING) == "")
        assert git(place, "status", "--porcelain") == ""
    finally:
        pool.hub.stop(signal.SIGKILL)
