"""Small timelines on other pages: the history of a handoff, and an agent's last day."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from handoffs.spans import Doing, Span
from handoffs.timeline import spans_with
from nexus.control import timeline as at_work
from nexus.control.timeline import At, Stretch
from nexus.dashboard.views import lanes
from nexus.dashboard.views.chosen import WORDS, titles_of
from nexus.dashboard.views.lanes import Window

LINE = 14  # px: the height of a line of a handoff's own timeline


def life(spans: list[Span], turns: list[Stretch], moment: datetime) -> dict[str, Any] | None:
    """Return the timeline of one handoff: its spans on one line, the turns that it woke on another, each with its
    length."""
    lines: list[Sequence[Span | Stretch]] = [line for line in (spans, turns) if line]
    every = [part for line in lines for part in line]
    starts = [part.start for part in every if part.start]
    if not starts:
        return None
    ends = [part.end or moment for part in every]
    window = Window(min(starts), max([*ends, min(starts) + timedelta(milliseconds=1)]))
    return {
        "window": window,
        "height": len(lines) * LINE,
        "lines": [
            [_part(part, window, moment, 1 + number * LINE) for part in line] for number, line in enumerate(lines)
        ],
    }


def _part(span: Span | Stretch, window: Window, moment: datetime, y: int) -> dict[str, Any]:
    return {
        "span": span,
        "word": WORDS[span.doing],
        "x": window.at(span.start, 0),
        "width": window.at(span.end, 100) - window.at(span.start, 0),
        "y": y,
        "lasted": (span.end or moment) - span.start if span.start else None,
        "page": reverse("admin:pool_turn", args=[span.key]) if isinstance(span, Stretch) else "",
    }


def day_of(agent_id: str, moment: datetime) -> dict[str, Any]:
    """Return an agent's last day, as its lane."""
    window = Window(moment - timedelta(days=1), moment)
    cell = window.length * (2 * lanes.NARROWEST / 100)
    work = at_work.course(window.since, moment, cell=cell, agent_id=agent_id)
    own: list[Span | Stretch] = [*spans_with(agent_id, window.since), *work.stretches]
    counted: dict[int, Counter[str]] = defaultdict(Counter)
    for each in work.counted:
        counted[each.cell][each.doing] += each.many
    drawn = lanes.lanes({agent_id: own}, window, marks=200, counted={agent_id: counted})
    spent: Counter[Doing | At] = Counter()
    for span in own:
        started, ended = max(span.start or window.since, window.since), min(span.end or moment, moment)
        spent[span.doing] += int((ended - started).total_seconds())
    return {
        "window": window,
        "kept": urlencode({"agent": agent_id}),
        "lanes": drawn,
        "height": drawn[0].height,
        "ticks": lanes.ticks(window),
        "ticked": "clock",
        "titles": titles_of([bar.span for bar in drawn[0].bars]),
        "spent": [((doing, WORDS[doing]), timedelta(seconds=seconds)) for doing, seconds in spent.items()],
        "words": WORDS,
    }
