"""Checks of `nexus doctor` for the pool: an unreadable runners file, and worktrees without an owner."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nexus.control.runners.configuration import problem
from nexus.control.worktrees.trees import FOLDER, LOCKS
from nexus.core.contributions import DoctorCheck, Finding

THERE = """
SELECT w.worktree_id, w.path, w.state, a.agent_id, a.ended_at FROM pool_worktrees w
JOIN pool_agents a ON a.pool_agent_id = w.agent_id WHERE w.state <> 'discarded' ORDER BY w.worktree_id
"""
GONE = "UPDATE pool_worktrees SET state = 'discarded' WHERE worktree_id = '{}'"


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


CHECKS = (DoctorCheck("runners", _check_runners), DoctorCheck("worktrees", _check_worktrees))
