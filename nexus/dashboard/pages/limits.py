"""Limits: what holds for all, for roles and for agents; those of a role are set here, those of an agent on its page."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect

from coordination.models import AgentLimits, LimitScope
from coordination.selectors import roles
from coordination.services import limits as stored
from nexus.dashboard.forms.agents import LISTS, TITLES, LimitedForm, RoleLimitsForm, limits_of
from nexus.dashboard.forms.filters import LimitsFilters
from nexus.dashboard.page import form_only, operate, posted, render


def limits(request: HttpRequest) -> HttpResponse:
    """Every limit there is, and the form for a role, which `?role=` fills with what is stored; POST stores it."""
    role = LimitsFilters(request.GET).text("role")
    team = roles()
    form = RoleLimitsForm(posted(request), initial={"role": role, **limits_of(LimitScope.ROLE, role)}, known=list(team))
    if form.is_valid():
        done = f"The limits of the role {form.cleaned_data['role']} are saved."
        saved = operate(request, "limits_update", done, form, role=form.cleaned_data["role"], **form.given())
        if saved["ok"]:
            return redirect("admin:limits")
    rows = list(AgentLimits.objects.order_by("-scope", "name"))
    limited = {row.name for row in rows if row.scope == LimitScope.ROLE}
    return render(
        request,
        "limits",
        "Limits",
        form=form,
        chosen=role,
        for_all=_cells(stored.for_all),
        rows=[(row, _cells(row.values.get)) for row in rows],
        unlimited=[(name, count) for name, count in team.items() if name not in limited],
    )


def _cells(value: Callable[[str], int | None]) -> list[tuple[str, int | None]]:
    """A row's limits: what each is called, and how much it is."""
    return [(TITLES.get(name, name), value(name)) for name in stored.names()]


@form_only(lambda: redirect("admin:limits"))
def take_back(request: HttpRequest) -> HttpResponse:
    """Forget what is stored for an agent or a role."""
    form = LimitedForm(request.POST)
    if not form.is_valid():
        return HttpResponseBadRequest("Name a role or an agent whose limits are taken back.")
    name = form.cleaned_data["name"]
    nothing = {"limits": dict.fromkeys(stored.names()), **dict.fromkeys(LISTS)}
    whose = {"agent_id" if form.cleaned_data["scope"] == LimitScope.AGENT else "role": name}
    operate(request, "limits_update", f"The limits of {name} are taken back.", **whose, **nothing)
    return redirect("admin:limits")
