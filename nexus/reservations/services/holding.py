"""Extension and end of reservations: by their holder, by an operator, by time, with a handoff."""

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

RECORDED_AT_ONCE = 200  # expired reservations: a call must not pay for a year of them

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
    """The released reservations, and the agent's other reservations that still cover the named paths."""

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
    """Release the agent's own reservations: those named, or all in the project.

    One that has already ended stays as it is, and so does one that covers more than a named path.
    The change is made inside `recorded`, in a transaction.
    Raises WORKSPACE_UNRESOLVED, VALIDATION_ERROR, NOT_FOUND, WORKSPACE_MISMATCH, NOT_OWNER.
    """
    with _own(project_root, agent_id, reservation_ids, paths) as (chosen, named, moment), recorded():
        _record_end(chosen, Outcome.RELEASED, agent_id, moment)
    missed = sorted(named - {*(reservation_ids or ()), *(row.pattern for row in chosen)})
    if not missed:
        return Released(chosen, [])
    workspace_id = workspaces.locate(project_root).workspace_id  # before the transaction: the comparison is slow
    try:
        return Released(chosen, selectors.overlapping_own(workspace_id, agent_id, missed, moment))
    except NexusError:  # no reason not to release
        return Released(chosen, None)


def extend(
    *,
    project_root: str,
    agent_id: str,
    reservation_ids: Sequence[str] | None,
    paths: Sequence[str] | None,
    seconds: int | None,
) -> list[Reservation]:
    """Extend the agent's own leases to `seconds` from now, or to each one's original length; those named, or all in the
    project.

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
    """Open the transaction of an agent's act on its own reservations; yield those chosen, what the call named, and the
    moment."""
    project = workspaces.locate(project_root)
    patterns = None if paths is None else patterns_of(paths, project_root=project_root, project=project)
    with write():
        moment = now()
        record_ends(moment)
        chosen = _chosen(project.workspace_id, agent_id, reservation_ids, patterns, moment)
        yield chosen, {*(reservation_ids or ()), *(patterns or ())}, moment
        agents.touch(agent_id, moment)


def take_away(*, reservation_id: str, reason: str | None, operator: str) -> Reservation:
    """End any reservation as an operator, and notify its holder. Raises CONTENT_TOO_LARGE, NOT_FOUND, and
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
    """Record the reservations of all projects whose lease expired, oldest first, or whose handoff is no longer claimed
    by the holder. Call it inside a transaction. The handoff may be claimed again, and reservations of others made
    meanwhile stay."""
    _record_end(_lapsed(RECORDED_AT_ONCE, moment=moment), Outcome.EXPIRED, None, moment)
    _record_end(_orphans(moment=moment), Outcome.SETTLED, None, moment)


def settle(handoff_id: str) -> None:
    """Record the reservations that ended with the claim on a handoff; they were not in force before either. Only reads
    where there are none."""
    if _orphaned.first(handoff_id=handoff_id, moment=now()) is None:
        return
    with write():
        moment = now()
        _record_end(_orphaned(handoff_id=handoff_id, moment=moment), Outcome.SETTLED, None, moment)


def renew(agent_id: str, moment: datetime) -> None:
    """Renew an agent's running leases from now on. Call it inside the transaction of the agent's act."""
    for (seconds,) in _lengths(agent_id=agent_id, moment=moment):
        until = moment + timedelta(seconds=seconds)
        due = until - timedelta(seconds=seconds) / 10  # a lease that was just renewed is not written again
        _renew(agent_id=agent_id, moment=moment, seconds=seconds, until=until, due=due)


def prolong(reservations: Iterable[Reservation], seconds: int | None, moment: datetime) -> None:
    """Renew leases from now on, without shortening any. Call it inside a transaction."""
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
    """Return the agent's reservations that a call names by id or pattern; all where it names none."""
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
    """Record the end of reservations, with one event for each holder. Call it inside a transaction."""
    _end.each({"reservation_id": row.pk, "moment": moment, "outcome": outcome} for row in reservations)
    for reservation in reservations:
        reservation.released_at, reservation.outcome = moment, outcome
    type = "expired" if outcome == Outcome.EXPIRED else "released"
    for rows in by_holder(reservations):
        emit_event(type, actor, rows, moment, outcome=outcome.value, holder=rows[0].agent_id, **more)
