"""Events: the live log with filters, one event with what it concerns, and the log as a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBadRequest
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse

from coordination.log.selectors import newest_event_id, type_counts
from coordination.log.sentences import lines, quiet_types, runs
from coordination.models import Agent, Artifact, Event, Session
from coordination.rows import EventRow, event_row
from handoffs.models import Handoff
from inbox.models import Message
from inbox.search import event_ids, search
from nexus.dashboard.forms import EventFilters
from nexus.planning.models import STREAM as PLANNING
from nexus.planning.models import Task
from nexus.topics.models import Topic, TopicMessage
from nexus.web.exports import as_file, table
from nexus.web.page import render

PAGE = 150
LOOKED_AT = 100_000  # ids that a page looks through for an agent or a type, which have no index
FOUND = 500  # hits of a text search before the other filters, for a page; an export takes all
AT_ONCE = 500
EQUAL = {
    "workspace": "workspace_id",
    "stream": "stream",
    "agent": "actor_agent_id",
    "handoff": "handoff_id",
    "trace": "trace_id",
}
COLUMNS = sorted(EventRow.__annotations__, key=lambda column: column == "payload")  # the long one last


def events(request: HttpRequest) -> TemplateResponse:
    """Show the newest events that match `?workspace= stream= type= agent= handoff= trace= q=`; `?before=` shows older
    ones. Signs of life are shown only if `?alive=` or their type asks for them. Consecutive events of a type are
    folded. A page of an agent or a type ends after LOOKED_AT ids, full or not; the link to older events goes on from
    there."""
    newest = newest_event_id()
    filters = EventFilters(request.GET, type_counts(newest))
    rows = _filtered(filters)
    words = filters.text("q")
    before = filters.number("before")
    if words:
        rows = rows.filter(pk__in=[hit.document for hit in search(words, limit=FOUND, before=before)])
    if before is not None:
        rows = rows.filter(event_id__lt=before)
    older = None
    if (filters.text("agent") or filters.text("type")) and not (
        words or filters.text("handoff") or filters.text("trace")
    ):
        end = min(newest + 1, newest + 1 if before is None else before) - LOOKED_AT
        rows = rows.filter(event_id__gte=end)
        older = end if Event.objects.filter(event_id__lt=end).exists() else None
    page = list(rows.select_related("workspace").order_by("-event_id")[: PAGE + 1])
    return render(
        request,
        "dashboard/events.html",
        "Events",
        runs=runs(page[:PAGE]),
        older=page[PAGE - 1].event_id if len(page) > PAGE else older,
        query=filters.query("before"),
        filters=filters,
        live=before is None and filters.is_valid(),
    )


def event(request: HttpRequest, event_id: int) -> TemplateResponse:
    """Show one event with its payload and links to what it concerns."""
    row = get_object_or_404(Event.objects.select_related("workspace"), pk=event_id)
    (line,) = lines([row])
    return render(
        request, "dashboard/event.html", f"Event {event_id}", event=row, parts=line.parts, concerns=_concerns(row)
    )


def export(request: HttpRequest) -> HttpResponseBase:
    """Send the filtered events, oldest first, as NDJSON or (`?format=csv`) CSV."""
    filters = EventFilters(request.GET)
    if not filters.is_valid():  # a file cannot show which filters were ignored
        return HttpResponseBadRequest(filters.errors.as_text(), content_type="text/plain; charset=utf-8")
    batches = _in_order(_filtered(filters), filters.text("q"))
    if filters.text("format") == "csv":
        return as_file(_csv(batches), "events", "csv")
    return as_file(_ndjson(batches), "events", "ndjson")


def _filtered(filters: EventFilters) -> QuerySet[Event]:
    rows = Event.objects.filter(**{column: value for key, column in EQUAL.items() if (value := filters.text(key))})
    type = filters.text("type")
    if type.endswith(".*"):
        rows = rows.filter(type__startswith=type.removesuffix("*"))
    elif type:
        return rows.filter(type=type)
    return rows if filters.text("alive") else rows.exclude(type__in=quiet_types())


def _in_order(rows: QuerySet[Event], words: str) -> Iterator[list[Event]]:
    """Yield all rows in order, in batches, so that no read transaction stays open while a browser is slow."""
    if words:
        ids = event_ids(words)
        for start in range(0, len(ids), AT_ONCE):
            yield list(rows.filter(pk__in=ids[start : start + AT_ONCE]).order_by("event_id"))
        return
    seen = 0
    while batch := list(rows.filter(event_id__gt=seen).order_by("event_id")[:AT_ONCE]):
        yield batch
        seen = batch[-1].event_id


def _ndjson(batches: Iterator[list[Event]]) -> Iterator[str]:
    for batch in batches:
        yield "".join(json.dumps(event_row(row), ensure_ascii=False) + "\n" for row in batch)


def _csv(batches: Iterator[list[Event]]) -> Iterator[str]:
    yield table([COLUMNS])
    for batch in batches:
        rows = [{**event_row(row), "payload": json.dumps(row.payload, ensure_ascii=False)} for row in batch]
        yield table([row.get(column) for column in COLUMNS] for row in rows)


def _concerns(row: Event) -> dict[str, Any]:
    """Return the things that an event names and that still exist."""
    payload = row.payload if isinstance(row.payload, dict) else {}

    def named(key: str) -> str | None:
        value = payload.get(key)
        return value if isinstance(value, str) else None

    agent_id = row.actor_agent_id or named("agent_id")
    number = payload.get("task_id") if row.stream == PLANNING else None
    return {
        "agent": Agent.everyone.filter(pk=agent_id).first(),
        "message": Message.objects.filter(pk=named("message_id")).first(),
        "handoff": Handoff.objects.filter(pk=row.handoff_id or named("handoff_id")).first(),
        "session": Session.objects.filter(pk=named("session_id")).first(),
        "topic": Topic.objects.filter(pk=named("topic_id")).first(),
        "said": TopicMessage.objects.filter(message_id=named("message_id")).first(),
        "artifact": Artifact.objects.filter(pk=named("artifact_id")).first(),
        "task": Task.objects.current(row.workspace_id or "").filter(number=number).first() if number else None,
    }
