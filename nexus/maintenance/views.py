"""The Retention page: delete what is past its window, or empty the database."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse

from coordination.toolset import COORDINATION, run
from nexus.maintenance.forms import ResetForm, RetentionForm
from nexus.web.page import form_only, operate, operator, posted, render

BATCHES = 4  # of 500 rows per rule and step: short steps, so that the page shows progress


def retention(request: HttpRequest) -> HttpResponse:
    """Show the Retention page: a dry run counts; a run deletes step by step and shows its progress."""
    form = RetentionForm(posted(request))
    return _retention(request, **(_pruned(request, form.cleaned_data) if form.is_valid() else {}))


def _retention(request: HttpRequest, reset: ResetForm | None = None, **context: Any) -> TemplateResponse:
    rows = run(operator(request), "settings_list", {})["data"]["settings"]
    windows = [setting for setting in rows if setting["name"].startswith("retention_")]
    return render(
        request,
        "maintenance/retention.html",
        "Retention and reset",
        windows=windows,
        reset_form=reset or ResetForm(),
        **context,
    )


def _pruned(request: HttpRequest, step: dict[str, Any]) -> dict[str, Any]:
    """Return what a dry run found, or the progress of a run after this step.

    No state is kept between steps: each counts the rest anew, whatever became of the step before.
    """
    dry, deleted = step["what"] == "dry", step["deleted"] or 0
    envelope = operate(
        COORDINATION, request, "retention_prune", "", **({"dry_run": True} if dry else {"max_batches": BATCHES})
    )
    if not envelope["ok"]:
        return {} if dry else {"stopped": True, "deleted": deleted}
    data = envelope["data"]
    found, gone = (sum(rule[what] for rule in data["lanes"].values()) for what in ("found", "deleted"))
    return {
        "dry": dry,
        "rules": [(name.replace("_", " "), rule) for name, rule in data["lanes"].items()],
        "deleted": deleted + gone,
        "left": found - gone,
        "running": data["more"] and not dry,
    }


@form_only(partial(redirect, "admin:retention"))
def reset(request: HttpRequest) -> HttpResponse:
    """Empty the database; the operation checks the typed confirmation again."""
    form = ResetForm(request.POST)
    if form.is_valid():
        envelope = operate(COORDINATION, request, "database_reset", "The database is empty.", form, **form.cleaned_data)
        if problem := envelope.get("data", {}).get("vacuum", {}).get("problem"):
            messages.warning(request, f"The file was not shrunk. {problem}")
    return _retention(request, reset=form) if form.errors else redirect("admin:retention")
