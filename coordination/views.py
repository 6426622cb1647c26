"""The page Settings."""

from __future__ import annotations

from itertools import groupby

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from coordination.forms import SettingsFilters, SettingsForm
from coordination.toolset import COORDINATION, run
from nexus.web.page import operate, operator, posted, render


def settings(request: HttpRequest) -> HttpResponse:
    """Show the settings of `?group=`, or those that `?q=` and `?changed=` find; POST stores those that were changed."""
    described = run(operator(request), "settings_list", {})["data"]["settings"]
    form = SettingsForm(described, posted(request))
    if "default" in request.POST or form.is_valid():
        values = form.changes()
        if not values:
            messages.info(request, "Nothing was changed.")
            return redirect(request.get_full_path())
        if operate(
            COORDINATION, request, "settings_update", f"Stored: {', '.join(sorted(values))}.", form, values=values
        )["ok"]:
            return redirect(request.get_full_path())
    if wrong := next((name for name in form.fields if name in form.errors), None):
        form.fields[wrong].widget.attrs["autofocus"] = True
    filters = SettingsFilters(request.GET)
    words, changed = filters.text("q").lower().split(), filters.text("changed")
    known = {setting["name"]: setting["group"] for setting in described}
    sections = list(dict.fromkeys(known.values()))
    chosen = known[wrong] if wrong else filters.text("group")
    section = "" if words or changed else chosen if chosen in sections else sections[0]
    rows = [
        (setting, form[setting["name"]] if setting["name"] in form.fields else None)
        for setting in described
        if section in ("", setting["group"])
        and not (changed and setting["source"] == "default")
        and all(word in f"{setting['name']} {setting['group']} {setting['description']}".lower() for word in words)
    ]
    groups = [(name, list(members)) for name, members in groupby(rows, key=lambda row: row[0]["group"])]
    return render(
        request,
        "coordination/settings.html",
        "Settings",
        groups=groups,
        filters=filters,
        sections=sections,
        section=section,
    )
