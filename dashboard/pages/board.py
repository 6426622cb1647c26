"""Handoffs as a board, and one handoff with its history."""

from __future__ import annotations

from functools import partial

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from coordination.models import Event
from core.clock import now
from dashboard.forms.filters import PlaceFilters
from dashboard.forms.handoffs import CancelForm
from dashboard.page import form_only, operate, render
from dashboard.pages import timeline
from handoffs import monitoring
from handoffs.models import SETTLED, Handoff, HandoffStatus
from handoffs.timeline import spans_of

CARDS = 40  # of each state; the list behind the column has the rest
HISTORY = 200


def board(request: HttpRequest) -> HttpResponse:
    """A column for each state; `?workspace=` narrows them."""
    filters = PlaceFilters(request.GET)
    workspace_id = filters.place.workspace_id if filters.place else None
    counts = monitoring.counts(workspace_id=workspace_id)
    columns = [
        {
            "status": status,
            "label": HandoffStatus(status).label,
            "count": counts[status],
            "cards": monitoring.column(status, CARDS, workspace_id=workspace_id),
        }
        for status in HandoffStatus.values
    ]
    return render(request, "board", "Handoffs", columns=columns, shown=CARDS, filters=filters)


def handoff(request: HttpRequest, handoff_id: str) -> HttpResponse:
    """One handoff: payload, result, history, and what an operator may do with it."""
    return _handoff(request, handoff_id, CancelForm())


def _handoff(request: HttpRequest, handoff_id: str, form: CancelForm) -> HttpResponse:
    row = Handoff.objects.select_related("workspace").filter(pk=handoff_id).first()
    if row is None:
        raise Http404
    history = list(Event.objects.filter(handoff_id=handoff_id).order_by("event_id")[:HISTORY])
    endings = Event.objects.filter(handoff_id=handoff_id, type=f"handoff.{row.status.lower()}")
    ending = endings.order_by("-event_id").first() if row.status in SETTLED else None
    ended = row.status in SETTLED
    return render(
        request, "handoff", "Handoff", handoff=row, history=history, form=form, ending=ending, ended=ended,
        reason=row.rejected_reason or (ending.payload.get("reason") if ending else None),
        life=timeline.life(spans_of(handoff_id), now()),
    )  # fmt: skip


@form_only(partial(redirect, "admin:handoff"))
def cancel(request: HttpRequest, handoff_id: str) -> HttpResponse:
    """Retract an open handoff."""
    form = CancelForm(request.POST)
    if form.is_valid():
        reason = form.cleaned_data["reason"] or None
        operate(request, "handoff_withdraw", "The handoff is cancelled.", form, handoff_id=handoff_id, reason=reason)
    return _handoff(request, handoff_id, form) if form.errors else redirect("admin:handoff", handoff_id)
