"""The reads of reservations: what is held, what conflicts, who held it last."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import NamedTuple, TypedDict

from django.db.models import Exists, Min, OuterRef, Q

from coordination.join_answer import MOST
from handoffs.models import HELD, CheckedWork, Handoff, HandoffStatus
from nexus.core.clock import now
from nexus.core.operations.errors import invalid
from nexus.reservations import sql
from nexus.reservations.models import Reservation, ReservationQuerySet
from nexus.reservations.patterns import PLACE_PARTS, extension, matches, overlap, prefix_key

LOOKED_BACK = 1_000  # ended reservations that a search for the last one reads
MOST_LISTED = 200  # holders of a path in an answer
MOST_PATHS = 1_000  # changed files that are compared with what was reserved
MOST_NAMED = 3  # conflicts of a pattern in an answer
MOST_COMPARED = 20_000_000  # pairs of characters, by one caller in COMPARED_SECONDS
COMPARED_SECONDS = 60
MOST_REMEMBERED = 50_000  # comparisons of one caller
MOST_IN_TURN = 200_000  # pairs compared for the first time in one transaction, which every writer waits for
COMPARING = 500  # callers whose comparisons are remembered
BEYOND = "g"  # sorts after every hexadecimal digit


def held(moment: datetime) -> ReservationQuerySet:
    """Return the reservations in force: the lease runs, and so does the claim on the handoff that it is for, or the
    holder may get that back. `nexus.reservations.guard.holdings` says the same in SQL."""
    return Reservation.objects.running(moment).filter(Q(handoff_id=None) | kept_for(moment))


def kept_for(moment: datetime) -> Exists:
    """Return the condition that the holder of a reservation has the handoff that it is for, waits for a verdict, or an
    operator released it and nobody else took it: the files are still its own if it gets the handoff back before the
    lease ends."""
    submitted = Q(status=HandoffStatus.SUBMITTED, claimed_by=OuterRef("agent_id"))
    released = Q(status=HandoffStatus.OPEN, released_from=OuterRef("agent_id"))
    claimed = Q(status__in=HELD, lease_expires_at__gte=moment, claimed_by=OuterRef("agent_id"))
    return Exists(Handoff.objects.filter(claimed | submitted | released, pk=OuterRef("handoff_id")))


class ReservationConflict(NamedTuple):
    """A pattern that an agent named, and a reservation that overlaps it."""

    pattern: str
    held: Reservation


def _around(pattern: str) -> dict[str, str]:
    """Return the values of statements for a pattern's key."""
    here = prefix_key(pattern)
    above = {f"above_{count}": here[: 8 * count] for count in range(PLACE_PARTS + 1)}
    return {**above, "place": here, "end": here + BEYOND}


class Uncompared(Exception):
    """More patterns must be compared for the first time than a transaction may, since every writer waits for it."""


class Compared:
    """What one caller has compared, in all of its calls and reads, and its remaining allowance.

    No two patterns are compared twice: a parked call reads again at each event, and comparisons in a transaction delay
    every writer.
    """

    def __init__(self) -> None:
        self._overlaps: dict[tuple[str, str], bool] = {}
        self._left = float(MOST_COMPARED)
        self._counted = time.monotonic()

    def knows(self, pattern: str, other: str) -> bool:
        """Return whether the caller has compared the two."""
        return (pattern, other) in self._overlaps

    def overlap(self, pattern: str, other: str) -> bool:
        """Return whether two patterns overlap. Raises VALIDATION_ERROR where the caller compares too much."""
        if (known := self._overlaps.get((pattern, other))) is not None:
            return known
        self._spend(len(pattern) * len(other))
        if len(self._overlaps) >= MOST_REMEMBERED:
            self._overlaps.clear()
        self._overlaps[pattern, other] = found = overlap(pattern, other)
        return found

    def _spend(self, cost: int) -> None:
        moment = time.monotonic()
        gained = (moment - self._counted) / COMPARED_SECONDS * MOST_COMPARED
        self._left, self._counted = min(self._left + gained, MOST_COMPARED), moment
        if cost > self._left:
            raise invalid(
                "There is too much that these paths would have to be compared with: name files or directories instead "
                "of globs, or fewer at once, or try again in a minute.",
                field="paths",
            )
        self._left -= cost


