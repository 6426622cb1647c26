"""Writes of reservations: reserve files exclusively or together, extend and end; by agents, operators, and time.

An agent's write has the names of the agent and of the workspaces whose reservations it reads. Only renewals change
others' rows beside it: an agent that acts elsewhere renews its leases here, too. So who ends what lapsed locks the row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple, NotRequired

from typing_extensions import TypedDict

from coordination.errors import check_claim
from coordination.ids import new_id
from coordination.log.emit import emit
from coordination.models import Event
from coordination.services import agents, workspaces
from coordination.services.workspaces import ProjectDirectory
from handoffs.models import Handoff
from inbox import services as mail
from nexus.core.clock import iso, now
from nexus.core.database.sql import insert
from nexus.core.database.store import store, write
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.core.operations.errors import Code, NexusError, invalid, not_found
from nexus.core.operations.parameters import Time
from nexus.core.size_limits import within_limit
from nexus.reservations import selectors, sql
from nexus.reservations.config import SECONDS
from nexus.reservations.models import STREAM, Reservation, ReservationOutcome, ReservationQuerySet
from nexus.reservations.paths import patterns_of, shared_by
from nexus.reservations.patterns import extension, prefix_key
from nexus.reservations.selectors import ReservationConflict

MOST_REFUSED = 20  # agents, and people, that a reservation names as refused
NAMED = 20  # patterns or files that an event or a message names; the rest is counted
MOST_WAITING = 20  # agents that a reservation names as waiting


def by_holder(reservations: Iterable[Reservation]) -> list[list[Reservation]]:
    """Group reservations by agent and workspace."""
    grouped: dict[tuple[str, str], list[Reservation]] = {}
    for reservation in reservations:
        grouped.setdefault((reservation.workspace_id, reservation.agent_id), []).append(reservation)
    return list(grouped.values())


def emit_event(
    type: str,
    actor: str | None,
    reservations: Sequence[Reservation],
    moment: datetime,
    numbered: bool = False,  # by position, because `more` has names
    /,
    **more: Any,
) -> Event:
    """Append an event about reservations of one agent in one workspace. See `emit` for `numbered`."""
    first = reservations[0]
    ends = max(reservation.expires_at for reservation in reservations)
    about = {"expires_at": iso(ends), "handoff_id": first.handoff_id, "task_id": first.task_id, **more}
    return emit(
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
        numbered=numbered,
    )


MOST_HELD = 2_000  # of one agent in a project: each is a comparison for every other reservation


@dataclass(frozen=True)
class WantedFiles:
    """What an agent wants to reserve: patterns, and what applies to all of them."""

    workspace_id: str
    shared_by: list[str]  # the workspaces with the same files
    agent_id: str
    patterns: list[str]
    exclusive: bool
    seconds: int
    reason: str | None = None
    handoff_id: str | None = None
    claim_epoch: int | None = None  # of the handoff
    task_id: int | None = None
    all_or_nothing: bool = True
    client_id: str | None = None


@dataclass(frozen=True)
class Reserved:
    """The result of a call: what is reserved now, and the conflicts of the rest."""

    reservations: list[Reservation]
    conflicts: list[ReservationConflict] = field(default_factory=list)
    duplicate: bool = False  # an earlier call with the same client_id reserved it
    asked: list[str] = field(default_factory=list)  # the holders that got a message


def wish(
    *, project_root: str, paths: Sequence[str], seconds: int | None, **rest: Any
) -> tuple[WantedFiles, ProjectDirectory]:
    """Return what a call wants to reserve, and the project. Raises WORKSPACE_UNRESOLVED, VALIDATION_ERROR,
    CONTENT_TOO_LARGE."""
    project = workspaces.locate(project_root)
    within_limit(rest.get("reason"), "reason")
    if rest.get("claim_epoch") is not None and rest.get("handoff_id") is None:
        raise invalid("claim_epoch is that of the handoff: give handoff_id, too.", field="claim_epoch")
    patterns = patterns_of(paths, project_root=project_root, project=project)
    seconds = SECONDS if seconds is None else seconds
    sharing = shared_by(project)
    return WantedFiles(project.workspace_id, sharing, patterns=patterns, seconds=seconds, **rest), project


def in_the_way(wish: WantedFiles, *, at_once: float = math.inf) -> list[ReservationConflict]:
    """Return the conflicts of a wish now; only reads. Raises as `selectors.find_conflicts` does."""
    return selectors.find_conflicts(
        workspaces=wish.shared_by,
        agent_id=wish.agent_id,
        wanted=wish.patterns,
        exclusive=wish.exclusive,
        moment=now(),
        at_once=at_once,
    )


def reserve(
    wish: WantedFiles,
    project: ProjectDirectory,
    *,
    ask: bool = False,
    recorded: Callable[[], AbstractContextManager[object]] | None = None,
) -> Reserved:
    """Reserve all of a wish, or the free part of it; renew what the agent holds in the same way already.

    Changes by an operator are made inside `recorded`, in a transaction. Do not call it inside one: the first
    comparisons may take long, and other writers would wait.

    Conflicts are returned and not raised. With `ask` their holders get a message, once for each of their
    reservations. A second call with the same client_id returns what the first one reserved. Raises NOT_FOUND,
    WORKSPACE_MISMATCH and INVALID_TRANSITION for a handoff that the agent does not hold, and VALIDATION_ERROR for a
    client_id of another wish, for more than an agent may hold and for more than an agent may compare in a minute.
    """
    while True:
        # A read decides: a call without a change must not take the writer's lock, and comparisons come before it.
        if earlier := _earlier(wish):
            return earlier
        conflicts = in_the_way(wish)
        if conflicts and not ask and not free(wish, conflicts):
            agents.touch_after_read(wish.agent_id)
            return Reserved([], conflicts)
        with suppress(selectors.Uncompared):  # others reserved much meanwhile; the caller's allowance limits this
            return _reserve(wish, project, ask, recorded)


def _reserve(
    wish: WantedFiles,
    project: ProjectDirectory,
    ask: bool,
    recorded: Callable[[], AbstractContextManager[object]] | None,
) -> Reserved:
    """Run the transaction of `reserve`. Raises Uncompared, too."""
    _record_ends_first()
    with _acting(wish.agent_id, wish.shared_by, recorded):
        if earlier := _earlier(wish, at_once=selectors.MOST_IN_TURN):
            return earlier
        moment = now()
        workspaces.ensure(project, moment)
        if wish.handoff_id is not None:
            _check_claim(wish, wish.handoff_id, moment)
        _record_ends_in(wish.shared_by, moment)
        conflicts = in_the_way(wish, at_once=selectors.MOST_IN_TURN)
        asked = _ask(wish, conflicts, moment) if ask else []
        agents.touch(wish.agent_id, moment)
        taken = _grant(wish, free(wish, conflicts), moment)
    return Reserved(taken, conflicts, asked=asked)


@contextmanager
def _acting(
    agent_id: str, workspace_ids: Sequence[str], recorded: Callable[[], AbstractContextManager[object]] | None
) -> Iterator[None]:
    """Open the transaction of an agent's act; an operator's runs alone, because its events are counted."""
    if recorded is None:
        with write(agent_id, *workspace_ids):
            yield
    else:
        with write(), recorded():
            yield


def free(wish: WantedFiles, conflicts: Sequence[ReservationConflict]) -> list[str]:
    """Return the patterns of a wish without conflicts."""
    if conflicts and wish.all_or_nothing:
        return []
    refused = {conflict.pattern for conflict in conflicts}
    return [pattern for pattern in wish.patterns if pattern not in refused]


def _earlier(wish: WantedFiles, *, at_once: float = math.inf) -> Reserved | None:
    """Return what an earlier call with the same client_id reserved, with the current conflicts of the rest.

    Raises VALIDATION_ERROR where that call wanted something else: then this one is no retry.
    """
    if wish.client_id is None:
        return None
    reservations = selectors.made_by_call(wish.agent_id, wish.client_id)
    if not reservations:
        return None
    first, got = reservations[0], {reservation.pattern for reservation in reservations}
    asked = first.workspace_id, first.exclusive, first.handoff_id
    if not got <= set(wish.patterns) or asked != (wish.workspace_id, wish.exclusive, wish.handoff_id):
        raise invalid(
            f"This client_id reserved {', '.join(sorted(got)[:NAMED])} before; nothing was reserved now. Send another "
            "wish with a client_id of its own.",
            field="client_id",
            first=first.reservation_id,
        )
    conflicts = [conflict for conflict in in_the_way(wish, at_once=at_once) if conflict.pattern not in got]
    # The agent's own earlier reservations were renewed, and do not have this client_id.
    more = [_alike(wish, pattern, now()) for pattern in wish.patterns if pattern not in got]
    return Reserved([*reservations, *filter(None, more)], conflicts, duplicate=True)


def _alike(wish: WantedFiles, pattern: str, moment: datetime) -> Reservation | None:
    """Return the agent's reservation of a pattern in the way it wants."""
    return selectors.alike(
        workspace_id=wish.workspace_id,
        agent_id=wish.agent_id,
        pattern=pattern,
        exclusive=wish.exclusive,
        handoff_id=wish.handoff_id,
        moment=moment,
    )


