"""What is measured of handoffs: how long they wait for an agent, and how long they take in all."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db.models import DateTimeField, Exists, F, OuterRef, Subquery, TextField
from django.db.models.functions import Cast

from coordination.log.selectors import NEWEST_OF_STREAMS, ids_within
from coordination.models import Event, Workspace
from coordination.routing import Strategy, stored_strategy
from core.contributions import Figure, Sample
from core.database.functions import Seconds
from handoffs.models import STREAM, Handoff, HandoffStatus

PIECE = 50_000  # ids of the log that are looked through at once, and then twice as many


def _claimed(since: datetime, until: datetime, limit: int, agent_id: str | None) -> list[Sample]:
    """How long after its creation a handoff was first claimed, where that was within the window. A piece of the log
    after the other, so that a long window costs no more than what is taken of it."""
    first, beyond = ids_within(since, until)
    here = Event.objects.filter(workspace_id__in=Workspace.objects.values("pk"), stream=STREAM, type="handoff.claimed")
    if agent_id is not None:
        here = here.filter(actor_agent_id=agent_id)
    before = Event.objects.filter(handoff_id=OuterRef("handoff_id"), event_id__lt=OuterRef("event_id"))
    handoff = Handoff.objects.filter(pk=OuterRef("handoff_id"))
    created = Subquery(handoff.values("created_at"), output_field=DateTimeField())
    claims = (
        here.filter(~Exists(before.filter(type="handoff.claimed")))
        .annotate(about=Cast(Subquery(handoff.values("target")), TextField()))
        .annotate(waited=Seconds(F("created_at")) - Seconds(created))
        .filter(waited__isnull=False)
        .order_by(NEWEST_OF_STREAMS)
        .values_list("event_id", "actor_agent_id", "about", "waited")
    )
    found: list[Sample] = []
    piece = PIECE
    while first < beyond and len(found) < limit:
        low = max(first, beyond - piece)
        rows = claims.filter(event_id__gte=low, event_id__lt=beyond)[: limit - len(found)]
        found += [
            Sample(str(event_id), actor, stored_strategy(target), _length(waited))
            for event_id, actor, target, waited in rows
        ]
        beyond, piece = low, 2 * piece
    return found


def _done(since: datetime, until: datetime, limit: int, agent_id: str | None) -> list[Sample]:
    """How long after its creation a handoff was completed, or what was submitted accepted, by who had done it."""
    done = Handoff.objects.filter(
        workspace__in=Workspace.objects.values("pk"),
        status=HandoffStatus.COMPLETED,
        updated_at__gte=since,
        updated_at__lt=until,
    )
    if agent_id is not None:
        done = done.filter(claimed_by=agent_id)
    took = Seconds(F("updated_at")) - Seconds(F("created_at"))
    rows = done.order_by("-updated_at").values_list("pk", "claimed_by", Cast("target", TextField()), took)
    return [Sample(pk, holder, stored_strategy(target), _length(took)) for pk, holder, target, took in rows[:limit]]


def _length(seconds: float) -> float:
    return max(0.0, round(seconds, 3))


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
