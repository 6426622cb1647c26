"""Agents' steps besides handoffs and mail, as marks on their lanes of the timeline: the event types that apps declare
as steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby

from coordination.log.lines import lines, sentences
from coordination.log.selectors import NEWEST_OF_STREAMS, ids_within
from coordination.models import Event, Workspace
from nexus.core.apps import nexus_apps
from nexus.dashboard.views.lanes import GAP, Lane, Window

MOST = 400  # the newest steps of a window
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
    return [name for app in apps for name in app.streams()], [type for type, told in sentences().items() if told.mark]


def steps(window: Window, *, workspace_id: str | None, agent_id: str) -> list[Event]:
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
    return list(rows.order_by(NEWEST_OF_STREAMS)[:MOST])


def marks(events: Sequence[Event], window: Window, lanes: Sequence[Lane]) -> Mapping[str, list[Mark]]:
    """Return each agent's steps with their positions on its lane, from left to right."""
    tops = {lane.name: lane for lane in lanes if lane.name}
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
