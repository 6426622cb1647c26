"""The hub itself: settings, retention, reset, help and about."""

from __future__ import annotations

from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse

from coordination.toolset import COORDINATION, run
from nexus.core.apps import nexus_apps
from nexus.core.config import CoreSettings
from nexus.dashboard.forms.hub import ResetForm, RetentionForm, SettingsForm
from nexus.dashboard.page import form_only, operate, operator, posted, render

BATCHES = 4  # of 500 rows per lane and step: a step is short, and the page shows how far it is


def settings(request: HttpRequest) -> HttpResponse:
    """Every setting with its source and bounds; POST stores those that were changed."""
    listed = run(operator(request), "settings_list", {})["data"]["settings"]
    form = SettingsForm(listed, posted(request))
    if "default" in request.POST or form.is_valid():
        values = form.changes()
        if not values:
            messages.info(request, "Nothing was changed.")
            return redirect("admin:settings")
        if operate(request, "settings_update", f"Stored: {', '.join(sorted(values))}.", form, values=values)["ok"]:
            return redirect("admin:settings")
    rows = [(setting, form[setting["name"]] if setting["name"] in form.fields else None) for setting in listed]
    return render(request, "settings", "Settings", rows=rows)


def retention(request: HttpRequest) -> HttpResponse:
    """Retention: a dry run counts, a run deletes a step at a time and shows how far it is."""
    form = RetentionForm(posted(request))
    return _retention(request, **(_pruned(request, form.cleaned_data) if form.is_valid() else {}))


def _retention(request: HttpRequest, reset: ResetForm | None = None, **context: Any) -> TemplateResponse:
    listed = run(operator(request), "settings_list", {})["data"]["settings"]
    windows = [setting for setting in listed if setting["name"].startswith("retention_")]
    return render(
        request, "retention", "Retention and reset", windows=windows, reset_form=reset or ResetForm(), **context
    )


def _pruned(request: HttpRequest, step: dict[str, Any]) -> dict[str, Any]:
    """What a dry run found, or how far a run is after this step.

    Nothing is kept of a run between its steps: what is left is counted anew by each, whatever became of the one before.
    """
    dry, deleted = step["what"] == "dry", step["deleted"] or 0
    envelope = operate(request, "retention_prune", "", **({"dry_run": True} if dry else {"max_batches": BATCHES}))
    if not envelope["ok"]:
        return {} if dry else {"stopped": True, "deleted": deleted}
    data = envelope["data"]
    found, gone = (sum(lane[what] for lane in data["lanes"].values()) for what in ("found", "deleted"))
    return {
        "dry": dry,
        "lanes": [(name.replace("_", " "), lane) for name, lane in data["lanes"].items()],
        "deleted": deleted + gone,
        "left": found - gone,
        "running": data["more"] and not dry,
    }


@form_only(partial(redirect, "admin:retention"))
def reset(request: HttpRequest) -> HttpResponse:
    """Empty the database; the operation checks the typed confirmation again."""
    form = ResetForm(request.POST)
    if form.is_valid():
        envelope = operate(request, "database_reset", "The database is empty.", form, **form.cleaned_data)
        if problem := envelope.get("data", {}).get("vacuum", {}).get("problem"):
            messages.warning(request, f"The file was not shrunk. {problem}")
    return _retention(request, reset=form) if form.errors else redirect("admin:retention")


def help(request: HttpRequest) -> TemplateResponse:
    """How to connect an agent, and what the pages and their words mean."""
    pages = [page for app in nexus_apps() for page in app.pages() if page.title and page.name != "help"]
    mcp, root = request.build_absolute_uri("/mcp"), request.build_absolute_uri("/")
    return render(request, "help", "Help", mcp=mcp, root=root, pages=pages)


def about(request: HttpRequest) -> TemplateResponse:
    """Version, what is offered, and the licence."""
    info = run(operator(request), "nexus_info", {})["data"]
    tools = len(COORDINATION.tools)
    return render(
        request, "about", "About", info=info, tools=tools, home=str(CoreSettings.current().home), licence=_licence()
    )


def _licence() -> str:
    """The licence's text: beside the code in a checkout, in the package's metadata once installed."""
    beside = Path(__file__).resolve().parents[3] / "LICENSE"
    if beside.is_file():
        return beside.read_text(encoding="utf-8")
    try:
        return distribution("nexus-hub").read_text("licenses/LICENSE") or "Apache License 2.0"
    except PackageNotFoundError:
        return "Apache License 2.0"
