"""Turns: queued as an intent, started by one worker, settled once."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Exists, Min, OuterRef, Q, Subquery
from django.db.models.functions import Coalesce
from django.dispatch import Signal

from coordination.ids import new_id
from coordination.services import keys, roster
from nexus.control import faults
from nexus.control.agents import outages, questions, transcript, wake_kinds
from nexus.control.errors import ControlCode
from nexus.control.events import emit_turn_event
from nexus.control.faults import Fault
from nexus.control.models import (
    HUB,
    IN_VAIN,
    OVER,
    Budget,
    Cause,
    Entry,
    Incarnation,
    Machine,
    PoolAgent,
    Role,
    Turn,
    TurnStatus,
    Wake,
)
from nexus.control.permissions import budgets
from nexus.control.permissions.members import Actor, check_authority, check_not_disabled, check_tool, find, get, refused
from nexus.control.permissions.prices import Cost
from nexus.control.permissions.rules import DEEPEST, reserve
from nexus.control.runners_file import runners
from nexus.core.clock import iso, now
from nexus.core.database.store import write
from nexus.core.operations.errors import Code, NexusError, invalid, not_found
from nexus.core.size_limits import within_limit

log = logging.getLogger(__name__)

_named_so = PoolAgent.objects.filter(agent_id=OuterRef("source_agent_id")).order_by("-pool_agent_id")
_top_name = Coalesce(*(f"{'parent__' * level}agent_id" for level in range(DEEPEST, -1, -1)))
_top_of_sender = Coalesce(Subquery(_named_so.values_list(_top_name)[:1]), "source_agent_id")
_firsts = Turn.objects.queued().values("agent").annotate(first=Min("pk")).values("first")
_taken_of = Turn.objects.filter(agent=OuterRef("agent"), status=TurnStatus.RUNNING)
_USAGE = ("input_tokens", "output_tokens", "cached_tokens", "cost", "currency", "cost_source")
_ENDED = ("status", "answer", "why", "cause", "needs_person_since", "ended_at", "iterations", "halted", *_USAGE)
_PUT_BACK = ("status", "due_at", "put_back", "why", *_USAGE)

LARGEST_MESSAGE = 1_048_576  # bytes: as much as a request of JSON-RPC holds
QUEUE = 100  # turns that wait for one agent
ENDS = frozenset(f"turn.{status}" for status in OVER)
queued = Signal()  # sent in this process with a new `turn`, inside the transaction that stores it


@dataclass(frozen=True)
class Closing:
    """The last entry of a turn: the agent's final words."""

    content: str
    meta: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Ended:
    """The end of a turn, as its runner reports it."""

    status: TurnStatus
    answer: str | None = None
    why: str | None = None
    iterations: int = 0
    halted: bool = False
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int | None = None  # of the input; None: the runner does not know
    cost: Cost | None = None
    closing: Closing | None = None
    cause: Cause | None = None  # of a failure
    fault: Fault | None = None  # of the provider, which caused a failure
    has_written: bool = False  # the runner knows that it changed something; else the transcript tells


def send(
    actor: Actor,
    agent_id: str,
    *,
    content: str,
    request_id: str | None,
    source: str,
    source_agent_id: str | None = None,
    waits: float = 0,
) -> Turn:
    """Queue a message to an agent. The same request_id with the same content is the same turn, whatever its state.

    `source_agent_id` is the sender that an operator names; an agent sends as itself. The sender `waits` so many seconds
    for the answer.

    Raises NOT_FOUND; NOT_PERMITTED for a sender that is not above the agent, for another's name, and in a loop;
    CONTENT_TOO_LARGE; VALIDATION_ERROR for a request_id that named another message; POOL_FULL.
    """
    within_limit(content, "content", LARGEST_MESSAGE)
    if actor.agent is not None and source_agent_id not in (None, actor.agent.agent_id):
        raise refused("identity", f"{actor.name!r} sends as itself; leave source_agent_id out.")
    moment = now()
    with write():
        agent = get(agent_id)
        _check_may_send(actor, agent, moment)
        return queue(
            actor,
            agent,
            content=content,
            request_id=request_id,
            source=source,
            source_agent_id=source_agent_id,
            moment=moment,
            waits=waits,
        )


