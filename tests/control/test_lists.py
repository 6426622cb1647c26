"""The admin's lists of the pool: their cost does not grow with their rows."""

from __future__ import annotations

from functools import partial

import pytest
from django.test import Client as Browser
from django.urls import reverse

from nexus.control.models import (
    Budget,
    Machine,
    Outage,
    PermissionRule,
    PoolAgent,
    PoolWorktree,
    Question,
    Turn,
    WorktreeMerge,
)
from nexus.core.clock import now
from tests.pages import queries, shown

LISTS = ("turn", "question", "machine", "budget", "permissionrule", "outage", "poolworktree", "worktreemerge")


def more(first: int, last: int) -> None:
    """Make rows of every list."""
    moment = now()
    for number in (f"{number:03}" for number in range(first, last)):
        agent = PoolAgent.objects.create(
            pk=f"pag_{number}", agent_id=f"agent-{number}", depth=0, preset="worker", cwd="/tmp/x", runner=f"r{number}",
            is_temporary=False, created_by="local", created_at=moment, last_action_at=moment,
        )  # fmt: skip
        Machine.objects.create(
            name=f"m{number}", epoch=1, capacity=1, host="h", pid=1, version="1", started_at=moment, beat_at=moment
        )
        turn = Turn.objects.create(
            pk=f"turn_{number}", agent=agent, request_id=f"q{number}", content="work", source="rpc", status="failed",
            queued_at=moment, started_at=moment, ended_at=moment, needs_person_since=moment, why="away",
        )  # fmt: skip
        Question.objects.create(
            pk=f"qst_{number}", agent_id=agent.agent_id, pool_agent=agent, turn=turn, kind="question", title="Which?",
            asked_at=moment, expires_at=moment,
        )  # fmt: skip
        Budget.objects.create(
            pk=f"bud_{number}", scope="agent", name=agent.agent_id, measure="turns", period="total", allowed=9,
            day=moment.date(), set_by="local", set_at=moment,
        )  # fmt: skip
        PermissionRule.objects.create(effect="deny", kind="run", scope="pool", written_by="local", written_at=moment)
        Outage.objects.create(
            pk=f"r{number}", key="k", fault="key", why="no", failures=1, since=moment, until=moment, met_by="x"
        )
        tree = PoolWorktree.objects.create(
            pk=f"wt_{number}", agent=agent, path=f"/x/{number}", git_dir="/g", branch=f"nexus/{number}", base="b",
            origin="/o", origin_git_dir="/o/.git", created_at=moment,
        )  # fmt: skip
        WorktreeMerge.objects.create(
            pk=f"mrg_{number}", worktree=tree, repository="/o/.git", target="main", commit="c", queued_by="local",
            queued_at=moment,
        )  # fmt: skip


@pytest.mark.usefixtures("db")
def test_a_list_asks_as_many_queries_of_thirty_rows_as_of_three(browser: Browser) -> None:
    def asked() -> dict[str, int]:
        pages = {name: reverse(f"admin:control_{name}_changelist") for name in LISTS}
        return {name: queries(partial(browser.get, page)) for name, page in pages.items()}

    more(0, 3)
    few = asked()
    more(3, 30)
    assert asked() == few


@pytest.mark.usefixtures("db")
@pytest.mark.parametrize(
    ("at", "there", "gone"),
    [
        ("machine/?state=lost", "", "field-called"),
        ("permissionrule/?effect__exact=allow", "", "field-number"),
        ("outage/?q=r001", "r001", "r002"),
        ("poolworktree/?q=agent-001", "nexus/001", "nexus/002"),
        ("worktreemerge/?state=open&q=agent-001", "nexus/001", "nexus/002"),
        ("question/?q=agent-001", "qst_001", "qst_002"),
    ],
)
def test_a_list_narrows(browser: Browser, at: str, there: str, gone: str) -> None:
    more(0, 3)
    page = shown(browser.get(f"/admin/control/{at}")).split("<main")[-1]
    assert there in page and gone not in page
