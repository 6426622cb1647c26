"""The pages Limits and Settings."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect

from coordination.forms import (
    LISTS,
    TITLES,
    LimitedForm,
    LimitsFilters,
    RoleLimitsForm,
    SettingsFilters,
    SettingsForm,
    limits_of,
)
from coordination.models import AgentLimits, LimitScope
from coordination.selectors import roles
from coordination.services import agent_limits as stored
from coordination.toolset import COORDINATION, run
from nexus.web.page import form_only, operate, operator, posted, render


def limits(request: HttpRequest) -> HttpResponse:
    """Show every limit, and the form for a role, which `?role=` fills with the stored values; POST stores it."""
    role = LimitsFilters(request.GET).text("role")
    team = roles()
    form = RoleLimitsForm(posted(request), initial={"role": role, **limits_of(LimitScope.ROLE, role)}, known=list(team))
    if form.is_valid():
        done = f"The limits of the role {form.cleaned_data['role']} are saved."
        saved = operate(
            COORDINATION, request, "limits_update", done, form, role=form.cleaned_data["role"], **form.arguments()
        )
        if saved["ok"]:
            return redirect("admin:limits")
    rows = list(AgentLimits.objects.order_by("-scope", "name"))
    limited = {row.name for row in rows if row.scope == LimitScope.ROLE}
    return render(
        request,
        "coordination/limits.html",
        "Limits",
        form=form,
        chosen=role,
        for_all=_cells(stored.for_all),
        rows=[(row, _cells(row.values.get)) for row in rows],
        unlimited=[(name, count) for name, count in team.items() if name not in limited],
    )


def _cells(value: Callable[[str], int | None]) -> list[tuple[str, int | None]]:
    """Return a row's limits, each with its label and its value."""
    return [(TITLES.get(name, name), value(name)) for name in stored.names()]


@form_only(lambda: redirect("admin:limits"))
def remove_limits(request: HttpRequest) -> HttpResponse:
    """Remove what is stored for an agent or a role."""
    form = LimitedForm(request.POST)
    if not form.is_valid():
        return HttpResponseBadRequest("Name a role or an agent whose limits are taken back.")
    name = form.cleaned_data["name"]
    nothing = {"limits": dict.fromkeys(stored.names()), **dict.fromkeys(LISTS)}
    whose = {"agent_id" if form.cleaned_data["scope"] == LimitScope.AGENT else "role": name}
    operate(COORDINATION, request, "limits_update", f"The limits of {name} are taken back.", **whose, **nothing)
    return redirect("admin:limits")


def settings(request: HttpRequest) -> HttpResponse:
    """Show every setting with its source and bounds; POST stores those that were changed."""
    described = run(operator(request), "settings_list", {})["data"]["settings"]
    form = SettingsForm(described, posted(request))
    if "default" in request.POST or form.is_valid():
        values = form.changes()
        if not values:
            messages.info(request, "Nothing was changed.")
            return redirect("admin:settings")
        if operate(
            COORDINATION, request, "settings_update", f"Stored: {', '.join(sorted(values))}.", form, values=values
        )["ok"]:
            return redirect("admin:settings")
    if wrong := next((name for name in form.fields if name in form.errors), None):
        form.fields[wrong].widget.attrs["autofocus"] = True  # the page is long, and begins at its top
    filters = SettingsFilters(request.GET)
    words, changed = filters.text("q").lower().split(), filters.text("changed")
    rows = [
        (setting, form[setting["name"]] if setting["name"] in form.fields else None)
        for setting in described
        if not (changed and setting["source"] == "default")
        and all(word in f"{setting['name']} {setting['group']} {setting['description']}".lower() for word in words)
    ]
    groups = [(name, list(members)) for name, members in groupby(rows, key=lambda row: row[0]["group"])]
    return render(request, "coordination/settings.html", "Settings", groups=groups, filters=filters)
