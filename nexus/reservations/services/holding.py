"""Holding reservations on and ending them: by their holder, by an operator, by time, with a handoff."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime, timedelta
from typing import NamedTuple

from coordination.services import agents, workspaces
from inbox import services as mail
from nexus.core.clock import now
from nexus.core.database.prepared import Select, Slot, Update
from nexus.core.database.store import write
from nexus.core.limits import within_limit
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.core.operations.errors import Code, NexusError, not_found
from nexus.reservations import selectors
from nexus.reservations.models import Outcome, Reservation
from nexus.reservations.paths import patterns_of
from nexus.reservations.services.events import by_holder, emit_event

RECORDED_AT_ONCE = 200  # lapsed reservations: a call must not pay for a year of them

_lapsed = Select(lambda: Reservation.objects.unended().filter(expires_at__lt=Slot("moment")).order_by("expires_at"))
_orphaned = Select(
    lambda: Reservation.objects.unended().filter(~selectors.claimed(Slot("moment")), handoff_id=Slot("handoff_id"))
)
_orphans = Select(
    lambda: Reservation.objects.running(Slot("moment")).filter(
        ~selectors.claimed(Slot("moment")), handoff_id__isnull=False
    )
)
_lengths = Select(
    lambda: (
        Reservation.objects.running(Slot("moment")).filter(agent_id=Slot("agent_id")).values_list("seconds").distinct()
    )
)
_renew = Update(
    lambda: selectors.held(Slot("moment")).filter(
        agent_id=Slot("agent_id"), seconds=Slot("seconds"), expires_at__lt=Slot("due")
    ),
    expires_at=Slot("until"),
)
_end = Update(
    lambda: Reservation.objects.unended().filter(pk=Slot("reservation_id")),
    released_at=Slot("moment"),
    outcome=Slot("outcome"),
)
_prolong = Update(
    lambda: Reservation.objects.unended().filter(pk=Slot("reservation_id")),
    expires_at=Slot("until"),
    seconds=Slot("seconds"),
)


class Released(NamedTuple):
    """What was given up now, and what one still holds of the paths that one does not hold just so."""

    reservations: list[Reservation]
    still_held: list[selectors.Conflict] | None  # None: too much to compare


def release(
    *,
    project_root: str,
    agent_id: str,
    reservation_ids: Sequence[str] | None,
    paths: Sequence[str] | None,
    recorded: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Released:
    """Give up reservations of one's own: those named, or all in the project.

    One that ended before stays as it ended, and so does one that has more files than a path that is named.
    What is given up is so inside `recorded`, in a transaction.
    Raises WORKSPACE_UNRESOLVED, VALIDATION_ERROR, NOT_FOUND, WORKSPACE_MISMATCH, NOT_OWNER.
    """
    with _own(project_root, agent_id, reservation_ids, paths) as (chosen, named, moment), recorded():
        _record_end(chosen, Outcome.RELEASED, agent_id, moment)
    missed = sorted(named - {*(reservation_ids or ()), *(row.pattern for row in chosen)})
    if not missed:
        return Released(chosen, [])
    workspace_id = workspaces.locate(project_root).workspace_id  # not in the transaction: comparing is slow
    try:
        return Released(chosen, selectors.overlapping_own(workspace_id, agent_id, missed, moment))
    except NexusError:  # no reason to keep the files
        return Released(chosen, None)


def extend(
    *,
    project_root: str,
    agent_id: str,
    reservation_ids: Sequence[str] | None,
    paths: Sequence[str] | None,
    seconds: int | None,
) -> list[Reservation]:
    """Let leases of one's own run from now on for so long, or as long as each was reserved for; those named, or all in
    the project.

    Raises as `release` does, and INVALID_TRANSITION for one that ended; none is extended then.
    """
    with _own(project_root, agent_id, reservation_ids, paths) as (chosen, named, moment):
        if missed := sorted(named - {name for row in chosen for name in (row.pk, row.pattern)}):
            raise NexusError(
                Code.INVALID_TRANSITION,
                f"You hold no reservation {', '.join(missed[: selectors.MOST_NAMED])}, and nothing was extended. "
                "What ended is reserved again with files_reserve; what you hold goes by its id, or by its own path.",
                {"held": [reservation.reservation_id for reservation in chosen], "not_held": missed},
            )
        prolong(chosen, seconds, moment)
    return chosen


@contextmanager
def _own(
    project_root: str, agent_id: str, reservation_ids: Sequence[str] | None, paths: Sequence[str] | None
) -> Iterator[tuple[list[Reservation], set[str], datetime]]:
    """The transaction of an agent's act on its own reservations: those chosen, what the call named, and the moment."""
    place = workspaces.locate(project_root)
    patterns = None if paths is None else patterns_of(paths, project_root=project_root, place=place)
    with write():
        moment = now()
        record_ends(moment)
        chosen = _chosen(place.workspace_id, agent_id, reservation_ids, patterns, moment)
        yield chosen, {*(reservation_ids or ()), *(patterns or ())}, moment
        agents.touch(agent_id, moment)


