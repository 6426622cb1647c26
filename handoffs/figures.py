"""What is measured of handoffs: how long they wait for an agent, and how long they take in all."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db.models import F, Min

from coordination.log.selectors import first_event_at
from coordination.models import Event, Workspace
from coordination.routing import Strategy
from core.contributions import Figure, Sample
from handoffs.models import STREAM, Handoff

AT_ONCE = 500  # ids in a query
PIECE = 5_000  # events of the stream that are looked through at once


def _ended(type: str, since: datetime, until: datetime, limit: int) -> list[Sample]:
    """How long after its creation the first such event of a handoff was, where that was within the window."""
    first, beyond = first_event_at(since), first_event_at(until)
    if first is None:
        return []
    found = _newest(type, first, beyond, limit)
    born: dict[str | None, tuple[datetime, str]] = {}
    earliest: dict[str | None, int] = {}
    ids = list({handoff_id for _, handoff_id, _, _ in found if handoff_id})
    for start in range(0, len(ids), AT_ONCE):
        chosen = ids[start : start + AT_ONCE]
        for pk, created_at, target in Handoff.objects.filter(pk__in=chosen).values_list("pk", "created_at", "target"):
            born[pk] = created_at, str(target.get("strategy"))
        of_each = Event.objects.filter(handoff_id__in=chosen, type=type).values_list("handoff_id")
        earliest |= dict(of_each.annotate(Min("event_id")).order_by())
    return [
        Sample(str(event_id), actor, born[handoff_id][1], max(0.0, (at - born[handoff_id][0]).total_seconds()))
        for event_id, handoff_id, actor, at in found
        if handoff_id in born and earliest.get(handoff_id) == event_id
    ]


def _newest(
    type: str, first: int, beyond: int | None, limit: int
) -> list[tuple[int, str | None, str | None, datetime]]:
    """The newest events of a type, newest first: id, handoff, actor, time. A piece of the stream after the other, so
    that a long window costs no more than what is taken of it."""
    here = Event.objects.filter(workspace_id__in=Workspace.objects.values("pk"), stream=STREAM, event_id__gte=first)
    if beyond is not None:
        here = here.filter(event_id__lt=beyond)
    newest_first = (F("event_id") + 0).desc()  # by a sum: read by the streams' index, and not the whole log
    found: list[tuple[int, str | None, str | None, datetime]] = []
    more = True
    while more and len(found) < limit:
        edge = list(here.order_by(newest_first).values_list("event_id", flat=True)[PIECE - 1 : PIECE])
        piece = here.filter(type=type, event_id__gte=edge[0]) if edge else here.filter(type=type)
        found += sorted(piece.order_by().values_list("event_id", "handoff_id", "actor_agent_id", "created_at"))[::-1]
        more = bool(edge)
        if edge:
            here = here.filter(event_id__lt=edge[0])
    return found[:limit]


def _claimed(since: datetime, until: datetime, limit: int) -> list[Sample]:
    return _ended("handoff.claimed", since, until, limit)


def _done(since: datetime, until: datetime, limit: int) -> list[Sample]:
    return _ended("handoff.completed", since, until, limit)


KINDS = tuple(strategy.value for strategy in Strategy)
BOUNDS = (1, 5, 15, 60, 300, 900, 1800, 3600, 14_400, 43_200, 86_400, 604_800)

FIGURES: Sequence[Figure] = (
    Figure(
        "handoff_claim_seconds",
        "Handoffs until they are claimed",
        "From when a handoff is created until an agent first claims it, by whom it is for.",
        "seconds",
        KINDS,
        BOUNDS,
        _claimed,
    ),
    Figure(
        "handoff_done_seconds",
        "Handoffs until they are done",
        "From when a handoff is created until it is completed, by whom it is for.",
        "seconds",
        KINDS,
        BOUNDS,
        _done,
    ),
)
