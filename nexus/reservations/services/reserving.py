"""Reserving files: of two agents that want a file exclusively, one gets it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from coordination.ids import new_id
from coordination.services import agents, workspaces
from coordination.services.workspaces import ProjectDirectory
from handoffs.models import Handoff
from inbox import services as mail
from nexus.core.clock import now
from nexus.core.database.prepared import insert
from nexus.core.database.store import write
from nexus.core.limits import within_limit
from nexus.core.operations.errors import Code, NexusError, invalid, not_found
from nexus.reservations import selectors
from nexus.reservations.config import FilesSettings
from nexus.reservations.models import Reservation
from nexus.reservations.paths import patterns_of, shared_by
from nexus.reservations.patterns import extension, prefix_key
from nexus.reservations.selectors import Conflict
from nexus.reservations.services.events import NAMED, by_holder, emit_event
from nexus.reservations.services.holding import prolong, record_ends

MOST_HELD = 2_000  # of one agent in a project: each is a comparison for every other reservation


@dataclass(frozen=True)
class Wish:
    """What an agent wants to reserve: patterns, and what applies to all of them."""

    workspace_id: str
    shared_by: list[str]  # the workspaces with the same files
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
    """The result of a call: what is reserved now, and the conflicts of the rest."""

    reservations: list[Reservation]
    conflicts: list[Conflict] = field(default_factory=list)
    duplicate: bool = False  # an earlier call with the same client_id reserved it
    asked: list[str] = field(default_factory=list)  # the holders that got a message


def wish(*, project_root: str, paths: Sequence[str], seconds: int | None, **rest: Any) -> tuple[Wish, ProjectDirectory]:
    """Return what a call wants to reserve, and the project. Raises WORKSPACE_UNRESOLVED, VALIDATION_ERROR,
    CONTENT_TOO_LARGE."""
    project = workspaces.locate(project_root)
    within_limit(rest.get("reason"), "reason")
    patterns = patterns_of(paths, project_root=project_root, project=project)
    seconds = FilesSettings.current().file_reservation_ttl_seconds if seconds is None else seconds
    sharing = shared_by(project)
    return Wish(project.workspace_id, sharing, patterns=patterns, seconds=seconds, **rest), project


def in_the_way(wish: Wish, *, at_once: float = math.inf) -> list[Conflict]:
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
    wish: Wish,
    project: ProjectDirectory,
    *,
    ask: bool = False,
    recorded: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Reserved:
    """Reserve all of a wish, or the free part of it; renew what the agent holds in the same way already.

    Changes are made inside `recorded`, in a transaction. Do not call it inside one: the first comparisons may take
    long, and every writer would wait.

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
    wish: Wish, project: ProjectDirectory, ask: bool, recorded: Callable[[], AbstractContextManager[object]]
) -> Reserved:
    """Run the transaction of `reserve`. Raises Uncompared, too."""
    with write(), recorded():
        if earlier := _earlier(wish, at_once=selectors.MOST_IN_TURN):
            return earlier
        moment = now()
        workspaces.ensure(project, moment)
        if wish.handoff_id is not None:
            _check_claim(wish.workspace_id, wish.handoff_id, wish.agent_id, moment)
        record_ends(moment)
        conflicts = in_the_way(wish, at_once=selectors.MOST_IN_TURN)
        taken = _take(wish, free(wish, conflicts), moment)
        asked = _ask(wish, conflicts, moment) if ask else []
        agents.touch(wish.agent_id, moment)
    return Reserved(taken, conflicts, asked=asked)


def free(wish: Wish, conflicts: Sequence[Conflict]) -> list[str]:
    """Return the patterns of a wish without conflicts."""
    if conflicts and wish.all_or_nothing:
        return []
    refused = {conflict.pattern for conflict in conflicts}
    return [pattern for pattern in wish.patterns if pattern not in refused]


def _earlier(wish: Wish, *, at_once: float = math.inf) -> Reserved | None:
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


def _alike(wish: Wish, pattern: str, moment: datetime) -> Reservation | None:
    """Return the agent's reservation of a pattern in the way it wants."""
    return selectors.alike(
        workspace_id=wish.workspace_id,
        agent_id=wish.agent_id,
        pattern=pattern,
        exclusive=wish.exclusive,
        handoff_id=wish.handoff_id,
        moment=moment,
    )


def _check_claim(workspace_id: str, handoff_id: str, agent_id: str, moment: datetime) -> None:
    """Check that the agent holds the handoff now: a reservation could not end with it otherwise."""
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
    """Reserve free patterns, or renew the agent's same reservations. Call it inside a transaction."""
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
    if made and selectors.holds(wish.workspace_id, wish.agent_id, moment, MOST_HELD) + len(made) > MOST_HELD:
        raise invalid(
            f"You would hold more than {MOST_HELD} reservations in this project: give up some with files_release, or "
            "reserve a directory above them.",
            field="paths",
        )
    insert(*made)
    if made:
        emit_event("reserved", wish.agent_id, made, moment, exclusive=wish.exclusive, reason=wish.reason)
    prolong(prolonged, wish.seconds, moment)
    return taken


def _ask(wish: Wish, conflicts: Sequence[Conflict], moment: datetime) -> list[str]:
    """Notify the holders of conflicting reservations, once for each reservation; return those that got a message. Call
    it inside a transaction."""
    unasked = {conflict.held.pk: conflict.held for conflict in conflicts if wish.agent_id not in conflict.held.asked_by}
    asked = []
    for rows in by_holder(unasked.values()):
        holder = rows[0].agent_id
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