@lru_cache(maxsize=COMPARING)
def compared_by(caller: str) -> Compared:
    """Return what an agent, or a connection without an agent, has compared in this process."""
    return Compared()


def _near(workspaces: Sequence[str], pattern: str, moment: datetime) -> Iterator[tuple[str, str, bool, str]]:
    """Yield the reservations that may overlap a pattern, by workspace and oldest first: key, pattern, whether it is
    exclusive, and holder."""
    kind, around = extension(pattern), _around(pattern)
    for workspace_id in workspaces:
        near = (
            row
            for read in sql.near[bool(kind)]
            for row in read(workspace_id=workspace_id, moment=moment, extension=kind, **around)
        )
        yield from sorted(near)  # ids rise with time


def in_use(workspaces: Sequence[str]) -> list[str]:
    """Return those of the workspaces that may have reservations; reads the store only where there are several."""
    if len(workspaces) == 1:
        return list(workspaces)
    used = Reservation.objects.unended().filter(workspace_id__in=workspaces).values_list("workspace_id", flat=True)
    return sorted(used.distinct(), key=list(workspaces).index)


def find_conflicts(
    *,
    workspaces: Sequence[str],
    agent_id: str,
    wanted: Iterable[str],
    exclusive: bool,
    moment: datetime,
    at_once: float = math.inf,
) -> list[ReservationConflict]:
    """Return the reservations that conflict with patterns in workspaces that share their files, the first MOST_NAMED
    for each pattern; two shared ones do not conflict.

    Raises VALIDATION_ERROR where that is too much to compare, and Uncompared where more than `at_once` pairs of
    characters have not been compared before.
    """
    found: list[tuple[str, str]] = []
    used, compared, left = in_use(workspaces), compared_by(agent_id), at_once

    def overlaps(pattern: str, other: str) -> bool:
        nonlocal left
        if not compared.knows(pattern, other):
            left -= len(pattern) * len(other)
            if left < 0:
                raise Uncompared
        return compared.overlap(pattern, other)

    for pattern in wanted:
        others = (
            key
            for key, other, alone, holder in _near(used, pattern, moment)
            if holder != agent_id and (exclusive or alone) and overlaps(pattern, other)
        )
        found += [(pattern, key) for key in islice(others, MOST_NAMED)]
    rows = Reservation.objects.in_bulk({key for _, key in found})
    return [ReservationConflict(pattern, rows[key]) for pattern, key in found]


def holders(
    workspaces: Sequence[str], pattern: str, moment: datetime, compared: Compared
) -> tuple[list[Reservation], int]:
    """Return the reservations that overlap a pattern in workspaces that share their files, oldest first and at most
    MOST_LISTED, and their total number. Raises VALIDATION_ERROR where that is too much to compare."""
    near = _near(in_use(workspaces), pattern, moment)
    keys = sorted(key for key, other, _, _ in near if compared.overlap(pattern, other))  # ids rise with time
    rows = Reservation.objects.in_bulk(keys[:MOST_LISTED])
    return [rows[key] for key in keys if key in rows], len(keys)


def last(workspace_id: str, pattern: str, compared: Compared) -> Reservation | None:
    """Return the latest ended reservation that overlaps a pattern; None when none of the latest near it does.

    Raises VALIDATION_ERROR where that is too much to compare.
    """
    rows = Reservation.objects.filter(workspace_id=workspace_id, released_at__isnull=False).order_by("-released_at")
    if here := prefix_key(pattern):
        above = {here[: 8 * count] for count in range(PLACE_PARTS + 1)}
        near = [rows.filter(place=each) for each in above]  # one query for all would use no index
        near.append(rows.filter(place__gt=here, place__lt=here + BEYOND))
    else:
        near = [rows]
    ended = [row for each in near for row in each.values_list("released_at", "pk", "pattern")[:LOOKED_BACK]]
    key = next((key for _, key, other in sorted(ended, reverse=True) if compared.overlap(pattern, other)), None)
    return None if key is None else Reservation.objects.get(pk=key)


def own(workspace_id: str, agent_id: str, moment: datetime) -> list[Reservation]:
    """Return an agent's reservations in a workspace, oldest first."""
    rows = sql.own(workspace_id=workspace_id, agent_id=agent_id, moment=moment)
    return sorted(rows, key=lambda row: row.pk)


