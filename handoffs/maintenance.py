"""What export and doctor need of handoffs: kinds, checks, and states that no operation leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from handoffs.models import CheckRun, Dependency, Handoff, Remark
from handoffs.selectors import REBUILD_SEARCH
from nexus.core.contributions import DoctorCheck, ExportKind, Finding, ImpossibleState, rows_in_workspace

KINDS = (
    ExportKind(
        "handoff", Handoff, 80, rows_in_workspace(Handoff), agents=("from_agent_id", "claimed_by", "released_from")
    ),
    ExportKind("handoff_remark", Remark, 81, rows_in_workspace(Remark, "handoff__workspace"), agents=("agent_id",)),
    ExportKind("handoff_check_run", CheckRun, 83, rows_in_workspace(CheckRun, "handoff__workspace")),
    ExportKind("handoff_dependency", Dependency, 82, rows_in_workspace(Dependency, "handoff__workspace")),
)

IMPOSSIBLE = (
    ImpossibleState(
        "handoffs",
        "held without a holder or a lease",
        "status IN ('CLAIMED', 'IN_PROGRESS', 'BLOCKED') AND (claimed_by IS NULL OR lease_expires_at IS NULL)",
        "claimed_by = coalesce(claimed_by, 'unknown'), lease_expires_at = created_at",
        "their lease was ended, so that the next read opens them again",
    ),
    ImpossibleState(
        "handoffs",
        "open with a claimant or a lease",
        "status = 'OPEN' AND (claimed_by IS NOT NULL OR lease_expires_at IS NOT NULL)",
        "claimed_by = NULL, lease_expires_at = NULL",
        "claimant and lease were removed",
    ),
    ImpossibleState(
        "handoffs",
        "done with a lease",
        "status IN ('SUBMITTED', 'COMPLETED', 'REJECTED', 'CANCELLED', 'EXPIRED') AND lease_expires_at IS NOT NULL",
        "lease_expires_at = NULL",
        "the lease was removed",
    ),
)


def _unborn(examination: Any) -> Iterator[Finding]:
    """Check that every handoff names an event that exists."""
    if not {"handoffs", "events"} <= examination.tables():
        return
    unborn = "SELECT count(*) FROM handoffs WHERE created_event_id > ?"
    if count := examination.value(unborn, examination.given_out("events")):
        yield Finding(
            f"{count} handoffs name an event that was never written.",
            "Lists that page through handoffs may skip them. Restore a backup, or cancel and create them again.",
        )


def _search(examination: Any) -> Iterator[Finding]:
    """Check that the search index holds every handoff and nothing else."""
    if not {"handoffs", "handoff_search_docsize"} <= examination.tables():
        return
    lost = examination.value(
        "SELECT (SELECT count(*) FROM handoffs WHERE created_event_id NOT IN (SELECT id FROM handoff_search_docsize))"
        " + (SELECT count(*) FROM handoff_search_docsize WHERE id NOT IN (SELECT created_event_id FROM handoffs))"
    )
    if lost:
        yield Finding(
            f"The search of handoffs is out of step with {lost} of them.",
            "Some are not found, or are found no more where they were.",
            examination.repair(REBUILD_SEARCH),
            "the index was made again",
        )


CHECKS = (DoctorCheck("impossible rows", _unborn), DoctorCheck("search of handoffs", _search))
