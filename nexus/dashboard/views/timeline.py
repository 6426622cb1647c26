"""Timeline: who did what when, a row for each agent; and the small timelines of other pages."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, partial
from itertools import groupby
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse

from coordination.log.selectors import NEWEST_OF_STREAMS, ids_within, recent_events
from coordination.log.sentences import lines, sentences, without_quiet
from coordination.models import Agent, Event, Workspace
from handoffs.models import Handoff
from handoffs.spans import Doing, Span
from handoffs.timeline import Course, course, spans_of
from inbox import monitoring as inbox_monitoring
from nexus.control.agents import timeline as at_work
from nexus.control.agents.timeline import At, Stretch
from nexus.control.models import Question
from nexus.core.apps import nexus_apps
from nexus.core.clock import iso, now
from nexus.dashboard.forms import TIMELINES, TimelineFilters
from nexus.dashboard.views import timeline_layout
from nexus.dashboard.views.timeline_layout import GAP, TimelineRow, TimeWindow
from nexus.web.page import render

MOST_ROWS = 60  # the most active agents; the page says how many it leaves out
RECENT = 50  # events searched for the latest that is not a sign of life
HOUR = timedelta(hours=1)
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
    moment = now()
    filters = _opened(request, moment)
    workspace_id = filters.chosen_workspace.workspace_id if filters.chosen_workspace else None
    live, window = _window(filters, moment)
    narrow = timeline_layout.gathered_of(min(Agent.objects.count(), MOST_ROWS))
    cell = window.length * (2 * narrow / 100)
    found = course(window.since, window.until, workspace_id=workspace_id)
    sends, sends_cut = inbox_monitoring.sends(window.since, window.until, workspace_id=workspace_id)
    if agent_id := filters.text("agent"):
        found, sends = _agent_course(agent_id, found, sends)
    work = at_work.Course([], [])
    if workspace_id is None:
        work = at_work.course(window.since, window.until, cell=cell, agent_id=agent_id)
    oldest = Event.objects.order_by("event_id").values_list("created_at", flat=True).first()
    query = filters.query("span", "step", "sender", "recipient", "sent_since", "sent_until")
    steps = steps_within(window, workspace_id=workspace_id, agent_id=agent_id)
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
        handoffs_cut=found.cut,
        counted=work.counted,
        sends_cut=sends_cut,
        log_begins=oldest if oldest and oldest > window.since else None,
        unknown_until=window.at(oldest, 0),
        windows=[(name, label, f"?{_query(filters, window=name)}") for name, label in TIMELINES.items()],
        chosen=filters.text("window") if live else None,
        ways=_ways(filters, window, live, moment),
        query=query,
        kept=urlencode(_filters(filters)),
        words=WORDS,
        inspected=inspected(filters, moment),
    )


def _opened(request: HttpRequest, moment: datetime) -> TimelineFilters:
    """Return the filters. An address without a time opens on what happened last: an hour, or as much more as reaches
    back to it."""
    filters = TimelineFilters(request.GET)
    if any(request.GET.get(name) for name in ("window", "since", "until")):
        return filters
    workspace = filters.chosen_workspace
    events = recent_events(RECENT, workspace_id=workspace.workspace_id if workspace else None)
    latest = next((event.created_at for event in without_quiet(events)), moment)
    given = request.GET.copy()
    reaching = [name for name, length in LENGTHS.items() if length >= HOUR and moment - latest < length]
    if reaching:
        given["window"] = reaching[0]
    else:
        given["since"], given["until"] = iso(latest - HOUR), iso(latest + HOUR / 10)
    return TimelineFilters(given)


def _agent_course(
    agent_id: str, found: Course, sends: list[inbox_monitoring.Send]
) -> tuple[Course, list[inbox_monitoring.Send]]:
    """Return an agent's periods, how its handoffs waited (if returned one by one), and the messages it sent and
    received."""
    its = {span.handoff_id for span in found.spans if span.agent_id == agent_id}
    spans = [
        span for span in found.spans if agent_id == span.agent_id or (not span.agent_id and span.handoff_id in its)
    ]
    return Course(spans, found.cut), [send for send in sends if agent_id in send[:2]]


def _window(filters: TimelineFilters, moment: datetime) -> tuple[bool, TimeWindow]:
    """Return whether the window moves on with time, and the window."""
    since, until = filters.moment("since"), filters.moment("until")
    if since and until and since < until:
        length = min(max(until - since, SHORTEST), LONGEST)
        return False, TimeWindow(until - length, until)
    return True, TimeWindow(moment - LENGTHS[filters.text("window") or "1h"], moment)


def _query(filters: TimelineFilters, **changed: str) -> str:
    """Return the query of another window, with the same filters and the chosen span."""
    beside = {name: filters.text(name) for name in ("span",) if filters.text(name)}
    return urlencode({**_filters(filters), **changed, **beside})


def _filters(filters: TimelineFilters) -> dict[str, str]:
    """Return the filters, which apply to every window."""
    workspace = {"workspace": filters.chosen_workspace.workspace_id} if filters.chosen_workspace else {}
    return {**workspace, "agent": filters.text("agent")} if filters.text("agent") else workspace


def _ways(filters: TimelineFilters, window: TimeWindow, live: bool, moment: datetime) -> list[dict[str, str]]:
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
    window: TimeWindow,
    moment: datetime,
) -> dict[str, Any]:
    by_agent: dict[str | None, list[timeline_layout.Span]] = defaultdict(list)
    spans: list[Span | at_work.Stretch] = [*found.spans, *work.stretches]
    for span in spans:
        by_agent[span.agent_id].append(span)
    waiting = by_agent.pop(None, [])
    did = _did(by_agent, work.counted, sends, steps)
    busiest = sorted(sorted(did, key=lambda name: (-did[name], name))[:MOST_ROWS])
    among = set(busiest)
    counted: dict[str | None, dict[int, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for agent_id, doing, cell, count in work.counted:
        if agent_id in among:
            counted[agent_id][cell][doing] += count
    of_each: dict[str | None, list[timeline_layout.Span]] = {name: by_agent.get(name, []) for name in busiest}
    draw = partial(
        timeline_layout.draw_rows,
        window=window,
        narrow=narrow if work.counted else timeline_layout.NARROWEST,
        counted=counted,
    )
    drawn = draw({None: waiting, **of_each})
    crowd = timeline_layout.depth(waiting, window) if drawn[0].blocks else []
    if crowd:
        drawn = draw({None: [], **of_each})
    between = [send for send in sends if send[0] in among and send[1] in among and send[0] != send[1]]
    arrows, unsent = timeline_layout.arrows(between, window)
    at = {row.name: row for row in drawn}
    return {
        "chart_rows": drawn,
        "height": sum(row.height for row in drawn),
        "ticks": timeline_layout.ticks(window),
        "ticked": "clock" if window.length <= timedelta(days=2) else "day",
        "now_at": window.at(moment, 100) if window.since < moment <= window.until else None,
        "steps": marks_of(steps, window, drawn),
        "steps_cut": len(steps) == MOST_STEPS,
        "crowd": _crowd(crowd, drawn[0]),
        "arrows": [(arrow, at[arrow.sender].middle, at[arrow.recipient].middle) for arrow in arrows],
        "unsent": unsent,
        "left_out": len(did) - len(busiest),
        "drawn": [bar.span for row in drawn for bar in row.bars],
        "nothing": not did and not any(crowd) and not waiting,
    }


def _did(
    by_agent: Mapping[str | None, Sequence[timeline_layout.Span]],
    beginnings: Iterable[tuple[str, str, int, int]],
    sends: Iterable[inbox_monitoring.Send],
    steps: Iterable[Event],
) -> Counter[str]:
    """Count what each agent did: the most active get the rows. Periods count twice."""
    did = Counter({name: 2 * len(spans) for name, spans in by_agent.items() if name})
    did.update(str(step.actor_agent_id) for step in steps)
    for agent_id, _, _, count in beginnings:
        did[agent_id] += 2 * count
    for sender, recipient, _ in sends:
        did[sender] += 1
        did[recipient] += 1
    return did


def _crowd(depth: list[float], row: TimelineRow) -> list[dict[str, float]]:
    """Return how many waited, as bars that fill the row of waiting handoffs."""
    top, width = max(depth, default=0), 100 / max(len(depth), 1)
    room = row.height - timeline_layout.GAP
    return [
        {"x": index * width, "width": width, "y": row.top + row.height - 4 - room * many / top, "many": many,
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


MOST_STEPS = 400  # the newest steps of a window
WIDTH = 0.5  # percent of the window; steps that are closer are one mark


@dataclass(frozen=True)
class Mark:
    """An agent's steps within a small part of the window."""

    x: float
    y: float
    event_id: int  # of the newest
    said: str  # the newest as a sentence
    more: int  # earlier ones


