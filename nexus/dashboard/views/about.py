"""The help page, and the page about this hub."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from django.http import HttpRequest
from django.template.response import TemplateResponse

from coordination.toolset import COORDINATION, run
from nexus.core.config import CoreSettings
from nexus.web.page import operator, render
from nexus.web.theme import listed_pages


def help(request: HttpRequest) -> TemplateResponse:
    """Show how to connect an agent, and what the pages and their terms mean."""
    pages = [page for page in listed_pages() if page.name != "help"]
    mcp, root = request.build_absolute_uri("/mcp"), request.build_absolute_uri("/")
    return render(request, "dashboard/help.html", "Help", mcp=mcp, root=root, pages=pages)


def about(request: HttpRequest) -> TemplateResponse:
    """Show the version, the toolsets, and the licence."""
    info = run(operator(request), "nexus_info", {})["data"]
    tools = len(COORDINATION.tools)
    return render(
        request,
        "dashboard/about.html",
        "About",
        info=info,
        tools=tools,
        home=str(CoreSettings.current().home),
        licence=_licence(),
    )


def _licence() -> str:
    """Return the licence's text: from the checkout, or from the metadata of the installed package."""
    beside = Path(__file__).resolve().parents[3] / "LICENSE"
    if beside.is_file():
        return beside.read_text(encoding="utf-8")
    try:
        return distribution("nexus-hub").read_text("licenses/LICENSE") or "Apache License 2.0"
    except PackageNotFoundError:
        return "Apache License 2.0"