def _check_may_send(actor: Actor, agent: PoolAgent, moment: datetime) -> None:
    check_authority(actor, agent, "send to")
    check_tool(actor, "send")
    if actor.agent is not None and wake_kinds.is_loop(actor.agent.agent_id, moment):
        raise refused("loop", f"{wake_kinds.LONGEST_LINE} turns sent one another in a row, this one last; end with it.")


def queue(
    actor: Actor,
    agent: PoolAgent,
    *,
    content: str,
    request_id: str | None,
    source: str,
    moment: datetime,
    source_agent_id: str | None = None,
    retry_of: Turn | None = None,
    waits: float = 0,
) -> Turn:
    """Store a turn to be started; a retry of a woken turn handles the same items. Call it inside a transaction. Raises
    the same errors as `send`."""
    awaited_until = moment + timedelta(seconds=waits) if waits else None
    known = None if request_id is None else Turn.objects.filter(agent=agent, request_id=request_id).first()
    if known is not None:
        if known.content != content:
            raise invalid(f"request_id {request_id!r} names another message to this agent.", field="request_id")
        if awaited_until is not None and not known.is_awaited(awaited_until):
            Turn.objects.open().filter(pk=known.pk).update(awaited_until=awaited_until)
        return known
    if Turn.objects.open().filter(agent=agent).count() >= QUEUE - (0 if actor.is_operator else reserve(QUEUE)):
        raise NexusError(ControlCode.POOL_FULL, f"As many turns wait for {agent.agent_id!r} as may: {QUEUE}.")
    turn = Turn(
        turn_id=new_id("turn"),
        agent=agent,
        request_id=request_id or secrets.token_hex(4),
        content=content,
        source=source,
        source_agent_id=actor.agent.agent_id if actor.agent else source_agent_id,
        retry_of=retry_of.pk if retry_of else None,
        depth=retry_of.depth if retry_of else 0,
        queued_at=moment,
        awaited_until=awaited_until,
    )
    woke = retry_of.wakes.order_by("wake_id") if turn.depth and retry_of else ()
    wakes = [Wake(turn=turn, kind=wake.kind, item=wake.item, sender=wake.sender) for wake in woke]
    return queue_turn(turn, actor.name, wakes)


def nobody_waits(agent_id: str, request_id: str) -> None:
    """Record that nobody waits for a turn any more: if its provider fails, the turn is started again."""
    with write():
        open_ones = Turn.objects.open().filter(agent__agent_id=agent_id, request_id=request_id)
        open_ones.update(awaited_until=None)


def queue_turn(turn: Turn, by: str | None, wakes: Sequence[Wake] = ()) -> Turn:
    """Store a new turn, with what woke its agent. Call it inside a transaction; a worker in this process may start the
    turn in it."""
    turn.status = TurnStatus.QUEUED
    turn.save(force_insert=True)
    Wake.objects.bulk_create(wakes)
    emit_turn_event("turn.queued", by, turn, turn.queued_at, source=turn.source)
    queued.send(Turn, turn=turn)
    return turn


def cancel(actor: Actor, agent_id: str, request_id: str) -> Turn | None:
    """Request the end of a turn; None if there is none that is open.

    A queued turn ends at once; a running one ends as soon as its worker reads the request. Raises NOT_FOUND for an
    unknown agent, NOT_PERMITTED.
    """
    moment = now()
    with write():
        agent = get(agent_id)
        check_authority(actor, agent, "cancel turns of")
        check_not_disabled(actor, "cancel")
        turn = Turn.objects.open().select_related("agent").filter(agent=agent, request_id=request_id).first()
        if turn is not None:
            _cancel(turn, actor.name, moment)
    return turn


