"""Timeline: who did what when, a lane for each agent."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse

from control import timeline as at_work
from control.models import Question
from control.timeline import At, Stretch
from coordination.models import Agent, Event
from core.clock import iso, now
from dashboard.forms.filters import TIMELINES, TimelineFilters
from dashboard.page import render
from dashboard.pages import lanes, marks
from dashboard.pages.lanes import Lane, Window
from dashboard.sentences import lines
from handoffs.models import Handoff
from handoffs.spans import Doing, Span
from handoffs.timeline import Course, course, spans_of, spans_with
from inbox import monitoring as inbox_monitoring

LANES = 60  # agents, those that did most; the page says how many it leaves out
LISTED = 200  # spans in the table, the newest
AROUND = 40  # entries behind the first of a turn that its page shows
SHOWN_SENDS = 20
LINE = 14  # px: the height of a line of a handoff's own timeline
SHORTEST, LONGEST = timedelta(seconds=10), timedelta(days=92)
LENGTHS = {
    "15m": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "1d": timedelta(days=1),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
WORDS = {
    Doing.WAITING: "waits",
    Doing.CLAIMED: "claimed",
    Doing.WORKING: "in progress",
    Doing.BLOCKED: "blocked",
    Doing.CHECKING: "waits for a check",
    At.TURN: "a turn",
    At.FAILED: "a turn that failed",
    At.INTERRUPTED: "a turn that was interrupted",
    At.ASKING: "waits for a person",
}
ENDS = {
    "handoff.claimed": "when it was claimed",
    "handoff.started": "when work began",
    "handoff.blocked": "when it was blocked",
    "handoff.submitted": "when it was submitted",
    "handoff.returned": "when it was returned",
    "handoff.expired": "when its lease ran out",
    "handoff.released": "when an operator released it",
    "handoff.reassigned": "when an operator gave it to another",
    "handoff.restored": "when its release was taken back",
    "handoff.timed_out": "when its deadline passed",
    "handoff.accepted": "when it was accepted",
    "handoff.completed": "when it was completed",
    "handoff.rejected": "when it was rejected",
    "handoff.cancelled": "when it was cancelled",
}


def timeline(request: HttpRequest) -> TemplateResponse:
    """`?window=` ends now and moves on; `?since=&until=` stay; `?workspace= agent=` narrow it. `?span=`, `?step=` or
    `?sender=&recipient=` is what is shown beside. Turns of the pool are of no workspace."""
    filters = TimelineFilters(request.GET)
    moment = now()
    workspace_id = filters.place.workspace_id if filters.place else None
    live, window = _window(filters, moment)
    narrow = lanes.gathered_of(min(Agent.objects.count(), LANES))
    cell = window.length * (2 * narrow / 100)
    found = course(window.since, window.until, cell=cell, parts=lanes.CELLS, workspace_id=workspace_id)
    sends, sends_cut = inbox_monitoring.sends(window.since, window.until, workspace_id=workspace_id)
    if agent_id := filters.text("agent"):
        found, sends = _of_agent(agent_id, found, sends)
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
        "timeline",
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
        inspected=_inspected(filters, moment),
    )


def _of_agent(
    agent_id: str, found: Course, sends: list[inbox_monitoring.Send]
) -> tuple[Course, list[inbox_monitoring.Send]]:
    """What an agent did, how what it did waited where that is told one by one, and what it wrote and got."""
    its = {span.handoff_id for span in found.spans if span.agent_id == agent_id}
    spans = [
        span for span in found.spans if agent_id == span.agent_id or (not span.agent_id and span.handoff_id in its)
    ]
    outline = found.outline
    if outline is not None:
        outline = replace(outline, counted=[each for each in outline.counted if each.agent_id == agent_id], waited=[])
    return Course(spans, outline), [send for send in sends if agent_id in send[:2]]


def titles_of(spans: Sequence[lanes.Span]) -> dict[str, str]:
    """By key, what people call what spans are of."""
    ids = list({span.key for span in spans if isinstance(span, Span)})
    found = dict(at_work.titles([span for span in spans if isinstance(span, Stretch)]))
    for start in range(0, len(ids), 500):
        found |= dict(Handoff.objects.filter(pk__in=ids[start : start + 500]).values_list("pk", "title"))
    return found


def _window(filters: TimelineFilters, moment: datetime) -> tuple[bool, Window]:
    """Whether the window moves on with time, and the window."""
    since, until = filters.moment("since"), filters.moment("until")
    if since and until and since < until:
        length = min(max(until - since, SHORTEST), LONGEST)
        return False, Window(until - length, until)
    return True, Window(moment - LENGTHS[filters.text("window") or "1h"], moment)


def _query(filters: TimelineFilters, **changed: str) -> str:
    """The address of another window, whatever is shown beside."""
    beside = {name: filters.text(name) for name in ("span",) if filters.text(name)}
    return urlencode({**_kept(filters), **changed, **beside})


def _kept(filters: TimelineFilters) -> dict[str, str]:
    """What narrows it, in every window."""
    place = {"workspace": filters.place.workspace_id} if filters.place else {}
    return {**place, "agent": filters.text("agent")} if filters.text("agent") else place


def _ways(filters: TimelineFilters, window: Window, live: bool, moment: datetime) -> list[dict[str, str]]:
    """Where the buttons and keys lead: nearer and farther, earlier and later."""

    def fixed(since: datetime, until: datetime) -> str:
        return f"?{_query(filters, since=iso(since), until=iso(until))}"

    def moved(by: timedelta) -> str:
        until = min(window.until + by, max(moment, window.until))
        return fixed(until - window.length, until)

    names = list(LENGTHS)
    middle, length = window.since + window.length / 2, window.length
    if live:
        place = names.index(filters.text("window") or "1h")
        nearer = f"?{_query(filters, window=names[max(place - 1, 0)])}"
        farther = f"?{_query(filters, window=names[min(place + 1, len(names) - 1)])}"
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
    did = Counter({name: 2 * len(found) for name, found in by_lane.items() if name})
    did.update(str(step.actor_agent_id) for step in steps)
    claims = [(each[0], Doing.CLAIMED, each[1], each[2]) for each in found.outline.counted] if found.outline else []
    beginnings: list[tuple[str, str, int, int]] = [*claims, *work.counted]
    for agent_id, _, _, count in beginnings:
        did[agent_id] += 2 * count
    for sender, recipient, _ in sends:
        did[sender] += 1
        did[recipient] += 1
    busiest = sorted(sorted(did, key=lambda name: (-did[name], name))[:LANES])
    among = set(busiest)
    counted: dict[str | None, dict[int, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for agent_id, doing, cell, count in beginnings:
        if agent_id in among:
            counted[agent_id][cell][doing] += count
    of_each: dict[str | None, list[lanes.Span]] = {name: by_lane.get(name, []) for name in busiest}
    place = partial(lanes.lanes, window=window, narrow=narrow if beginnings else lanes.NARROWEST, counted=counted)
    if found.outline:
        crowd = found.outline.waited
        drawn = place({None: [], **of_each})
    else:
        drawn = place({None: waiting, **of_each})
        crowd = lanes.depth(waiting, window) if drawn[0].blocks else []
        if crowd:
            drawn = place({None: [], **of_each})
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


def _crowd(depth: list[float], lane: Lane) -> list[dict[str, float]]:
    """How many waited, as bars that fill the lane of the waiting."""
    top, width = max(depth, default=0), 100 / max(len(depth), 1)
    room = lane.height - lanes.GAP
    return [
        {"x": place * width, "width": width, "y": lane.top + lane.height - 4 - room * many / top, "many": many,
         "height": room * many / top}
        for place, many in enumerate(depth)
        if many
    ]  # fmt: skip


def _inspected(filters: TimelineFilters, moment: datetime) -> dict[str, Any] | None:
    handoff_id, _, event_id = filters.text("span").rpartition(".")
    if handoff_id:
        row = Handoff.objects.select_related("workspace").filter(pk=handoff_id).first()
        found = [span for span in spans_of(handoff_id) if str(span.event_id) == event_id]
        if row is None or not found:
            return {"kind": "gone"}
        span = found[0]
        lasted = (span.end or moment) - span.start if span.start else None
        return {"kind": "span", "span": span, "handoff": row, "word": WORDS[span.doing], "lasted": lasted,
                "ended": ENDS.get(span.ended_by or "", "")}  # fmt: skip
    if chosen := filters.text("span"):
        return _at_work(chosen, moment)
    if (step := filters.number("step")) is not None:
        event = Event.objects.filter(pk=step).first()
        return {"kind": "step", "line": lines([event])[0]} if event else {"kind": "gone"}
    since, until = filters.moment("sent_since"), filters.moment("sent_until")
    sender, recipient = filters.text("sender"), filters.text("recipient")
    if sender and recipient and since and until:
        deliveries = inbox_monitoring.sent_between(sender, recipient, since, until, SHOWN_SENDS)
        return {"kind": "sends", "sender": sender, "recipient": recipient, "deliveries": deliveries,
                "more": len(deliveries) == SHOWN_SENDS}  # fmt: skip
    return None


def _at_work(key: str, moment: datetime) -> dict[str, Any]:
    """What a turn was, or a question to people."""
    if (found := at_work.turn(key)) is not None:
        turn, _ = found
        assert turn.started_at is not None
        return {"kind": "turn", "turn": turn, "doing": at_work.doing(turn), "word": WORDS[at_work.doing(turn)],
                "lasted": (turn.ended_at or moment) - turn.started_at}  # fmt: skip
    question = Question.objects.filter(pk=key).first()
    if question is None:
        return {"kind": "gone"}
    end = min(question.ended_at or moment, question.expires_at)
    return {"kind": "asking", "question": question, "word": WORDS[At.ASKING], "lasted": end - question.asked_at,
            "end": end if end < moment else None}  # fmt: skip


def turn(request: HttpRequest, turn_id: str) -> HttpResponse:
    """To a turn on its agent's page, where that has its transcript."""
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


def life(spans: list[Span], turns: list[Stretch], moment: datetime) -> dict[str, Any] | None:
    """The small timeline of one handoff: its spans on one line, on another the turns that it woke, each with how long
    it lasted."""
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
    """An agent's last day, as its lane."""
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
