"""The verbs of reservations: reserve, release, extend. One transaction each; no file has two exclusive holders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from coordination.ids import new_id
from coordination.log.emit import emit
from coordination.services import agents, workspaces
from coordination.services.workspaces import Place
from core.clock import iso, now
from core.database import write
from core.database.prepared import Select, Slot, Update, insert
from core.limits import within_limit
from core.operations.caller import OPERATOR_AGENT
from core.operations.errors import Code, NexusError, not_found
from files import selectors
from files.config import FilesSettings
from files.models import STREAM, Outcome, Reservation
from files.paths import patterns_of
from files.patterns import place as place_of
from files.selectors import Conflict
from handoffs.models import Handoff
from inbox import services as mail

NAMED = 20  # patterns that an event or a message names; more are counted

_lapsed = Select(
    lambda: Reservation.objects.unended().filter(workspace_id=Slot("workspace_id"), expires_at__lt=Slot("moment"))
)
_orphaned = Select(
    lambda: Reservation.objects.unended().filter(~selectors.claimed(Slot("moment")), handoff_id=Slot("handoff_id"))
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


@dataclass(frozen=True)
class Wish:
    """What an agent would reserve: patterns, and what holds for all of them."""

    workspace_id: str
    agent_id: str
    patterns: list[str]
    exclusive: bool
    seconds: int
    reason: str | None = None
    handoff_id: str | None = None
    task_id: int | None = None
    all_or_nothing: bool = True
    client_id: str | None = None


@dataclass(frozen=True)
class Reserved:
    """What became of a wish: what is reserved now, and what is in the way of the rest."""

    reservations: list[Reservation]
    conflicts: list[Conflict] = field(default_factory=list)
    duplicate: bool = False  # an earlier call with the same client_id reserved it
    asked: list[str] = field(default_factory=list)  # the holders that got a message


def wish(*, project_root: str, paths: Sequence[str], seconds: int | None, **rest: Any) -> tuple[Wish, Place]:
    """What a call asks for, and where. Raises WORKSPACE_UNRESOLVED, VALIDATION_ERROR, CONTENT_TOO_LARGE."""
    place = workspaces.locate(project_root)
    within_limit(rest.get("reason"), "reason")
    patterns = patterns_of(paths, project_root=project_root, place=place)
    seconds = FilesSettings.current().file_reservation_ttl_seconds if seconds is None else seconds
    return Wish(workspace_id=place.workspace_id, patterns=patterns, seconds=seconds, **rest), place


def in_the_way(wish: Wish) -> list[Conflict]:
    """What others hold of a wish now; a read."""
    return selectors.conflicts(
        workspace_id=wish.workspace_id,
        agent_id=wish.agent_id,
        wanted=wish.patterns,
        exclusive=wish.exclusive,
        moment=now(),
    )


def reserve(wish: Wish, place: Place, *, ask: bool = False) -> Reserved:
    """Reserve all of a wish, or what is free of it; what one holds in the same way already is prolonged.

    Whatever is in the way is answered, and no error. With `ask` its holders get a message, once for each reservation
    of theirs. A second call with the same client_id answers what the first one reserved.
    Raises NOT_FOUND, WORKSPACE_MISMATCH and INVALID_TRANSITION for a handoff that the agent does not hold.
    """
    if earlier := _earlier(wish):
        return earlier
    # A plain read decides: who only looks must not take the writer's lock, and what it compares is compared by then.
    conflicts = in_the_way(wish)
    if conflicts and not ask and not free(wish, conflicts):
        agents.touch_in_passing(wish.agent_id)
        return Reserved([], conflicts)
    with write():
        if earlier := _earlier(wish):
            return earlier
        moment = now()
        workspaces.ensure(place, moment)
        if wish.handoff_id is not None:
            _check_claim(wish.workspace_id, wish.handoff_id, wish.agent_id, moment)
        record_ends(wish.workspace_id, moment)
        conflicts = in_the_way(wish)
        taken = _take(wish, free(wish, conflicts), moment)
        asked = _ask(wish, conflicts, moment) if ask else []
        agents.touch(wish.agent_id, moment)
    return Reserved(taken, conflicts, asked=asked)


def free(wish: Wish, conflicts: Sequence[Conflict]) -> list[str]:
    """The patterns of a wish that can be reserved, given what is in the way."""
    if conflicts and wish.all_or_nothing:
        return []
    refused = {conflict.pattern for conflict in conflicts}
    return [pattern for pattern in wish.patterns if pattern not in refused]


def _earlier(wish: Wish) -> Reserved | None:
    """What an earlier call with the same client_id reserved; of what it did not, what is in the way now."""
    if wish.client_id is None:
        return None
    reservations = selectors.of_call(wish.agent_id, wish.client_id)
    if not reservations:
        return None
    got = {reservation.pattern for reservation in reservations}
    conflicts = [conflict for conflict in in_the_way(wish) if conflict.pattern not in got]
    return Reserved(reservations, conflicts, duplicate=True)


def _check_claim(workspace_id: str, handoff_id: str, agent_id: str, moment: datetime) -> None:
    """Raises for a handoff that the agent does not hold now: nothing could end with it."""
    handoff = Handoff.objects.filter(pk=handoff_id).first()
    if handoff is None:
        raise not_found("handoff", handoff_id)
    if handoff.workspace_id != workspace_id:
        raise workspaces.mismatch("handoff", handoff_id)
    if handoff.claimed_by != agent_id or handoff.lease_expires_at is None or handoff.lease_expires_at < moment:
        raise NexusError(
            Code.INVALID_TRANSITION,
            "You do not hold this handoff: claim it with handoff_claim, or reserve without handoff_id.",
            {"handoff_id": handoff_id},
        )


def _take(wish: Wish, patterns: list[str], moment: datetime) -> list[Reservation]:
    """Inside the transaction: reserve patterns that are free, or prolong what the agent holds of them alike."""
    until = moment + timedelta(seconds=wish.seconds)
    made, prolonged, taken = [], [], []
    for item, pattern in enumerate(patterns):
        reservation = selectors.alike(
            workspace_id=wish.workspace_id,
            agent_id=wish.agent_id,
            pattern=pattern,
            exclusive=wish.exclusive,
            handoff_id=wish.handoff_id,
            moment=moment,
        )
        if reservation is None:
            reservation = Reservation(
                reservation_id=new_id("rsv"),
                workspace_id=wish.workspace_id,
                agent_id=wish.agent_id,
                pattern=pattern,
                place=place_of(pattern),
                exclusive=wish.exclusive,
                reason=wish.reason,
                handoff_id=wish.handoff_id,
                task_id=wish.task_id,
                client_id=wish.client_id,
                item=item,
                seconds=wish.seconds,
                created_at=moment,
                expires_at=until,
            )
            made.append(reservation)
        else:
            prolonged.append(reservation)
        taken.append(reservation)
    insert(*made)
    if made:
        _tell("reserved", wish.agent_id, made, moment, exclusive=wish.exclusive, reason=wish.reason)
    _extend(prolonged, wish.seconds, moment)
    return taken


def release(
    *, project_root: str, agent_id: str, reservation_ids: Sequence[str] | None, paths: Sequence[str] | None
) -> list[Reservation]:
    """Give up reservations of one's own: those named, or all in the project; what was given up now.

    One that ended before stays as it ended, and so does a path that one does not hold just so.
    Raises WORKSPACE_UNRESOLVED, VALIDATION_ERROR, NOT_FOUND, WORKSPACE_MISMATCH, NOT_OWNER.
    """
    place = workspaces.locate(project_root)
    patterns = None if paths is None else patterns_of(paths, project_root=project_root, place=place)
    with write():
        moment = now()
        record_ends(place.workspace_id, moment)
        chosen = _chosen(place.workspace_id, agent_id, reservation_ids, patterns, moment)
        _record_end(chosen, Outcome.RELEASED, agent_id, moment)
        agents.touch(agent_id, moment)
    return chosen


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
    place = workspaces.locate(project_root)
    patterns = None if paths is None else patterns_of(paths, project_root=project_root, place=place)
    with write():
        moment = now()
        record_ends(place.workspace_id, moment)
        chosen = _chosen(place.workspace_id, agent_id, reservation_ids, patterns, moment)
        if {*(reservation_ids or ()), *(patterns or ())} - {name for row in chosen for name in (row.pk, row.pattern)}:
            raise NexusError(
                Code.INVALID_TRANSITION,
                "You hold some of these no more, and nothing was extended: reserve them again with files_reserve.",
                {"held": [reservation.reservation_id for reservation in chosen]},
            )
        _extend(chosen, seconds, moment)
        agents.touch(agent_id, moment)
    return chosen


def take_away(*, reservation_id: str, reason: str | None, operator: str) -> Reservation:
    """End any reservation, as an operator; its holder is told. Raises CONTENT_TOO_LARGE, NOT_FOUND, and
    INVALID_TRANSITION for one that ended."""
    within_limit(reason, "reason")
    with write():
        moment = now()
        reservation = Reservation.objects.filter(pk=reservation_id).first()
        if reservation is None:
            raise not_found("reservation", reservation_id)
        record_ends(reservation.workspace_id, moment)
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


def record_ends(workspace_id: str, moment: datetime) -> None:
    """Inside a transaction: record what ended in a workspace because its lease ran out."""
    lapsed = _lapsed(workspace_id=workspace_id, moment=moment)
    if lapsed:
        _record_end(lapsed, Outcome.EXPIRED, None, moment)


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


def _extend(reservations: Iterable[Reservation], seconds: int | None, moment: datetime) -> None:
    """Inside the transaction: leases run from now on, and none ends earlier than it would have."""
    extended = list(reservations)
    for reservation in extended:
        reservation.seconds = seconds or reservation.seconds
        reservation.expires_at = max(reservation.expires_at, moment + timedelta(seconds=reservation.seconds))
    _prolong.each({"reservation_id": row.pk, "seconds": row.seconds, "until": row.expires_at} for row in extended)
    for agent_id, rows in _by_agent(extended).items():
        _tell("extended", agent_id, rows, moment)


def _record_end(
    reservations: Sequence[Reservation], outcome: Outcome, actor: str | None, moment: datetime, **more: str | None
) -> None:
    """Inside the transaction: reservations ended, and the log tells of each holder's."""
    _end.each({"reservation_id": row.pk, "moment": moment, "outcome": outcome} for row in reservations)
    for reservation in reservations:
        reservation.released_at, reservation.outcome = moment, outcome
    type = "expired" if outcome == Outcome.EXPIRED else "released"
    for holder, rows in _by_agent(reservations).items():
        _tell(type, actor, rows, moment, outcome=outcome.value, **({} if actor else {"holder": holder}), **more)