def _check_claim(wish: WantedFiles, handoff_id: str, moment: datetime) -> None:
    """Check that the agent holds the handoff now: a reservation could not end with it otherwise."""
    handoff = Handoff.objects.filter(pk=handoff_id).first()
    if handoff is None:
        raise not_found("handoff", handoff_id)
    if handoff.workspace_id != wish.workspace_id:
        raise workspaces.mismatch("handoff", handoff_id)
    check_claim(wish.claim_epoch, handoff.claim_epoch, "handoff")
    if handoff.claimed_by != wish.agent_id or handoff.lease_expires_at is None or handoff.lease_expires_at < moment:
        raise NexusError(
            Code.INVALID_TRANSITION,
            "You do not hold this handoff: claim it with handoff_claim, or reserve without handoff_id.",
            {"handoff_id": handoff_id},
        )


def _grant(wish: WantedFiles, patterns: list[str], moment: datetime) -> list[Reservation]:
    """Reserve free patterns, or renew the agent's same reservations. Call it last inside a transaction: after the
    numbered event, other writers' events wait for the commit."""
    until = moment + timedelta(seconds=wish.seconds)
    made, prolonged, taken = [], [], []
    for item, pattern in enumerate(patterns):
        reservation = _alike(wish, pattern, moment)
        if reservation is None:
            reservation = Reservation(
                reservation_id=new_id("rsv"),
                workspace_id=wish.workspace_id,
                agent_id=wish.agent_id,
                pattern=pattern,
                place=prefix_key(pattern),
                extension=extension(pattern),
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
    if made and selectors.holds(wish.workspace_id, wish.agent_id, moment) + len(made) > MOST_HELD:
        raise invalid(
            f"You would hold more than {MOST_HELD} reservations in this project: give up some with files_release, or "
            "reserve a directory above them.",
            field="paths",
        )
    if made:
        event = emit_event("reserved", wish.agent_id, made, moment, True, exclusive=wish.exclusive, reason=wish.reason)
        for reservation in made:
            reservation.claim_epoch = event.event_id
    with store().batch():
        insert(*made)
        prolong(prolonged, wish.seconds, moment)
    return taken


def _ask(wish: WantedFiles, conflicts: Sequence[ReservationConflict], moment: datetime) -> list[str]:
    """Notify the holders of conflicting reservations, once for each reservation; return those that got a message. Call
    it inside a transaction."""
    unasked = {conflict.held.pk: conflict.held for conflict in conflicts if wish.agent_id not in conflict.held.asked_by}
    asked = []
    for rows in by_holder(unasked.values()):
        holder = rows[0].agent_id
        rows.sort(key=lambda row: row.pk)  # the order in which others lock them
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
            emit_event("asked", wish.agent_id, rows, moment, holder=holder)
    return asked


def note_waiter(agent_id: str, workspace_ids: Sequence[str], reservation_ids: Sequence[str], seconds: float) -> None:
    """Show on reservations of these workspaces that an agent waits for them: until then at most, also if it stops
    waiting earlier."""
    moment = now().timestamp()
    with write(*workspace_ids):
        rows = Reservation.objects.unended().select_for_update().filter(pk__in=reservation_ids)
        for row in rows.order_by("pk"):
            others = [wait for wait in row.waits if wait["until"] > moment and wait["agent_id"] != agent_id]
            row.waits = [*others[: MOST_WAITING - 1], {"agent_id": agent_id, "until": moment + seconds}]
            row.save(update_fields=["waits"])


RECORDED_AT_ONCE = 200  # expired reservations: a call must not pay for a year of them

RENEWED_UPTO = timedelta(minutes=1)  # after it lapsed, by a transaction that began before


class Released(NamedTuple):
    """The released reservations, and the agent's other reservations that still cover the named paths."""

    reservations: list[Reservation]
    still_held: list[selectors.ReservationConflict] | None  # None: too much to compare


def release(
    *,
    project_root: str,
    agent_id: str,
    reservation_ids: Sequence[str] | None,
    paths: Sequence[str] | None,
    claim_epoch: int | None = None,
    recorded: Callable[[], AbstractContextManager[object]] | None = None,
) -> Released:
    """Release the agent's own reservations: those named, or all in the project.

    One that has already ended stays as it is, and so does one that covers more than a named path. `claim_epoch` is that
    of the caller's latest reservation: later ones are another's, who acts under the same id.
    An operator's change is made inside `recorded`, in a transaction.
    Raises WORKSPACE_UNRESOLVED, VALIDATION_ERROR, NOT_FOUND, WORKSPACE_MISMATCH, NOT_OWNER, and STALE_CLAIM where it
    names a later one.
    """
    with _own(project_root, agent_id, reservation_ids, paths, claim_epoch, recorded) as (chosen, named, moment):
        _record_end(chosen, ReservationOutcome.RELEASED, agent_id, moment)
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
    claim_epoch: int | None = None,
) -> list[Reservation]:
    """Extend the agent's own leases to `seconds` from now, or to each one's original length; those named, or all in the
    project.

    Raises as `release` does, and INVALID_TRANSITION for one that ended; none is extended then.
    """
    with _own(project_root, agent_id, reservation_ids, paths, claim_epoch) as (chosen, named, moment):
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
    project_root: str,
    agent_id: str,
    reservation_ids: Sequence[str] | None,
    paths: Sequence[str] | None,
    claim_epoch: int | None,
    recorded: Callable[[], AbstractContextManager[object]] | None = None,
) -> Iterator[tuple[list[Reservation], set[str], datetime]]:
    """Open the transaction of an agent's act on its own reservations; yield those chosen, what the call named, and the
    moment."""
    project = workspaces.locate(project_root)
    patterns = None if paths is None else patterns_of(paths, project_root=project_root, project=project)
    _record_ends_first()
    with _acting(agent_id, [project.workspace_id], recorded):
        moment = now()
        _record_ends_in([project.workspace_id], moment)
        chosen = _select(project.workspace_id, agent_id, reservation_ids, patterns, moment)
        named = {*(reservation_ids or ()), *(patterns or ())}
        if claim_epoch is not None:
            if named:
                check_claim(claim_epoch, max([claim_epoch, *(row.claim_epoch for row in chosen)]), "reservation")
            chosen = [row for row in chosen if row.claim_epoch <= claim_epoch]
        yield chosen, named, moment
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
        _record_end([reservation], ReservationOutcome.RELEASED, None, moment, operator=operator, why=reason)
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
    lapsed = Reservation.objects.unended().filter(expires_at__lt=moment).order_by("expires_at")
    _record_end(lapsed[:RECORDED_AT_ONCE], ReservationOutcome.EXPIRED, None, moment)
    _record_end(_orphans(moment), ReservationOutcome.SETTLED, None, moment)


