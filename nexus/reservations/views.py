"""The pages of reservations: who holds which files, why and until when; and ending a reservation that was left
behind."""

from __future__ import annotations

from collections.abc import Sequence

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse

from coordination.forms import WorkspaceFilters
from handoffs.models import Handoff
from nexus.core.clock import now
from nexus.reservations import selectors
from nexus.reservations.models import Reservation
from nexus.reservations.toolset import FILES
from nexus.web.forms import OperationForm, choice_field, number_field, words_field
from nexus.web.page import operate, posted, render

PAGE = 50


class EndForm(OperationForm):
    reason = forms.CharField(required=False, label="Reason (optional), sent to its holder")


class FilesFilters(WorkspaceFilters):
    state = choice_field(label="State", choices=[("held", "Held"), ("ended", "Ended")])
    q = words_field("Part of a path, a reason or an agent")
    page = number_field()
    preset = {"state": "held"}


def files(request: HttpRequest) -> TemplateResponse:
    """List what is held, oldest first; `?state=ended`: what was held, latest first. `?workspace=`, `?q=` in patterns,
    reasons and names, `?page=`."""
    filters = FilesFilters(request.GET)
    words, page = filters.text("q"), max(filters.number("page") or 1, 1)
    ended = filters.text("state") == "ended"
    rows = selectors.list_reservations(
        workspace_id=filters.chosen_workspace.workspace_id if filters.chosen_workspace else None,
        ended=ended,
        search=words,
        offset=(page - 1) * PAGE,
        limit=PAGE + 1,
    )
    return render(
        request,
        "reservations/files.html",
        "Reservations",
        filters=filters,
        rows=list(zip(rows, _titles(rows), strict=True))[:PAGE],
        ended=ended,
        page=page,
        more=len(rows) > PAGE,
        query=filters.query("page"),
        narrowed=bool(words or filters.chosen_workspace),
    )


def reservation(request: HttpRequest, reservation_id: str) -> HttpResponse:
    """Show one reservation; POST ends it, whoever holds it."""
    row = get_object_or_404(Reservation.objects.select_related("workspace"), pk=reservation_id)
    form = EndForm(posted(request))
    if form.is_valid():
        reason = form.cleaned_data["reason"] or None
        done = "The reservation is ended."
        if operate(FILES, request, "files_end", done, form, reservation_id=reservation_id, reason=reason)["ok"]:
            return redirect("admin:files")
    held = selectors.held(now()).filter(pk=reservation_id).exists()
    [title] = _titles([row])
    context = {"reservation": row, "title_of": title, "held": held, "form": form}
    return render(request, "reservations/reservation.html", "Reservation", about=row.pattern, **context)


def _titles(rows: Sequence[Reservation]) -> list[str]:
    """Return the titles of the reservations' handoffs; empty where there is none."""
    known = dict(Handoff.objects.filter(pk__in={row.handoff_id for row in rows}).values_list("pk", "title"))
    return [known.get(row.handoff_id or "", "") for row in rows]
