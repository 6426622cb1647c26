"""Figures: how well it goes, in numbers and as a picture of how they are spread."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.http import HttpRequest
from django.template.response import TemplateResponse

from nexus.dashboard.forms.filters import FigureFilters
from nexus.dashboard.page import operate, render
from nexus.dashboard.templatetags.nexus import duration, grouped

ROWS = 50  # agents of a figure, those with most samples; the page says how many it leaves out
COLUMNS = ("median", "p90", "p99", "max")


def figures(request: HttpRequest) -> TemplateResponse:
    """`?hours=` is the window, `?agent=` narrows it to one."""
    filters = FigureFilters(request.GET)
    hours, agent_id = int(filters.text("hours") or "24"), filters.text("agent").strip()
    given = {"agent_id": agent_id} if agent_id else {}
    answer = operate(request, "figures", "", window_seconds=hours * 3600, **given)
    found = answer["data"]["figures"] if answer["ok"] else []
    cards = [_card(figure) for figure in found]
    return render(request, "figures", "Figures", filters=filters, cards=cards, columns=COLUMNS, shown=ROWS)


def _card(figure: Mapping[str, Any]) -> dict[str, Any]:
    unit = figure["unit"]
    agents = list(figure["by_agent"].items())
    every = [("all", figure["all"])] if figure["all"] else []
    return {
        "figure": figure,
        "rows": [_row(name, summary, unit) for name, summary in every],
        "kinds": [_row(name.replace("_", " "), summary, unit) for name, summary in figure["by_kind"].items()],
        "agents": [_row(name, summary, unit) for name, summary in agents[:ROWS]],
        "unlisted": len(agents[ROWS:]),
        "bars": _bars(figure["buckets"], unit),
    }


def _row(name: str, summary: Mapping[str, float], unit: str) -> dict[str, Any]:
    return {
        "name": name,
        "count": summary["count"],
        "values": [_told(summary[column], unit) for column in COLUMNS],
    }


def _told(value: float, unit: str) -> str:
    if unit == "seconds":
        return duration(timedelta(seconds=value))
    return grouped(round(value)) if value >= 1000 else f"{value:g}"


def _bars(buckets: list[Mapping[str, Any]], unit: str) -> list[dict[str, Any]]:
    """The spread as bars, each with the most that it holds; places across are in percent."""
    top, width = max((bucket["count"] for bucket in buckets), default=0) or 1, 100 / len(buckets)
    bars = []
    for place, bucket in enumerate(buckets):
        bound, height = bucket["at_most"], 100 * bucket["count"] / top
        label = "more" if bound is None else f"{bound:g} s" if bound < 1 and unit == "seconds" else _told(bound, unit)
        bars.append({"x": place * width + width / 20, "width": width * 0.9, "y": 100 - height, "height": height,
                     "label": label, "count": bucket["count"]})  # fmt: skip
    return bars
