"""Timeline: who did what when, a lane for each agent."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse

from coordination.models import Agent, Event
from handoffs.spans import Doing, Span
from handoffs.timeline import Course, course
from inbox import monitoring as inbox_monitoring
from nexus.control import timeline as at_work
from nexus.control.timeline import Stretch
from nexus.core.clock import iso, now
from nexus.dashboard.forms import TIMELINES, TimelineFilters
from nexus.dashboard.views import lanes, marks
from nexus.dashboard.views.chosen import WORDS, inspected, titles_of
from nexus.dashboard.views.lanes import Lane, Window
from nexus.web.page import render

LANES = 60  # the most active agents; the page says how many it leaves out
LISTED = 200  # the newest spans in the table
AROUND = 40  # entries after the first of a turn on the page
SHORTEST, LONGEST = timedelta(seconds=10), timedelta(days=92)
LENGTHS = {
    "15m": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "1d": timedelta(days=1),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}


def timeline(request: HttpRequest) -> TemplateResponse:
    """Show the timeline. `?window=` ends now and moves on; `?since=&until=` are fixed; `?workspace= agent=` filter.
    `?span=`, `?step=` or `?sender=&recipient=` choose what is shown in detail. Turns of the pool belong to no
    workspace."""
    filters = TimelineFilters(request.GET)
    moment = now()
    workspace_id = filters.place.workspace_id if filters.place else None
    live, window = _window(filters, moment)
    narrow = lanes.gathered_of(min(Agent.objects.count(), LANES))
    cell = window.length * (2 * narrow / 100)
    found = course(window.since, window.until, cell=cell, parts=lanes.CELLS, workspace_id=workspace_id)
    sends, sends_cut = inbox_monitoring.sends(window.since, window.until, workspace_id=workspace_id)
    if agent_id := filters.text("agent"):
        found, sends = _agent_course(agent_id, found, sends)
    work = at_work.Course([], [])
    if workspace_id is None:
        work = at_work.course(window.since, window.until, cell=cell, agent_id=agent_id)
    oldest = Event.objects.order_by("event_id").values_list("created_at", flat=True).first()
    query = filters.query("span", "step", "sender", "recipient", "sent_since", "sent_until")
    steps = marks.steps(window, workspace_id=workspace_id, agent_id=agent_id)
    picture = _picture(found, work, narrow, sends, steps, window, moment)
    every: list[Span | Stretch] = [*found.spans, *work.stretches]
    rows = sorted(every, key=lambda span: span.start or window.since, reverse=True)[:LISTED]
    titles = titles_of([*rows, *picture.pop("drawn")])
    return render(
        request,
        "dashboard/timeline.html",
        "Timeline",
        **picture,
        filters=filters,
        window=window,
        live=live,
        titles=titles,
        rows=rows,
        unlisted=len(every) - len(rows),
        outlined=found.outline is not None or work.counted,
        sends_cut=sends_cut,
        log_begins=oldest if oldest and oldest > window.since else None,
        unknown_until=window.at(oldest, 0),
        windows=[(name, label, f"?{_query(filters, window=name)}") for name, label in TIMELINES.items()],
        chosen=filters.text("window") if live else None,
        ways=_ways(filters, window, live, moment),
        query=query,
        kept=urlencode(_kept(filters)),
        words=WORDS,
        inspected=inspected(filters, moment),
    )


def _agent_course(
    agent_id: str, found: Course, sends: list[inbox_monitoring.Send]
) -> tuple[Course, list[inbox_monitoring.Send]]:
    """Return an agent's periods, how its handoffs waited (if returned one by one), and the messages it sent and
    received."""
    its = {span.handoff_id for span in found.spans if span.agent_id == agent_id}
    spans = [
        span for span in found.spans if agent_id == span.agent_id or (not span.agent_id and span.handoff_id in its)
    ]
    outline = found.outline
    if outline is not None:
        outline = replace(outline, counted=[each for each in outline.counted if each.agent_id == agent_id], waited=[])
    return Course(spans, outline), [send for send in sends if agent_id in send[:2]]


def _window(filters: TimelineFilters, moment: datetime) -> tuple[bool, Window]:
    """Return whether the window moves on with time, and the window."""
    since, until = filters.moment("since"), filters.moment("until")
    if since and until and since < until:
        length = min(max(until - since, SHORTEST), LONGEST)
        return False, Window(until - length, until)
    return True, Window(moment - LENGTHS[filters.text("window") or "1h"], moment)


def _query(filters: TimelineFilters, **changed: str) -> str:
    """Return the query of another window, with the same filters and the chosen span."""
    beside = {name: filters.text(name) for name in ("span",) if filters.text(name)}
    return urlencode({**_kept(filters), **changed, **beside})


def _kept(filters: TimelineFilters) -> dict[str, str]:
    """Return the filters, which apply to every window."""
    workspace = {"workspace": filters.place.workspace_id} if filters.place else {}
    return {**workspace, "agent": filters.text("agent")} if filters.text("agent") else workspace


def _ways(filters: TimelineFilters, window: Window, live: bool, moment: datetime) -> list[dict[str, str]]:
    """Return where the buttons and keys lead: zoom in and out, earlier and later."""

    def fixed(since: datetime, until: datetime) -> str:
        return f"?{_query(filters, since=iso(since), until=iso(until))}"

    def moved(by: timedelta) -> str:
        until = min(window.until + by, max(moment, window.until))
        return fixed(until - window.length, until)

    names = list(LENGTHS)
    middle, length = window.since + window.length / 2, window.length
    if live:
        index = names.index(filters.text("window") or "1h")
        nearer = f"?{_query(filters, window=names[max(index - 1, 0)])}"
        farther = f"?{_query(filters, window=names[min(index + 1, len(names) - 1)])}"
    else:
        half, twice = max(length / 2, SHORTEST) / 2, min(length * 2, LONGEST) / 2
        nearer, farther = fixed(middle - half, middle + half), fixed(middle - twice, middle + twice)
    return [
        {"key": "earlier", "label": "Earlier", "sign": "←", "href": moved(-length / 2)},
        {"key": "later", "label": "Later", "sign": "→", "href": moved(length / 2)},
        {"key": "nearer", "label": "Zoom in", "sign": "+", "href": nearer},
        {"key": "farther", "label": "Zoom out", "sign": "−", "href": farther},
    ]


def _picture(
    found: Course,
    work: at_work.Course,
    narrow: float,
    sends: list[inbox_monitoring.Send],
    steps: list[Event],
    window: Window,
    moment: datetime,
) -> dict[str, Any]:
    by_lane: dict[str | None, list[lanes.Span]] = defaultdict(list)
    spans: list[Span | at_work.Stretch] = [*found.spans, *work.stretches]
    for span in spans:
        by_lane[span.agent_id].append(span)
    waiting = by_lane.pop(None, [])
    claims = [(each[0], Doing.CLAIMED, each[1], each[2]) for each in found.outline.counted] if found.outline else []
    beginnings: list[tuple[str, str, int, int]] = [*claims, *work.counted]
    did = _did(by_lane, beginnings, sends, steps)
    busiest = sorted(sorted(did, key=lambda name: (-did[name], name))[:LANES])
    among = set(busiest)
    counted: dict[str | None, dict[int, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for agent_id, doing, cell, count in beginnings:
        if agent_id in among:
            counted[agent_id][cell][doing] += count
    of_each: dict[str | None, list[lanes.Span]] = {name: by_lane.get(name, []) for name in busiest}
    draw = partial(lanes.lanes, window=window, narrow=narrow if beginnings else lanes.NARROWEST, counted=counted)
    if found.outline:
        crowd = found.outline.waited
        drawn = draw({None: [], **of_each})
    else:
        drawn = draw({None: waiting, **of_each})
        crowd = lanes.depth(waiting, window) if drawn[0].blocks else []
        if crowd:
            drawn = draw({None: [], **of_each})
    between = [send for send in sends if send[0] in among and send[1] in among and send[0] != send[1]]
    arrows, unsent = lanes.arrows(between, window)
    at = {lane.name: lane for lane in drawn}
    return {
        "lanes": drawn,
        "height": sum(lane.height for lane in drawn),
        "ticks": lanes.ticks(window),
        "ticked": "clock" if window.length <= timedelta(days=2) else "day",
        "now_at": window.at(moment, 100) if window.since < moment <= window.until else None,
        "steps": marks.marks(steps, window, drawn),
        "steps_cut": len(steps) == marks.MOST,
        "crowd": _crowd(crowd, drawn[0]),
        "arrows": [(arrow, at[arrow.sender].middle, at[arrow.recipient].middle) for arrow in arrows],
        "unsent": unsent,
        "left_out": len(did) - len(busiest),
        "drawn": [bar.span for lane in drawn for bar in lane.bars],
        "nothing": not did and not any(crowd) and not waiting,
    }


def _did(
    by_lane: Mapping[str | None, Sequence[lanes.Span]],
    beginnings: Iterable[tuple[str, str, int, int]],
    sends: Iterable[inbox_monitoring.Send],
    steps: Iterable[Event],
) -> Counter[str]:
    """Count what each agent did: the most active get the lanes. Periods count twice."""
    did = Counter({name: 2 * len(spans) for name, spans in by_lane.items() if name})
    did.update(str(step.actor_agent_id) for step in steps)
    for agent_id, _, _, count in beginnings:
        did[agent_id] += 2 * count
    for sender, recipient, _ in sends:
        did[sender] += 1
        did[recipient] += 1
    return did


def _crowd(depth: list[float], lane: Lane) -> list[dict[str, float]]:
    """Return how many waited, as bars that fill the lane of waiting handoffs."""
    top, width = max(depth, default=0), 100 / max(len(depth), 1)
    room = lane.height - lanes.GAP
    return [
        {"x": index * width, "width": width, "y": lane.top + lane.height - 4 - room * many / top, "many": many,
         "height": room * many / top}
        for index, many in enumerate(depth)
        if many
    ]  # fmt: skip


def turn(request: HttpRequest, turn_id: str) -> HttpResponse:
    """Redirect to a turn in its transcript on the agent's page."""
    found = at_work.turn(turn_id)
    if found is None:
        raise Http404
    agent, position = found[0].agent, found[1]
    address = reverse("admin:pool_agent", args=[agent.pk])
    if position is None:
        return redirect(address)
    newest = agent.entries_made - position <= AROUND
    before = "" if newest else f"?before={position + AROUND}"
    return redirect(f"{address}{before}#e-{position}")
