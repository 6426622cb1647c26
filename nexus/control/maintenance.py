"""What doctor and retention need of the pool: states that no operation leaves behind, checks, retention lanes.

Pool rows belong to no workspace, so no workspace's export holds them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet

from nexus.control.models import Entry, PoolAgent, PoolWorktree, Question, Turn, Wake, WorktreeState
from nexus.control.runners.configuration import problem
from nexus.control.trees import FOLDER, LOCKS
from nexus.control.wakeups import MAIL
from nexus.core.contributions import DoctorCheck, Finding, ImpossibleState, RetentionLane

THERE = """
SELECT w.worktree_id, w.path, w.state, a.agent_id, a.ended_at FROM pool_worktrees w
JOIN pool_agents a ON a.pool_agent_id = w.agent_id WHERE w.state <> 'discarded' ORDER BY w.worktree_id
"""
GONE = "UPDATE pool_worktrees SET state = 'discarded' WHERE worktree_id = '{}'"
OVER = "status NOT IN ('queued', 'running')"

IMPOSSIBLE = (
    ImpossibleState(
        "pool_turns",
        "ended, without a time of ending",
        f"{OVER} AND ended_at IS NULL",
        "ended_at = coalesce(started_at, queued_at)",
        "they ended when they began",
    ),
    ImpossibleState(
        "pool_turns",
        "open, with a time of ending",
        "status IN ('queued', 'running') AND ended_at IS NOT NULL",
        "ended_at = NULL",
        "the time was removed",
    ),
    ImpossibleState(
        "pool_turns",
        "running, without a time of starting",
        "status = 'running' AND started_at IS NULL",
        "started_at = queued_at",
        "they began when they were queued",
    ),
)


def _ceilings(examination: Any) -> Iterator[Finding]:
    """Check that no pool agent exceeds its parent's ceiling."""
    if "pool_agents" not in examination.tables():
        return
    raised = examination.value(
        "SELECT count(*) FROM pool_agents AS child JOIN pool_agents AS parent"
        " ON child.parent_id = parent.pool_agent_id"
        " WHERE child.ended_at IS NULL AND (parent.preset <> 'trusted' OR child.depth <> parent.depth + 1)"
    )
    if raised:
        yield Finding(
            f"{raised} agents of the pool exceed their parents' ceilings.",
            "Another program wrote them. End them with `nexus rpc destroy`, and create them again.",
        )


def _waiting_for_nobody(examination: Any) -> Iterator[Finding]:
    """Check that every queued turn belongs to a living agent."""
    if "pool_turns" not in examination.tables():
        return
    lost = "status = 'queued' AND agent_id IN (SELECT pool_agent_id FROM pool_agents WHERE ended_at IS NOT NULL)"
    if count := examination.value(f"SELECT count(*) FROM pool_turns WHERE {lost}"):  # noqa: S608
        yield Finding(
            f"{count} turns wait for agents of the pool that ended.",
            "Nobody takes them.",
            examination.repair(f"UPDATE pool_turns SET status = 'cancelled', ended_at = queued_at WHERE {lost}"),  # noqa: S608
            "they were cancelled",
        )


def _check_runners(examination: Any) -> Iterator[Finding]:
    """Check that the runners file can be read."""
    if wrong := problem():
        yield Finding(wrong, "Correct the file; then `nexus rpc runners` shows its runners.")


def _check_worktrees(examination: Any) -> Iterator[Finding]:
    """Check that each worktree below the home belongs to an agent and exists, and that those of ended agents are
    settled."""
    if "pool_worktrees" not in examination.tables():
        return
    known = set()
    for key, path, state, agent_id, ended_at in examination.rows(THERE):
        known.add(path)
        if not Path(path).is_dir():
            yield Finding(
                f"The worktree of {agent_id!r} is gone: {path}.",
                "Its branch may still exist; the worktree's record is useless.",
                examination.repair(GONE.format(key)),  # an id of our own making
                "mark it as discarded",
            )
        elif state == "open" and ended_at is not None:
            yield Finding(
                f"{agent_id!r} ended, and its worktree {path} is not settled.",
                "Merge, keep or discard it on the agent's page.",
                note=True,
            )
    home = Path(os.path.realpath(examination.path)) / FOLDER
    for path in sorted(home.iterdir()) if home.is_dir() else ():
        if str(path) not in known and path.name != LOCKS:
            yield Finding(
                f"{path} is no agent's worktree: it was not finished, or its record was pruned.",
                "Look into it, and remove the directory.",
            )


CHECKS = (
    DoctorCheck("pool ceilings", _ceilings),
    DoctorCheck("pool turns", _waiting_for_nobody),
    DoctorCheck("runners", _check_runners),
    DoctorCheck("worktrees", _check_worktrees),
)


KEPT_TURNS = 20  # the last ended turns of each agent that are kept, whatever their age


def _ended(horizon: datetime) -> QuerySet[PoolAgent]:
    over = PoolAgent.objects.filter(ended_at__lt=horizon, children=None)  # children refer to their parents
    existing = PoolWorktree.objects.exclude(state=WorktreeState.DISCARDED)
    return over.exclude(pk__in=existing.values("agent")).order_by("ended_at")


def _questions(horizon: datetime) -> QuerySet[Question]:
    return Question.objects.filter(ended_at__lt=horizon, always=False).order_by("ended_at")  # "always" stays valid


def _entries(horizon: datetime) -> QuerySet[Entry]:
    """Return compacted entries of living agents. Entries in the context leave it by compaction alone: the runners need
    them."""
    living = PoolAgent.objects.living().values("pk")
    return Entry.objects.filter(agent__in=living, compacted_at__lt=horizon).order_by("agent", "compacted_at")


def _turns(horizon: datetime) -> QuerySet[Turn]:
    """Return old turns of living agents that have no entry left, except the last ones and those that questions or wakes
    still refer to."""
    newer = Turn.objects.filter(agent=OuterRef("agent"), ended_at__gt=OuterRef("ended_at"))
    kept = (
        Entry.objects.filter(turn=OuterRef("pk")),
        Question.objects.filter(turn=OuterRef("pk")),  # it has its own retention, or stays valid
        Wake.objects.filter(turn=OuterRef("pk")).exclude(kind=MAIL),  # without it the item would wake the agent again
    )
    old = Turn.objects.filter(ended_at__lt=horizon, agent__ended_at=None)
    old = old.filter(Exists(newer[KEPT_TURNS - 1 :]), *(~Exists(rows) for rows in kept))
    return old.order_by("ended_at")


LANES = (
    RetentionLane("ended_questions", _questions),
    RetentionLane("ended_pool_agents", _ended),
    RetentionLane("compacted_pool_entries", _entries),  # before their turns: a turn has any number of them
    RetentionLane("ended_pool_turns", _turns),
)