class Reserved(TypedDict):
    """A reservation in the answer to an agent that joins."""

    agent_id: str
    pattern: str
    exclusive: bool
    reason: str | None


def reserved_in(agent_id: str, workspace_id: str, moment: datetime) -> list[Reserved]:
    """Return the reservations in a workspace, newest first."""
    rows = held(moment).filter(workspace_id=workspace_id).order_by("-reservation_id")[:MOST]
    return [
        {
            "agent_id": each.agent_id,
            "pattern": each.pattern,
            "exclusive": each.exclusive,
            "reason": each.reason and each.reason[:100],
        }
        for each in rows
    ]


def compared_with(work: CheckedWork, paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the patterns that the agent that did some work had reserved since it began and that fit none of these
    paths, and the paths that none of its patterns fits. Both are bounded."""
    rows = Reservation.objects.filter(workspace=work.workspace, agent_id=work.doer)
    rows = rows.filter(Q(released_at=None) | Q(released_at__gte=work.since))
    reserved = list(dict.fromkeys(rows.order_by("reservation_id").values_list("pattern", flat=True)[:MOST]))
    covered, used = set[str](), set[str]()
    for path in paths[:MOST_PATHS]:
        fitting = [pattern for pattern in reserved if matches(pattern, path)]
        used.update(fitting)
        covered.update([path] if fitting else [])
    untouched = [pattern for pattern in reserved if pattern not in used]
    return untouched, [path for path in paths[:MOST_PATHS] if path not in covered]


def overlapping_own(
    workspace_id: str, agent_id: str, patterns: Sequence[str], moment: datetime
) -> list[ReservationConflict]:
    """Return an agent's reservations that overlap the first MOST_NAMED patterns, at most as many for each.

    Raises VALIDATION_ERROR where that is too much to compare.
    """
    held, compared = own(workspace_id, agent_id, moment), compared_by(agent_id)
    return [
        ReservationConflict(pattern, row)
        for pattern in patterns[:MOST_NAMED]
        for row in islice((row for row in held if compared.overlap(pattern, row.pattern)), MOST_NAMED)
    ]


def alike(
    *, workspace_id: str, agent_id: str, pattern: str, exclusive: bool, handoff_id: str | None, moment: datetime
) -> Reservation | None:
    """Return an agent's reservation of the same pattern with the same mode and handoff."""
    rows = sql.alike(
        workspace_id=workspace_id,
        place=prefix_key(pattern),
        agent_id=agent_id,
        pattern=pattern,
        exclusive=exclusive,
        moment=moment,
    )
    return next((row for row in rows if row.handoff_id == handoff_id), None)


def holds(workspace_id: str, agent_id: str, moment: datetime) -> int:
    """Count an agent's reservations in a workspace."""
    [(count,)] = sql.count_own(workspace_id=workspace_id, agent_id=agent_id, moment=moment)
    return count


def made_by_call(agent_id: str, client_id: str) -> list[Reservation]:
    """Return what an earlier call with the same client_id reserved."""
    return list(Reservation.objects.filter(agent_id=agent_id, client_id=client_id).order_by("item"))


def list_reservations(
    *,
    workspace_id: str | None = None,
    agent_id: str | None = None,
    ended: bool = False,
    search: str = "",
    limit: int,
) -> list[Reservation]:
    """Return reservations for people: those held, oldest first, or those that ended, latest first; `search` finds
    parts of patterns, reasons and names."""
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
    keys = rows.values("pk")[:limit]  # so that only these are sorted with their texts
    page = Reservation.objects.filter(pk__in=keys).order_by(*rows.query.order_by)
    return list(page.select_related("workspace"))


def next_change(workspaces: Sequence[str]) -> datetime | None:
    """Return when a reservation of the workspaces next ends by time alone: by its lease, or the holder's lease on the
    handoff."""
    moment = now()
    running = held(moment).filter(workspace_id__in=workspaces)
    claims = Handoff.objects.filter(pk__in=running.exclude(handoff_id=None).values("handoff_id"))
    ends = [
        running.aggregate(first=Min("expires_at"))["first"],
        claims.aggregate(first=Min("lease_expires_at"))["first"],
    ]
    # a lease ends after its last moment
    return min((end + timedelta(microseconds=1) for end in ends if end is not None), default=None)
