"""The hub itself: settings, retention, reset, help and about."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.views.decorators.http import require_POST

from coordination.toolset import COORDINATION, run
from core.config import CoreSettings
from core.operations.parameters import whole_number
from dashboard.page import operate, operator, render

BATCHES = 4  # of 500 rows per lane and step: a step is short, and the page shows how far it is


def settings(request: HttpRequest) -> HttpResponse:
    """Every setting with its source and bounds; POST stores those that were changed."""
    listed = run(operator(request), "settings_list", {})["data"]["settings"]
    if request.method != "POST":
        return render(request, "settings", "Settings", settings=listed)
    values = {}
    for setting in listed:
        text = request.POST.get(setting["name"])
        if text is not None and text != _spelled(setting["value"]):
            values[setting["name"]] = _typed(setting, text)
    if "default" in request.POST:
        values = {request.POST["default"]: None}
    if not values:
        messages.info(request, "Nothing was changed.")
        return redirect("admin:settings")
    envelope = operate(request, "settings_update", f"Stored: {', '.join(sorted(values))}.", values=values)
    if envelope["ok"]:
        return redirect("admin:settings")
    wrong = envelope["error"].get("details", {}).get("field")
    for setting in listed:
        setting["value"] = request.POST.get(setting["name"], setting["value"])
        setting["wrong"] = setting["name"] == wrong
    return render(request, "settings", "Settings", settings=listed)


def _spelled(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str("" if value is None else value)


def _typed(setting: dict[str, Any], text: str) -> Any:
    """The text in the setting's own type; what does not fit stays a text, and the operation says why it is wrong."""
    if isinstance(setting["default"], bool):
        return text == "true"
    size = whole_number(text.removeprefix("-"), 10**30) if isinstance(setting["default"], int) else None
    if size is None:
        return text
    return -size if text.startswith("-") else size


def retention(request: HttpRequest) -> HttpResponse:
    """Retention: a dry run counts, a run deletes a step at a time and shows how far it is."""
    context: dict[str, Any] = {"windows": _windows(request)}
    if request.method == "POST":
        dry = request.POST.get("what") == "dry"
        arguments: dict[str, Any] = {} if dry else {"max_batches": BATCHES}
        envelope = run(operator(request), "retention_prune", {"dry_run": dry, **arguments})
        if envelope["ok"]:
            data = envelope["data"]
            found = sum(lane["found"] for lane in data["lanes"].values())
            deleted = sum(lane["deleted"] for lane in data["lanes"].values())
            before = whole_number(request.POST.get("deleted")) or 0
            context |= {
                "outcome": data,
                "found": found,
                "deleted": before + deleted,
                "total": max(whole_number(request.POST.get("total")) or 0, before + found),
                "running": data["more"] and not dry,
            }
        else:
            messages.error(request, envelope["error"]["message"])
    return render(request, "retention", "Retention and reset", **context)


def _windows(request: HttpRequest) -> list[dict[str, Any]]:
    listed = run(operator(request), "settings_list", {})["data"]["settings"]
    return [setting for setting in listed if setting["name"].startswith("retention_")]


@require_POST
def reset(request: HttpRequest) -> HttpResponse:
    """Empty the database; the operation checks the typed confirmation again."""
    envelope = operate(
        request,
        "database_reset",
        "The database is empty.",
        confirm=request.POST.get("confirm", ""),
        keep_agents=request.POST.get("keep_agents") == "on",
    )
    if problem := envelope.get("data", {}).get("vacuum", {}).get("problem"):
        messages.warning(request, f"The file was not shrunk. {problem}")
    return redirect("admin:retention")


def help(request: HttpRequest) -> TemplateResponse:
    """How to connect an agent, and what the pages and their words mean."""
    return render(request, "help", "Help", mcp=request.build_absolute_uri("/mcp"), root=request.build_absolute_uri("/"))


def about(request: HttpRequest) -> TemplateResponse:
    """Version, what is offered, and the licence."""
    info = run(operator(request), "nexus_info", {})["data"]
    tools = sum(operation.tool for operation in COORDINATION.operations.values())
    return render(
        request, "about", "About", info=info, tools=tools, home=str(CoreSettings.current().home), licence=_licence()
    )


def _licence() -> str:
    """The licence's text: beside the code in a checkout, in the package's metadata once installed."""
    beside = Path(__file__).resolve().parents[2] / "LICENSE"
    if beside.is_file():
        return beside.read_text(encoding="utf-8")
    try:
        return distribution("nexus-hub").read_text("licenses/LICENSE") or "Apache License 2.0"
    except PackageNotFoundError:
        return "Apache License 2.0"