def _orphans(moment: datetime) -> ReservationQuerySet:
    """Return the reservations whose lease runs and whose handoff is no longer claimed by the holder."""
    return Reservation.objects.running(moment).filter(~selectors.kept_for(moment), handoff_id__isnull=False)


def _record_ends_first() -> None:
    """Run `record_ends` before the transaction of an act, alone. A plain read decides first."""
    if sql.lapsed(moment=now()):
        with write():
            record_ends(now())


def _record_ends_in(workspace_ids: Sequence[str], moment: datetime) -> None:
    """Record what ended in workspaces just now. Call it inside a transaction that has their names. What is left unended
    cannot be renewed by one that began while its lease ran."""
    for workspace_id in selectors.in_use(workspace_ids):
        since = moment - RENEWED_UPTO
        if not sql.ended(workspace_id=workspace_id, since=since, moment=moment)[0][0]:
            continue
        # It waits for whoever renews one of them, and leaves out what was renewed.
        rows = Reservation.objects.unended().filter(workspace_id=workspace_id).select_for_update().order_by("pk")
        lapsed = rows.filter(expires_at__gte=since, expires_at__lt=moment)
        _record_end(lapsed, ReservationOutcome.EXPIRED, None, moment)
        _record_end(_orphans(moment).filter(workspace_id=workspace_id), ReservationOutcome.SETTLED, None, moment)