def retry(actor: Actor, turn_id: str, *, content: str | None = None) -> Turn:
    """Queue the message of a turn that ended in vain once more, or `content` in its place; a stuck one is cancelled
    first. While such a retry is open, return that one.

    Raises NOT_FOUND; NOT_PERMITTED as `send` does; CONTENT_TOO_LARGE; POOL_FULL; INVALID_TRANSITION for a turn that is
    open or done, or that is being retried with another message, and if its agent has ended.
    """
    if content is not None:
        within_limit(content, "content", LARGEST_MESSAGE)
    moment = now()
    with write():
        turn = _locked(turn_id)
        _check_may_send(actor, turn.agent, moment)
        if why := why_no_retry(turn):
            raise _unfit(turn, why)
        content = turn.content if content is None else content
        known = Turn.objects.open().select_related("agent").filter(agent=turn.agent, retry_of=turn.pk).first()
        if known is not None:
            if known.content != content:
                raise _unfit(turn, "it is being retried with another message; cancel that first")
            return known
        again = queue(actor, turn.agent, content=content, request_id=None, source="retry", moment=moment, retry_of=turn)
        if turn.ended_at is None:
            _cancel(turn, actor.name, moment)
        _attend(turn)
        emit_turn_event("turn.retried", actor.name, turn, moment, retry=again.pk)
    return again


def why_no_retry(turn: Turn) -> str:
    """Return why a turn cannot be retried; empty if it can."""
    if turn.ended_at is None and turn.cause != Cause.STUCK:
        return "it has not ended"
    if turn.status == TurnStatus.DONE:
        return "send its agent another message"
    return "its agent has ended" if turn.agent.ended_at is not None else ""


def dismiss(turn_id: str, by: str) -> Turn:
    """End the need for a person of a turn that failed or is stuck. Raises NOT_FOUND, and INVALID_TRANSITION for one
    that needs nobody."""
    moment = now()
    with write():
        turn = _locked(turn_id)
        if turn.needs_person_since is None:
            raise _unfit(turn, "it needs nobody")
        _attend(turn)
        emit_turn_event("turn.dismissed", by, turn, moment)
    return turn


def cancel_run(turn_id: str, by: str) -> Turn:
    """Request the end of a turn, as `cancel` does. Raises NOT_FOUND, and INVALID_TRANSITION for one that has ended."""
    moment = now()
    with write():
        turn = _locked(turn_id)
        if turn.ended_at is not None:
            raise _unfit(turn, "it has ended")
        _cancel(turn, by, moment)
        _attend(turn)
    return turn


def why_silent(turn: Turn, seconds: int) -> str:
    """Return why nothing has come of a running turn for so long."""
    question = turn.questions.open().order_by("question_id").first()
    what = f"nobody has answered its question, {question.title!r}," if question else "no update"
    return f"{what} for {seconds} second{'s' * (seconds != 1)}"


def report_stuck(taken: Turn, why: str) -> None:
    """Record that a running turn is stuck. The first reason stays until it goes on."""
    moment = now()
    with write():
        turn = running(taken)
        if turn is None or turn.cause is not None or turn.cancel_requested_at is not None:
            return
        turn.cause, turn.why, turn.needs_person_since = Cause.STUCK, why, moment
        turn.save(update_fields=["cause", "why", "needs_person_since"])
        emit_turn_event("turn.stuck", turn.agent.agent_id, turn, moment, why=why[:200])


def goes_on(taken: Turn, why: str) -> None:
    """Record that a turn goes on that was stuck for this reason."""
    with write():
        turn = running(taken)
        if turn is not None and (turn.cause, turn.why) == (Cause.STUCK, why):
            _attend(turn)
            emit_turn_event("turn.goes_on", turn.agent.agent_id, turn, now())


def _locked(turn_id: str) -> Turn:
    """Return a turn that no other transaction changes meanwhile. Raises NOT_FOUND."""
    turn = Turn.objects.select_for_update(of=("self",)).select_related("agent").filter(pk=turn_id).first()
    if turn is None:
        raise not_found("run", turn_id[:200])
    return turn


def _attend(turn: Turn) -> None:
    """End the need for a person. What runs is no longer stuck."""
    turn.needs_person_since = None
    if turn.ended_at is None:
        turn.cause = turn.why = None
    turn.save(update_fields=["needs_person_since", "cause", "why"])


