"""A team at work, and a browser on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from control.models import PoolAgent, PoolWorktree
from coordination.ids import new_id
from coordination.toolset import run
from core.clock import now
from core.operations import runner
from core.operations.caller import Caller
from files.toolset import FILES
from planning.models import Cycle, Issue, Task
from planning.toolset import PLANNING
from tests.browser import scene
from tests.conftest import OPERATOR
from tests.dashboard.test_dashboard import LOCAL, Ids, do
from tests.topics.conftest import Client as Peer
from topics import connections


def planning(operation: str, /, **arguments: Any) -> dict[str, Any]:
    """Call an operation of planning."""
    return dict(runner.perform(PLANNING, Caller(transport="test"), operation, arguments).result())


def files(operation: str, /, **arguments: Any) -> dict[str, Any]:
    """Call an operation of files."""
    return dict(runner.perform(FILES, Caller(transport="test"), operation, arguments).result())


@pytest.fixture
def team(db: None, tmp_path: Path) -> Ids:
    """A small team at work."""
    root = tmp_path / "parser"
    root.mkdir()
    added = run(OPERATOR, "webhook_add", {"url": "https://example.com/nexus", "types": ["operator.created"]})["data"]
    topic = scene.talk(Peer().call)
    connections._held.clear()
    played = scene.play(do, root)
    scene.plan(planning, root)
    planned = {"issue": str(Issue.objects.all()[0].pk), "task": Task.objects.filter(closed_at=None)[0].pk}
    planned |= {"cycle": str(Cycle.objects.get().pk)}
    planned["reservation"] = scene.hold(files, root, played["claimed"])
    planned["pool_agent"] = _in_pool(root).pk
    return {**played, **topic, **planned, "root": str(root), "webhook": added["webhook_id"]}


def _in_pool(root: Path) -> PoolAgent:
    moment = now()
    lead = PoolAgent.objects.create(
        pool_agent_id=new_id("pool"), agent_id="lead", depth=0, preset="trusted", cwd=str(root), runner="rehearsal",
        is_temporary=False, created_by="ada", created_at=moment, last_action_at=moment,
    )  # fmt: skip
    PoolWorktree.objects.create(
        worktree_id=new_id("tree"), agent=lead, path=f"{root}/tree", git_dir=f"{root}/.git", branch="nexus/lead",
        base="0" * 40, origin=str(root), origin_git_dir=f"{root}/.git", created_at=moment,
    )  # fmt: skip
    return lead


@pytest.fixture
def browser() -> Client:
    """A browser on this machine."""
    return Client(headers=LOCAL)