def _by_agent(reservations: Iterable[Reservation]) -> dict[str, list[Reservation]]:
    grouped: dict[str, list[Reservation]] = {}
    for reservation in reservations:
        grouped.setdefault(reservation.agent_id, []).append(reservation)
    return grouped


def _tell(type: str, actor: str | None, reservations: Sequence[Reservation], moment: datetime, **more: Any) -> None:
    """Append an event about reservations of one agent in one workspace."""
    first = reservations[0]
    ends = max(reservation.expires_at for reservation in reservations)
    about = {"expires_at": iso(ends), "handoff_id": first.handoff_id, "task_id": first.task_id, **more}
    emit(
        workspace_id=first.workspace_id,
        stream=STREAM,
        type=f"file.{type}",
        actor=actor,
        payload={
            "patterns": [reservation.pattern for reservation in reservations[:NAMED]],
            "count": len(reservations),
            **{name: value for name, value in about.items() if value is not None},
        },
        moment=moment,
        handoff_id=first.handoff_id,
    )


def _ask(wish: Wish, conflicts: Sequence[Conflict], moment: datetime) -> list[str]:
    """Inside the transaction: ask the holders of what is in the way, once for each reservation; who was asked."""
    unasked = {conflict.held.pk: conflict.held for conflict in conflicts if wish.agent_id not in conflict.held.asked_by}
    asked = []
    for holder, rows in _by_agent(unasked.values()).items():
        names = ", ".join(row.pattern for row in rows[:NAMED])
        mine = ", ".join(wish.patterns[:NAMED])
        reached = mail.notify(
            workspace_id=wish.workspace_id,
            from_agent_id=wish.agent_id,
            recipient=holder,
            subject=f"{wish.agent_id} asks for files that you reserved: {names[:200]}",
            body=f"I would {'edit' if wish.exclusive else 'read'} {mine}{f': {wish.reason}' if wish.reason else '.'}"
            f"\n\nYou reserved {names}. Can you give them up, with files_release, or tell me when?",
            moment=moment,
        )
        if reached:
            asked.append(holder)
            for row in rows:
                row.asked_by = [*row.asked_by, wish.agent_id]
                row.save(update_fields=["asked_by"])
            _tell("asked", wish.agent_id, rows, moment, holder=holder)
    return asked