def settle_reservations(handoff_id: str) -> None:
    """Record the reservations that ended with a claim on a handoff; they were not in force before either. Only reads
    where there are none."""
    orphan = sql.orphaned.first(handoff_id=handoff_id, moment=now())
    if orphan is None:
        return
    with write(orphan.workspace_id):  # the handoff's, too
        moment = now()
        _record_end(sql.orphaned(handoff_id=handoff_id, moment=moment), ReservationOutcome.SETTLED, None, moment)


def renew(agent_id: str, moment: datetime) -> None:
    """Renew an agent's running leases from now on. Call it inside the transaction of the agent's act."""
    for (seconds,) in sql.lengths(agent_id=agent_id, moment=moment):
        until = moment + timedelta(seconds=seconds)
        due = until - timedelta(seconds=seconds) / 10  # a lease that was just renewed is not written again
        sql.renew(agent_id=agent_id, moment=moment, seconds=seconds, until=until, due=due)


def prolong(reservations: Iterable[Reservation], seconds: int | None, moment: datetime) -> None:
    """Renew leases from now on, without shortening any. Call it inside a transaction."""
    extended = list(reservations)
    for reservation in extended:
        reservation.seconds = seconds or reservation.seconds
        reservation.expires_at = max(reservation.expires_at, moment + timedelta(seconds=reservation.seconds))
    sql.prolong.each({"reservation_id": row.pk, "seconds": row.seconds, "until": row.expires_at} for row in extended)
    for rows in by_holder(extended):
        emit_event("extended", rows[0].agent_id, rows, moment)


