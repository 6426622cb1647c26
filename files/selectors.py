"""The reads of reservations: what is held, what two calls would both have, who had it last."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

from django.db.models import Exists, Min, OuterRef, Q

from core.clock import now
from core.database.prepared import Select, Slot
from files.models import Reservation, ReservationQuerySet
from files.patterns import PLACE_PARTS, overlap, place
from handoffs.models import Handoff

LOOKED_BACK = 1_000  # ended reservations that a look for the last one reads
MOST_LISTED = 200  # of those who have a path
MOST_NAMED = 20  # of what is in the way of a pattern
BEYOND = "g"  # sorts after every hexadecimal digit


def held(moment: datetime | Slot) -> ReservationQuerySet:
    """The reservations that count: the lease runs, and the holder still has the handoff that it is for."""
    return Reservation.objects.running(moment).filter(Q(handoff_id=None) | claimed(moment))


def claimed(moment: datetime | Slot) -> Exists:
    """That the holder of a reservation has the handoff that it is for."""
    return Exists(
        Handoff.objects.held().filter(
            pk=OuterRef("handoff_id"), claimed_by=OuterRef("agent_id"), lease_expires_at__gte=moment
        )
    )


def _near() -> Q:
    """The places above and below one: what may overlap it."""
    above = [Slot(f"above_{count}") for count in range(PLACE_PARTS + 1)]
    return Q(place__in=above) | Q(place__gt=Slot("place"), place__lt=Slot("end"))


_others_near = Select(
    lambda: (
        held(Slot("moment"))
        .filter(_near(), workspace_id=Slot("workspace_id"))
        .exclude(agent_id=Slot("agent_id"))
        .values_list("pk", "pattern", "exclusive")
    )
)
_near_to = Select(
    lambda: held(Slot("moment")).filter(_near(), workspace_id=Slot("workspace_id")).values_list("pk", "pattern")
)
_ended_near = Select(
    lambda: (
        Reservation.objects.filter(_near(), workspace_id=Slot("workspace_id"), released_at__isnull=False)
        .order_by("-released_at")
        .values_list("pk", "pattern")
    )
)
_own = Select(lambda: held(Slot("moment")).filter(workspace_id=Slot("workspace_id"), agent_id=Slot("agent_id")))
_alike = Select(
    lambda: held(Slot("moment")).filter(
        workspace_id=Slot("workspace_id"),
        place=Slot("place"),
        agent_id=Slot("agent_id"),
        pattern=Slot("pattern"),
        exclusive=Slot("exclusive"),
    )
)
_of_call = Select(
    lambda: Reservation.objects.filter(agent_id=Slot("agent_id"), client_id=Slot("client_id")).order_by("item")
)


class Conflict(NamedTuple):
    """A pattern that an agent asked for, and the reservation of another that is in its way."""

    pattern: str
    held: Reservation


def _around(pattern: str) -> dict[str, str]:
    """The slots of `_near` for a pattern."""
    here = place(pattern)
    above = {f"above_{count}": here[: 8 * count] for count in range(PLACE_PARTS + 1)}
    return {**above, "place": here, "end": here + BEYOND}


def conflicts(
    *, workspace_id: str, agent_id: str, wanted: Iterable[str], exclusive: bool, moment: datetime
) -> list[Conflict]:
    """What is in the way of reserving patterns, at most MOST_NAMED for each; shared ones are in no other's."""
    found: list[tuple[str, str]] = []
    for pattern in wanted:
        near = _others_near(workspace_id=workspace_id, agent_id=agent_id, moment=moment, **_around(pattern))
        overlapping = (key for key, other, alone in near if (exclusive or alone) and overlap(pattern, other))
        found += [(pattern, key) for key in islice(overlapping, MOST_NAMED)]
    rows = Reservation.objects.in_bulk({key for _, key in found})
    return [Conflict(pattern, rows[key]) for pattern, key in found]


def holders(workspace_id: str, pattern: str, moment: datetime) -> list[Reservation]:
    """Every reservation that overlaps a pattern, oldest first."""
    near = _near_to(workspace_id=workspace_id, moment=moment, **_around(pattern))
    keys = [key for key, other in near if overlap(pattern, other)]
    return sorted(Reservation.objects.in_bulk(keys).values(), key=lambda row: (row.created_at, row.pk))


def last(workspace_id: str, pattern: str) -> Reservation | None:
    """The reservation that ended last of those that overlap a pattern; None when the latest in its place do not."""
    ended = _ended_near(LOOKED_BACK, workspace_id=workspace_id, **_around(pattern))
    key = next((key for key, other in ended if overlap(pattern, other)), None)
    return None if key is None else Reservation.objects.get(pk=key)


def own(workspace_id: str, agent_id: str, moment: datetime) -> list[Reservation]:
    """What an agent holds in a workspace, oldest first."""
    return _own(workspace_id=workspace_id, agent_id=agent_id, moment=moment)


def alike(
    *, workspace_id: str, agent_id: str, pattern: str, exclusive: bool, handoff_id: str | None, moment: datetime
) -> Reservation | None:
    """What an agent holds of the same pattern in the same way."""
    rows = _alike(
        workspace_id=workspace_id,
        place=place(pattern),
        agent_id=agent_id,
        pattern=pattern,
        exclusive=exclusive,
        moment=moment,
    )
    return next((row for row in rows if row.handoff_id == handoff_id), None)


def of_call(agent_id: str, client_id: str) -> list[Reservation]:
    """What an earlier call with the same client_id reserved."""
    return _of_call(agent_id=agent_id, client_id=client_id)


def listed(
    *, workspace_id: str | None, agent_id: str | None, ended: bool, search: str, limit: int
) -> list[Reservation]:
    """Reservations for people: those held, oldest first, or those that ended, latest first; `search` finds parts of
    patterns, reasons and names."""
    if ended:
        rows = Reservation.objects.filter(released_at__isnull=False).order_by("-released_at", "pk")
    else:
        rows = held(now()).order_by("created_at", "pk")
    if workspace_id is not None:
        rows = rows.filter(workspace_id=workspace_id)
    if agent_id is not None:
        rows = rows.filter(agent_id=agent_id)
    if search:
        rows = rows.filter(Q(pattern__icontains=search) | Q(reason__icontains=search) | Q(agent_id__icontains=search))
    return list(rows.select_related("workspace")[:limit])


def next_change(workspace_id: str) -> datetime | None:
    """When time alone next ends a reservation of the workspace: its lease, or its holder's on the handoff."""
    moment = now()
    running = held(moment).filter(workspace_id=workspace_id)
    claims = Handoff.objects.filter(pk__in=running.exclude(handoff_id=None).values("handoff_id"))
    ends = [
        running.aggregate(first=Min("expires_at"))["first"],
        claims.aggregate(first=Min("lease_expires_at"))["first"],
    ]
    # the boundary itself does not expire
    return min((end + timedelta(microseconds=1) for end in ends if end is not None), default=None)
