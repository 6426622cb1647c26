"""What no operation leaves behind in the pool. Nothing here belongs to one workspace, so no history of one holds it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nexus.core.contributions import DoctorCheck, Finding, ImpossibleState

OVER = "status NOT IN ('queued', 'running')"

IMPOSSIBLE = (
    ImpossibleState(
        "pool_turns",
        "over, and nobody knows when",
        f"{OVER} AND ended_at IS NULL",
        "ended_at = coalesce(started_at, queued_at)",
        "they ended when they began",
    ),
    ImpossibleState(
        "pool_turns",
        "going on, with a time of ending",
        "status IN ('queued', 'running') AND ended_at IS NOT NULL",
        "ended_at = NULL",
        "the time was taken off",
    ),
    ImpossibleState(
        "pool_turns",
        "being taken since nobody knows when",
        "status = 'running' AND started_at IS NULL",
        "started_at = queued_at",
        "they began when they were asked for",
    ),
)


def _ceilings(examination: Any) -> Iterator[Finding]:
    """No agent of the pool is more than its parent."""
    if "pool_agents" not in examination.tables():
        return
    raised = examination.value(
        "SELECT count(*) FROM pool_agents AS child JOIN pool_agents AS parent"
        " ON child.parent_id = parent.pool_agent_id"
        " WHERE child.ended_at IS NULL AND (parent.preset <> 'trusted' OR child.depth <> parent.depth + 1)"
    )
    if raised:
        yield Finding(
            f"{raised} agents of the pool are where their parents' ceilings allow none.",
            "Another program wrote them. End them with `nexus rpc destroy`, and create them anew.",
        )


def _waiting_for_nobody(examination: Any) -> Iterator[Finding]:
    """Every turn that waits is an agent's that is there."""
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


CHECKS = (DoctorCheck("pool ceilings", _ceilings), DoctorCheck("pool turns", _waiting_for_nobody))