def _unfit(turn: Turn, why: str) -> NexusError:
    outcome = turn.outcome.value
    return NexusError(Code.INVALID_TRANSITION, f"This run is {outcome}: {why}.", {"outcome": outcome})


def cancel_all(agent: PoolAgent, by: str | None, moment: datetime) -> None:
    """Request the end of all turns of an agent. Call it inside a transaction."""
    for turn in Turn.objects.open().select_related("agent").filter(agent=agent):
        _cancel(turn, by, moment)


def _cancel(turn: Turn, by: str | None, moment: datetime) -> None:
    if turn.status == TurnStatus.QUEUED:
        _settle(turn, Ended(TurnStatus.CANCELLED), moment)
    elif turn.cancel_requested_at is None:
        turn.cancel_requested_at = moment
        turn.save(update_fields=["cancel_requested_at"])
        emit_turn_event("turn.cancel_asked", by, turn, moment)


def queued_turns(ways: Mapping[str, str | None] | None = None, machine: str = HUB) -> list[tuple[str, str, str | None]]:
    """Return the oldest queued turn of each agent of a machine, unless it is due later or its runner is out; then the
    oldest that somebody waits for. A row has its id, the pool_agent_id, and the name of the agent at the top of the
    family that sent it, None for operators. `ways` are those of `outages`, if they are known."""
    moment = now()
    ways = outages.ways(moment) if ways is None else ways
    found: dict[str, tuple[str, str, str | None]] = {}  # by agent
    first = (Q(due_at=None) | Q(due_at__lte=moment)) & Q(pk__in=_firsts)
    awaited = Q(pk__in=_firsts.filter(awaited_until__gt=moment))
    waiting = Turn.objects.filter(first | awaited, agent__machine=machine).order_by("pk")
    columns = ("pk", "agent_id", _top_of_sender, "agent__runner", "awaited_until")
    for turn, agent, family, runner, awaited_until in waiting.values_list(*columns):
        if ways.get(runner, runner) is not None or (awaited_until is not None and awaited_until > moment):
            found.setdefault(agent, (turn, agent, family))
    return list(found.values())


def sent_by_agents() -> list[tuple[str, str | None]]:
    """Return the open turns that agents sent: the pool_agent_id of each, and the sender."""
    sent = Turn.objects.open().filter(source_agent_id__isnull=False, depth=0)
    return list(sent.order_by().values_list("agent_id", "source_agent_id"))


def is_working(own: Incarnation) -> bool:
    """Return whether an incarnation of a machine is not over."""
    return Machine.objects.working().filter(pk=own.machine, epoch=own.epoch).exists()


def claim(
    turn_id: str,
    stored: Turn | None = None,
    ways: Mapping[str, str | None] | None = None,
    own: Incarnation | None = None,
) -> Turn | None:
    """Start a queued turn of an agent that has no running one; None if that is no longer so, and if a budget is
    spent: then all turns that wait for the agent end.

    `own` is the machine that runs it: None if the agent is another machine's, and if this incarnation is over.
    `stored` is the turn if the same transaction has stored it, and `ways` are those of `outages` that it has read: they
    need not be read, and the transaction needs no savepoint.
    """
    moment = now()
    with write() if stored is None else nullcontext():
        if stored is None and own is not None and not is_working(own):  # another has the machine, or it counts as lost
            return None
        turn = stored or _claimable(turn_id)
        if turn is None or (own is not None and turn.agent.machine != own.machine):
            return None
        usual = turn.agent.runner
        ways = outages.ways(moment) if ways is None else ways
        way = ways.get(usual, usual)
        if way is None and turn.is_awaited(moment):  # who waits learns at once whether the provider still fails
            way = usual
        if way is None:
            return None
        if turn.put_back and turn.runner is None:  # it failed there
            way = outages.stand_in(usual, ways) or way
        if (spent := budgets.count_run(turn.agent, moment, again=turn.put_back > 0)) is not None:
            _end_waiting(turn.agent, spent, moment)
            return None
        turn.status, turn.started_at, turn.runner = TurnStatus.RUNNING, moment, None if way == usual else way
        turn.epoch = 0 if own is None else own.epoch
        turn.save(update_fields=["status", "started_at", "runner", "epoch"])
        meta: dict[str, Any] = {
            "source": turn.source,
            "source_agent_id": turn.source_agent_id,
            "request_id": turn.request_id,
        }
        if turn.runner is not None:
            meta[transcript.RUNNER] = turn.runner
        if turn.depth:
            meta["woken_by"] = list(turn.wakes.order_by("wake_id").values("kind", "item", "sender"))
        if not turn.put_back or _has_said(turn):
            transcript.append(turn.agent, turn, Role.USER, turn.content, moment=moment, meta=meta)
        emit_turn_event("turn.started", turn.agent.agent_id, turn, moment)
    return turn


