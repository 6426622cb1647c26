"""The board of handoffs."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse

from coordination.forms import WorkspaceFilters
from handoffs import selectors
from handoffs.attention import possible
from handoffs.models import LIVE, SETTLED, Handoff, HandoffStatus
from nexus.core.clock import now
from nexus.core.contributions import Action
from nexus.web.page import render

CARDS = 40  # of each column; the list behind it has the rest
COMMON = (HandoffStatus.OPEN, HandoffStatus.CLAIMED)  # shown even if they are empty


@dataclass(frozen=True)
class Column:
    """The handoffs in a state, or in the settled states, and the actions on them."""

    name: str
    title: str
    tone: str
    count: int
    cards: list[Handoff]
    actions: list[Action]
    others: str  # the query of the list that has all of them


def board(request: HttpRequest) -> HttpResponse:
    """Show a column for each state in use, and for the common ones; `?workspace=` filters."""
    filters = WorkspaceFilters(request.GET)
    workspace_id = filters.chosen_workspace.workspace_id if filters.chosen_workspace else None
    counts = selectors.counts(workspace_id=workspace_id)
    shown = [status for status in LIVE if counts[status] or status in COMMON]
    columns = [
        Column(
            status,
            status.label,
            status,
            counts[status],
            selectors.column([status], CARDS, workspace_id=workspace_id),
            possible(status),
            f"status__exact={status}",
        )
        for status in shown
    ]
    settled = Column(
        "settled",
        "Finished",
        "good",
        sum(counts[status] for status in SETTLED),
        selectors.column(SETTLED, CARDS, workspace_id=workspace_id),
        possible(HandoffStatus.CANCELLED),
        f"status__in={','.join(SETTLED)}",
    )
    columns.append(settled)
    return render(
        request, "dashboard/board.html", "Handoffs", columns=columns, shown=CARDS, filters=filters, moment=now()
    )
