"""The board of handoffs, and the page of one handoff with its history."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect

from coordination.forms import WorkspaceFilters
from coordination.log.sentences import lines
from coordination.models import Event
from coordination.provenance import on_behalf_of, provenance_row, sender_in_words
from coordination.toolset import COORDINATION
from handoffs import check_runs, lifecycle, remarks, selectors
from handoffs.attention import possible
from handoffs.models import LIVE, SETTLED, Handoff, HandoffStatus
from handoffs.offers import WAKES
from handoffs.selectors import state_at
from handoffs.timeline import spans_of
from nexus.control.agents.timeline import woken_by
from nexus.core.clock import now
from nexus.core.contributions import Action
from nexus.dashboard.forms import CancelForm
from nexus.dashboard.views.timeline import life
from nexus.web.page import form_only, operate, render

CARDS = 40  # of each column; the list behind it has the rest
COMMON = (HandoffStatus.OPEN, HandoffStatus.CLAIMED)  # shown even if they are empty
HISTORY = 200


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
        "Settled",
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


def handoff(request: HttpRequest, handoff_id: str) -> HttpResponse:
    """Show one handoff: payload, result, history, and an operator's actions."""
    return _handoff(request, handoff_id, CancelForm())


def _handoff(request: HttpRequest, handoff_id: str, form: CancelForm) -> HttpResponse:
    row = get_object_or_404(Handoff.objects.select_related("workspace"), pk=handoff_id)
    moment = now()
    status = state_at(row, moment)
    events = list(Event.objects.filter(handoff_id=handoff_id).order_by("event_id")[:HISTORY])
    endings = Event.objects.filter(handoff_id=handoff_id, type=f"handoff.{row.status.lower()}")
    ended = row.status in SETTLED
    ending = endings.order_by("-event_id").first() if ended else None
    payloads = {event.type: event.payload for event in events}
    again = payloads.get("handoff.reoffered", {}).get("as")
    elsewhere = {"handoff_withdraw", *(["handoff_reoffer"] if again else [])}  # has its own dialog; done already
    return render(
        request,
        "dashboard/handoff.html",
        "Handoff",
        about=row.title,
        handoff=row,
        creator=sender_in_words(provenance_row(row, on_behalf_of([row]))),
        status=status,
        lapsed=row.lease_expires_at is not None and row.lease_expires_at < moment,
        history=lines(events),
        depends_on=[(each, state_at(each, moment)) for each in selectors.dependencies(row)],
        remarks=remarks.of(row),
        **check_runs.summaries(selectors.check_runs_of(row)),
        actions=[action for action in possible(status) if action.operation not in elsewhere],
        verifier=lifecycle.describe_verifier(row.verifier) if row.verifier else "",
        again=again,
        first=payloads.get("handoff.created", {}).get("of"),
        form=form,
        ending=ending,
        ended=ended,
        reason=row.rejected_reason or (ending.payload.get("reason") if ending else None),
        life=life(spans_of(handoff_id), woken_by(WAKES.name, handoff_id), moment),
    )


@form_only(partial(redirect, "admin:handoff"))
def cancel(request: HttpRequest, handoff_id: str) -> HttpResponse:
    """Cancel an open handoff."""
    form = CancelForm(request.POST)
    if form.is_valid():
        reason = form.cleaned_data["reason"] or None
        operate(
            COORDINATION,
            request,
            "handoff_withdraw",
            "The handoff is cancelled.",
            form,
            handoff_id=handoff_id,
            reason=reason,
        )
    return _handoff(request, handoff_id, form) if form.errors else redirect("admin:handoff", handoff_id)