def _claimable(turn_id: str) -> Turn | None:
    """Return a queued turn of an agent that has no running one; what another transaction changes is not waited for."""
    rows = Turn.objects.select_for_update(of=("self",), skip_locked=True).select_related("agent")
    return rows.filter(~Exists(_taken_of), pk=turn_id, status=TurnStatus.QUEUED).first()


def _has_said(turn: Turn) -> bool:
    """Return whether the transcript does not end with the turn's message: it was started before, and did something."""
    last = Entry.objects.filter(agent=turn.agent).order_by("-position").values_list("turn_id", "role").first()
    return last != (turn.pk, Role.USER)


def _end_waiting(agent: PoolAgent, spent: Budget, moment: datetime) -> None:
    why = f"out of budget: the limit is {spent}; raise or remove the budget, then retry"
    for turn in Turn.objects.queued().select_related("agent").filter(agent=agent):
        _settle(turn, Ended(TurnStatus.FAILED, why=why, cause=Cause.OUT_OF_BUDGET), moment)


def running(taken: Turn) -> Turn | None:
    """Return a turn with its agent, as it is now; None if it is no longer running, or another incarnation of its
    machine runs it."""
    running_ones = Turn.objects.select_related("agent").filter(status=TurnStatus.RUNNING, epoch=taken.epoch)
    return running_ones.filter(pk=taken.pk).first()


def cancel_asked() -> list[str]:
    """Return the ids of running turns whose end was requested."""
    asked = Turn.objects.filter(status=TurnStatus.RUNNING, cancel_requested_at__isnull=False)
    return list(asked.values_list("pk", flat=True))


def settle_turn(turn: Turn, ended: Ended) -> bool:
    """Store the end of a running turn, with its last entry; False if it had ended already.

    A turn that a fault of its provider ended is put back instead, to be started again later, unless it may have changed
    files.
    """
    moment = now()
    with write():
        current = running(turn)
        if current is None:
            return False
        if (said := ended.closing) is not None:
            transcript.append(
                current.agent, current, Role.ASSISTANT, said.content, moment=moment, meta=said.meta, announce=True
            )
        if current.agent.ended_at is not None:  # it was cancelled with its agent, even if it has an answer
            ended = replace(ended, status=TurnStatus.CANCELLED)
        if ended.status == TurnStatus.FAILED and ended.fault is not None and current.cancel_requested_at is None:
            ended = _after_fault(current, ended, ended.fault, moment)
        elif ended.status == TurnStatus.DONE:
            outages.note_success(current.runner or current.agent.runner, moment)
        if ended.status == TurnStatus.QUEUED:
            return True
        _settle(current, ended, moment)
    return True