def _select(
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
    ended: Iterable[Reservation],
    outcome: ReservationOutcome,
    actor: str | None,
    moment: datetime,
    **more: str | None,
) -> None:
    """Record the end of reservations, with one event for each holder. Call it inside a transaction."""
    reservations = list(ended)
    sql.end.each({"reservation_id": row.pk, "moment": moment, "outcome": outcome.value} for row in reservations)
    for reservation in reservations:
        reservation.released_at, reservation.outcome = moment, outcome
    type = "expired" if outcome == ReservationOutcome.EXPIRED else "released"
    for rows in by_holder(reservations):
        emit_event(type, actor, rows, moment, outcome=outcome.value, holder=rows[0].agent_id, **more)


class Refusal(TypedDict):
    """The first commit or push of an agent, or of a person, that the guard refused for a reservation; `passed`: the
    first that was made past the guard."""

    agent_id: str | None
    verb: str
    at: Time
    dismissed: NotRequired[bool]
    passed: NotRequired[bool]


def record_refusal(
    *,
    reservation_ids: Sequence[str],
    paths: Sequence[str],
    verb: str,
    agent_id: str | None,
    passed: bool = False,
    operator: str,
) -> list[Reservation]:
    """Record that the guard refused a commit or a push for what agents hold, or that one was made past it: once for
    each reservation and agent, so that one that tries again and again writes nothing. Return the reservations for which
    it is new."""
    with write():
        moment = now()
        rows = Reservation.objects.unended().select_for_update().filter(pk__in=reservation_ids).order_by("pk")
        new = [
            row
            for row in rows
            if len(row.refused) < MOST_REFUSED
            and all((each["agent_id"], each.get("passed", False)) != (agent_id, passed) for each in row.refused)
        ]
        for row in new:
            refusal: Refusal = {"agent_id": agent_id, "verb": verb, "at": iso(moment)}
            if passed:
                refusal["passed"] = True
            row.refused = [*row.refused, refusal]
            row.save(update_fields=["refused"])
        for these in by_holder(new):
            by = {} if agent_id else {"operator": operator}
            emit_event(
                "passed" if passed else "refused",
                agent_id,
                these,
                moment,
                holder=these[0].agent_id,
                verb=verb,
                paths=list(paths[:NAMED]),
                **by,
            )
    return new