def take_away(*, reservation_id: str, reason: str | None, operator: str) -> Reservation:
    """End any reservation, as an operator; its holder is told. Raises CONTENT_TOO_LARGE, NOT_FOUND, and
    INVALID_TRANSITION for one that ended."""
    within_limit(reason, "reason")
    with write():
        moment = now()
        reservation = Reservation.objects.filter(pk=reservation_id).first()
        if reservation is None:
            raise not_found("reservation", reservation_id)
        record_ends(moment)
        if not selectors.held(moment).filter(pk=reservation_id).exists():
            raise NexusError(Code.INVALID_TRANSITION, "This reservation has ended.", {"reservation_id": reservation_id})
        _record_end([reservation], Outcome.RELEASED, None, moment, operator=operator, why=reason)
        mail.notify(
            workspace_id=reservation.workspace_id,
            from_agent_id=OPERATOR_AGENT,
            recipient=reservation.agent_id,
            subject=f"Your reservation of {reservation.pattern[:200]} was ended",
            body=f"An operator ended it{f': {reason}' if reason else '.'}\n\nBefore you edit there, reserve it again.",
            moment=moment,
        )
    return reservation


def record_ends(moment: datetime) -> None:
    """Inside a transaction: record what ended, in whatever project, because its lease ran out, the oldest first, or
    with the claim on its handoff: that one may be claimed again, and what others took meanwhile stays theirs."""
    _record_end(_lapsed(RECORDED_AT_ONCE, moment=moment), Outcome.EXPIRED, None, moment)
    _record_end(_orphans(moment=moment), Outcome.SETTLED, None, moment)


def settle(handoff_id: str) -> None:
    """Record what ended with the claim on a handoff; it counted no more before. A read, where there is nothing."""
    if _orphaned.first(handoff_id=handoff_id, moment=now()) is None:
        return
    with write():
        moment = now()
        _record_end(_orphaned(handoff_id=handoff_id, moment=moment), Outcome.SETTLED, None, moment)


def renew(agent_id: str, moment: datetime) -> None:
    """Inside the transaction of an agent's act: its running leases run from now on."""
    for (seconds,) in _lengths(agent_id=agent_id, moment=moment):
        until = moment + timedelta(seconds=seconds)
        due = until - timedelta(seconds=seconds) / 10  # one that was renewed a moment ago need not be written again
        _renew(agent_id=agent_id, moment=moment, seconds=seconds, until=until, due=due)


def prolong(reservations: Iterable[Reservation], seconds: int | None, moment: datetime) -> None:
    """Inside the transaction: leases run from now on, and none ends earlier than it would have."""
    extended = list(reservations)
    for reservation in extended:
        reservation.seconds = seconds or reservation.seconds
        reservation.expires_at = max(reservation.expires_at, moment + timedelta(seconds=reservation.seconds))
    _prolong.each({"reservation_id": row.pk, "seconds": row.seconds, "until": row.expires_at} for row in extended)
    for rows in by_holder(extended):
        emit_event("extended", rows[0].agent_id, rows, moment)


def _chosen(
    workspace_id: str,
    agent_id: str,
    reservation_ids: Sequence[str] | None,
    patterns: Sequence[str] | None,
    moment: datetime,
) -> list[Reservation]:
    """What the agent holds of the reservations and patterns that a call names; everything where it names none."""
    held = selectors.own(workspace_id, agent_id, moment)
    if reservation_ids is None and patterns is None:
        return held
    known = Reservation.objects.in_bulk(list(reservation_ids or ()))
    for reservation_id in reservation_ids or ():
        if reservation_id not in known:
            raise not_found("reservation", reservation_id)
        if known[reservation_id].workspace_id != workspace_id:
            raise workspaces.mismatch("reservation", reservation_id)
        if known[reservation_id].agent_id != agent_id:
            holder = known[reservation_id].agent_id
            raise NexusError(
                Code.NOT_OWNER,
                f"This reservation is {holder!r}'s: ask for it with a message.",
                {"reservation_id": reservation_id},
            )
    return [row for row in held if row.pk in known or row.pattern in (patterns or ())]


def _record_end(
    reservations: Sequence[Reservation], outcome: Outcome, actor: str | None, moment: datetime, **more: str | None
) -> None:
    """Inside the transaction: reservations ended, and the log tells of each holder's."""
    _end.each({"reservation_id": row.pk, "moment": moment, "outcome": outcome} for row in reservations)
    for reservation in reservations:
        reservation.released_at, reservation.outcome = moment, outcome
    type = "expired" if outcome == Outcome.EXPIRED else "released"
    for rows in by_holder(reservations):
        emit_event(type, actor, rows, moment, outcome=outcome.value, holder=rows[0].agent_id, **more)
