"""Template filters for data of the bus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from html import escape
from typing import Any

from django import template
from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString

from coordination import switcher
from coordination.models import Workspace
from coordination.routing import describe
from nexus.web.forms import OFFERED
from nexus.web.templatetags.nexus import name

register = template.Library()


@register.filter
def target(value: Any) -> str:
    """Return a target in words."""
    return describe(value)


@register.inclusion_tag("coordination/switcher.html")
def workspace_switcher(request: HttpRequest) -> dict[str, Any]:
    """Return the menu in the header that chooses a workspace: for this page if it can follow, otherwise for Home."""
    return {
        "chosen": switcher.chosen(request),
        "workspaces": Workspace.objects.order_by("-last_seen_at")[:OFFERED],
        "page": request.path if switcher.follows(request) else reverse("admin:index"),
    }


# the same agents are in every figure, and to build a link takes longer than the rest of the row
@lru_cache(maxsize=1024)
def _agent(agent_id: str) -> str:
    return f'<a href="{escape(reverse("admin:agent", args=[agent_id]))}">{name(agent_id)}</a>'


@register.simple_tag
def figure_rows(rows: Sequence[Mapping[str, Any]], by: str = "") -> SafeString:
    """Return a row for each group of a figure: by `agent`, with links, or for `all`, set apart."""
    return SafeString("".join(_row(row, by) for row in rows))


def _row(row: Mapping[str, Any], by: str) -> str:
    called = _agent(row["name"]) if by == "agent" else escape(row["name"])
    cells = "".join(f"<td>{escape(value)}</td>" for value in row["values"])
    strong = ' class="nx-strong"' if by == "all" else ""
    return f"<tr{strong}><td>{called}</td><td>{row['count']}</td>{cells}</tr>"