def dismiss_refusals(*, reservation_id: str, operator: str) -> Reservation:
    """Record that an operator knows whom the guard refused for a reservation. Raises NOT_FOUND where nobody is left."""
    with write():
        moment = now()
        reservation = Reservation.objects.select_for_update().filter(pk=reservation_id).first()
        if reservation is None:
            raise not_found("reservation", reservation_id)
        if all(each.get("dismissed") for each in reservation.refused):
            raise NexusError(
                Code.NOT_FOUND, "No refusal for this reservation is left.", {"reservation_id": reservation_id}
            )
        reservation.refused = [{**each, "dismissed": True} for each in reservation.refused]
        reservation.save(update_fields=["refused"])
        emit_event("refusals_dismissed", None, [reservation], moment, operator=operator)
    return reservation


def record_override(
    *, reservation_ids: Sequence[str], paths: Sequence[str], verb: str, reason: str, operator: str
) -> list[str]:
    """Record a commit or a push of files that agents hold, and notify these agents; return them.

    Raises NOT_FOUND and CONTENT_TOO_LARGE.
    """
    within_limit(reason, "reason")
    names = ", ".join(paths[:NAMED]) + (f" and {len(paths) - NAMED} more" if len(paths) > NAMED else "")
    with write():
        moment = now()
        known = Reservation.objects.in_bulk(list(reservation_ids))
        for reservation_id in reservation_ids:
            if reservation_id not in known:
                raise not_found("reservation", reservation_id)
        holders = sorted({(row.workspace_id, row.agent_id, row.handoff_id or "") for row in known.values()})
        for workspace_id, holder, handoff_id in holders:
            emit(
                workspace_id=workspace_id,
                stream=STREAM,
                type="file.overridden",
                actor=None,
                payload={
                    "operator": operator,
                    "verb": verb,
                    "reason": reason,
                    "holder": holder,
                    "paths": list(paths[:NAMED]),
                    "count": len(paths),
                },
                moment=moment,
                handoff_id=handoff_id or None,
            )
        for workspace_id, holder in dict.fromkeys(each[:2] for each in holders):
            mail.notify(
                workspace_id=workspace_id,
                from_agent_id=OPERATOR_AGENT,
                recipient=holder,
                subject=f"A {verb} overrode your reservation",
                body=f"{operator} gave this reason: {reason}\n\nSome of these files are yours: {names}",
                moment=moment,
            )
    return list(dict.fromkeys(holder for _, holder, _ in holders))
