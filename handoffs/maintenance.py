"""What export and doctor need of handoffs: kinds and checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from handoffs.models import CheckRun, Dependency, Handoff, Remark
from handoffs.selectors import REBUILD_SEARCH
from nexus.core.contributions import DoctorCheck, ExportKind, Finding, rows_in_workspace

KINDS = (
    ExportKind(
        "handoff", Handoff, 80, rows_in_workspace(Handoff), agents=("from_agent_id", "claimed_by", "released_from")
    ),
    ExportKind("handoff_remark", Remark, 81, rows_in_workspace(Remark, "handoff__workspace"), agents=("agent_id",)),
    ExportKind("handoff_check_run", CheckRun, 83, rows_in_workspace(CheckRun, "handoff__workspace")),
    ExportKind("handoff_dependency", Dependency, 82, rows_in_workspace(Dependency, "handoff__workspace")),
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


CHECKS = (DoctorCheck("search of handoffs", _search),)