@cache
def _marked() -> tuple[list[str], list[str]]:
    """Return the streams to read, and the types of events that are marks."""
    apps = [app for app in nexus_apps() if any(sentence.mark for sentence in app.sentences().values())]
    return [name for app in apps for name in app.streams()], [type for type, each in sentences().items() if each.mark]


def steps_within(window: TimeWindow, *, workspace_id: str | None, agent_id: str) -> list[Event]:
    """Return the newest steps of agents, or of one, within a window, newest first."""
    streams, types = _marked()
    first, beyond = ids_within(window.since, window.until)
    workspaces = Workspace.objects.filter(pk=workspace_id) if workspace_id else Workspace.objects.all()
    rows = Event.objects.filter(
        workspace__in=workspaces,
        stream__in=streams,
        type__in=types,
        actor_agent_id__isnull=False,
        event_id__gte=first,
        event_id__lt=beyond,
    )
    rows = rows.filter(actor_agent_id=agent_id) if agent_id else rows
    return list(rows.order_by(NEWEST_OF_STREAMS)[:MOST_STEPS])


def marks_of(events: Sequence[Event], window: TimeWindow, rows: Sequence[TimelineRow]) -> Mapping[str, list[Mark]]:
    """Return each agent's steps with their positions on its row, from left to right."""
    tops = {row.name: row for row in rows if row.name}
    drawn = [line for line in lines(events) if line.event.actor_agent_id in tops]
    drawn.sort(key=lambda line: (str(line.event.actor_agent_id), line.event.event_id))
    found: dict[str, list[Mark]] = {}
    for (name, _), near in groupby(
        drawn, key=lambda line: (str(line.event.actor_agent_id), window.cell(line.event.created_at, WIDTH))
    ):
        *before, newest = near
        y = tops[name].top + tops[name].height - GAP / 2
        said = "".join(part.text for part in newest.parts)
        mark = Mark(window.at(newest.event.created_at, 0), y, newest.event.event_id, said, len(before))
        found.setdefault(name, []).append(mark)
    return found


SHOWN_SENDS = 20
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


def titles_of(spans: Sequence[timeline_layout.Span]) -> dict[str, str]:
    """Return the titles of what spans belong to, by key."""
    ids = list({span.key for span in spans if isinstance(span, Span)})
    found = dict(at_work.titles([span for span in spans if isinstance(span, Stretch)]))
    for start in range(0, len(ids), 500):
        found |= dict(Handoff.objects.filter(pk__in=ids[start : start + 500]).values_list("pk", "title"))
    return found


def inspected(filters: TimelineFilters, moment: datetime) -> dict[str, Any] | None:
    """Return the span, step or messages that the URL names, for the template. If it no longer exists, the context says
    so; None if the URL names nothing."""
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
    """Return a turn's details, or a question's."""
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