def _after_fault(turn: Turn, ended: Ended, fault: Fault, moment: datetime) -> Ended:
    """Put a turn back that a fault of its provider ended, if it may be started again; else return its end."""
    runner = runners().by_name.get(turn.runner or turn.agent.runner)
    if runner is None:
        return ended
    outages.note_fault(runner, fault, ended.why or "", turn, moment)
    if ended.has_written or transcript.may_have_changed_files(turn):
        why = "it may have changed files, so a person decides whether it is started again"
        return replace(ended, why=f"{ended.why}; {why}")
    if fault.kind in faults.PASSING and turn.put_back >= runner.run_retries:
        return replace(ended, why=f"{ended.why}; it was started {turn.put_back + 1} times") if turn.put_back else ended
    has_stand_in = turn.runner is None and outages.stand_in(runner.name, outages.ways(moment)) is not None
    if turn.is_awaited(moment) and not has_stand_in:
        return ended
    turn.status, turn.put_back, turn.why = TurnStatus.QUEUED, turn.put_back + 1, ended.why
    wait = timedelta(seconds=faults.seconds_to_wait(fault, turn.put_back))
    turn.due_at = None if has_stand_in else moment + wait
    _add_usage(turn, ended)
    turn.save(update_fields=_PUT_BACK)
    questions.withdraw_of(turn, moment)
    _rest(turn.agent, ended.iterations, halted=False, moment=moment)
    due_at = iso(turn.due_at) if turn.due_at else None
    payload = {"why": (ended.why or "")[:200], "fault": fault.kind.value, "due_at": due_at}
    emit_turn_event("turn.put_back", turn.agent.agent_id, turn, moment, **payload)
    return replace(ended, status=TurnStatus.QUEUED)


def interrupt(why: str, own: Incarnation, among: Collection[str] | None = None, but: Collection[str] = ()) -> int:
    """End running turns of a machine that no worker runs any more (only those in `among`, if given), but none of a
    later incarnation; return how many."""
    moment = now()
    with write():
        taken = Turn.objects.filter(status=TurnStatus.RUNNING, agent__machine=own.machine, epoch__lte=own.epoch)
        taken = taken.exclude(pk__in=but).select_related("agent")
        left = list(taken if among is None else taken.filter(pk__in=among))
        for turn in left:
            keys.revoke_all_lent(agent_id=turn.agent.agent_id)  # its process had a key for this turn
            asked = turn.cancel_requested_at is not None
            _settle(turn, Ended(TurnStatus.CANCELLED if asked else TurnStatus.INTERRUPTED, why=why), moment)
    return len(left)


def _rest(agent: PoolAgent, iterations: int, *, halted: bool, moment: datetime) -> None:
    """Record how an agent's last run went."""
    PoolAgent.objects.filter(pk=agent.pk).update(last_iterations=iterations, halted=halted, last_action_at=moment)


def _add_usage(turn: Turn, ended: Ended) -> None:
    """Add what a run took since it was last started; what is unknown adds nothing."""
    turn.input_tokens += ended.input_tokens
    turn.output_tokens += ended.output_tokens
    if ended.cached_tokens is not None:
        turn.cached_tokens = (turn.cached_tokens or 0) + ended.cached_tokens
    if (cost := ended.cost) is not None:
        before = turn.cost if turn.currency == cost.currency else None
        turn.cost, turn.currency, turn.cost_source = (before or 0) + cost.millionths, cost.currency, cost.source


def _settle(turn: Turn, ended: Ended, moment: datetime) -> None:
    turn.status, turn.answer, turn.why, turn.ended_at = ended.status, ended.answer, ended.why, moment
    turn.cause, turn.iterations, turn.halted = ended.cause, ended.iterations, ended.halted
    turn.needs_person_since = moment if ended.status in IN_VAIN else None
    _add_usage(turn, ended)
    turn.save(update_fields=_ENDED)
    questions.withdraw_of(turn, moment)
    agent = turn.agent
    if turn.started_at is not None:
        budgets.count_spent(turn, moment)
        _rest(agent, ended.iterations, halted=ended.halted, moment=moment)
    if turn.depth:
        wake_kinds.settle_mail(turn)
    if agent.ended_at is not None and find(agent.agent_id) is None:  # its turn may have made it present again
        roster.leave(agent_id=agent.agent_id, moment=moment)
    payload = {"why": ended.why[:200]} if ended.why else {}
    emit_turn_event(f"turn.{ended.status}", agent.agent_id, turn, moment, **payload)
    if ended.status in IN_VAIN:
        transaction.on_commit(partial(log.warning, "A turn of %r %s: %s.", agent.agent_id, ended.status, ended.why))
