"""What agents and checks leave in their trees stops nobody: a hub with a pool, over HTTP."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import httpx

from nexus.control.worktrees.trees import SCRATCH
from tests.acceptance.pool import Pool, until
from tests.conftest import Furnish, Nest
from tests.git import git

DEEP = "import os; [(os.mkdir('d'), os.chdir('d')) for _ in range(1500)]"


def test_trees_of_agents_and_checks_stop_nobody(furnish: Furnish, tmp_path: Path, nested: Nest) -> None:
    home, place, secret = furnish(tmp_path / "home"), tmp_path / "project", tmp_path / "secret"
    place.mkdir()
    git(place, "init", "--quiet")
    (place / "nexus.toml").write_text(f"[checks]\ndeep = '''{sys.executable} -c \"{DEEP}\"'''\n")
    git(place, "add", ".")
    git(place, "commit", "--quiet", "-m", "Begin")
    secret.write_text("mine\n")
    pool, where = Pool(home), {"project_root": str(place)}
    try:
        digest = pool.hub.call("checks_list", **where)["digest"]
        pool.hub.call("checks_approve", digest=digest, **where)
        for agent_id in ("bad", "good"):
            pool.result("create_agent", agent_id=agent_id, cwd=str(place), worktree=True)
        bad, good = (Path(pool.agents()[agent_id]["cwd"]) for agent_id in ("bad", "good"))
        os.mkfifo(bad / "pipe")
        (bad / "out").symlink_to(secret)
        with (bad / "sparse").open("wb") as sparse:
            sparse.truncate(60 * 1024**3)
        (good / "good.txt").write_text("good\n")

        handoffs = dict[str, dict[str, str]]()
        for agent_id, other in (("good", "bad"), ("bad", "good")):
            work = {"from_agent_id": other, "target": {"strategy": "direct", "agent_id": agent_id}}
            checked = {"visibility": "public", "acceptance_criteria": ["check:deep"]}
            made = pool.hub.call("handoff_create", **work, **checked, **where)
            handoffs[agent_id] = {"handoff_id": made["handoff_id"]}
            pool.hub.call("handoff_claim", agent_id=agent_id, **handoffs[agent_id], **where)
            pool.hub.call("handoff_complete", agent_id=agent_id, result="Done.", **handoffs[agent_id], **where)
        until(lambda: pool.hub.call("handoff_read", **handoffs["good"])["status"] == "COMPLETED")
        until(lambda: "its files have over" in str(pool.hub.call("handoff_read", **handoffs["bad"])["checks"]))
        pool.operate("pool_worktree_queue", agent_id="good")
        until(lambda: pool.operate("pool_list_merges", which="merged")["merges"])

        (bad / "sparse").unlink()
        until(lambda: pool.hub.call("handoff_read", **handoffs["bad"])["status"] == "COMPLETED")
        pool.operate("pool_worktree_queue", agent_id="bad")
        until(lambda: len(pool.operate("pool_list_merges", which="merged")["merges"]) == 2)
        assert git(place, "show", "HEAD:out") == str(secret) and not (place / "pipe").exists()
        nested(bad)
        pool.result("destroy_agent", agent_id="bad")
        pool.operate("pool_worktree_discard", agent_id="bad", changes_too=True, lost_too=True)
        assert not bad.exists() and secret.read_text() == "mine\n"
        assert [*(home / SCRATCH).iterdir()] == []
        assert httpx.get(f"{pool.hub.url}/readyz").status_code == 200
        assert not [line for line in pool.hub.lines if "Traceback" in line]
    finally:
        pool.close()
