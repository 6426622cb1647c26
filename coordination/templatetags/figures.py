"""The rows of the figures: in Python, because a template takes several times as long for hundreds of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from html import escape
from typing import Any

from django import template
from django.urls import reverse
from django.utils.safestring import SafeString

from nexus.web.templatetags.nexus import name

register = template.Library()


@lru_cache(maxsize=1024)  # the same agents are in every figure, and an address takes longer than all the row
def _agent(agent_id: str) -> str:
    return f'<a href="{escape(reverse("admin:agent", args=[agent_id]))}">{name(agent_id)}</a>'


@register.simple_tag
def figure_rows(rows: Sequence[Mapping[str, Any]], by: str = "") -> SafeString:
    """A row for each of those that a figure is summed up by: `agent`s, which are links, or `all`, which stands out."""
    return SafeString("".join(_row(row, by) for row in rows))


def _row(row: Mapping[str, Any], by: str) -> str:
    called = _agent(row["name"]) if by == "agent" else escape(row["name"])
    cells = "".join(f"<td>{escape(value)}</td>" for value in row["values"])
    strong = ' class="nx-strong"' if by == "all" else ""
    return f"<tr{strong}><td>{called}</td><td>{row['count']}</td>{cells}</tr>"
