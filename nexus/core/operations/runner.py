"""The runner of operations: every transport passes the arguments of a call to it, and gets an outcome.

It works in this order: fill in what the connection said of itself, validate strictly, check the caller's identity
against the acting agent, check the operation's guards, call it with a bounded retry while the database is busy. It
never passes on an exception or the text of a library.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from django.db import DatabaseError, connection

from nexus.core import waiting
from nexus.core.cancellation import Left
from nexus.core.config import CoreSettings
from nexus.core.database.store import commits, in_one_transaction, marked, store, unless_busy, write
from nexus.core.database.store_file import moved
from nexus.core.domain import domain
from nexus.core.operations.caller import Caller, Repeated, Request
from nexus.core.operations.errors import Code, NexusError, invalid
from nexus.core.operations.outside import placed, reach, reach_from_thread
from nexus.core.operations.parameters import Params
from nexus.core.operations.registry import Operation, Toolset
from nexus.core.operations.replies import Body, Data, Outcome
from nexus.core.operations.validation import validated

log = logging.getLogger(__name__)

observers: list[Callable[[Toolset, str, Outcome, float], None]] = []  # called after each call: its outcome, seconds

T = TypeVar("T")
Interested = Callable[[Any], bool]
Answer = Callable[[Outcome], Outcome]

# Asked before every call, and each look of a wait, of who is no operator; one that raises refuses it.
checks: list[Callable[[Caller, Operation[Any], Any], None]] = []

PAGES = frozenset(("admin", "rest"))  # transports that call from a thread of a server


class Translator(NamedTuple):
    """An app's translation of the arguments that clients of another system give."""

    concerns: Callable[[Operation[Any], Mapping[str, Any]], bool]  # whether there is any, without a look at the store
    translate: Callable[[Operation[Any], Mapping[str, Any]], Mapping[str, Any]]  # which may read the store
    # What makes of our outcome the one that they know, if the arguments ask for it.
    answer: Callable[[Operation[Any], Mapping[str, Any]], Answer | None] = lambda operation, given: None


translators: list[Translator] = []

BEGUN, CALLED, FINISHED = range(3)  # stages of a request: the last one belongs to a wait that writes its answer
ATTEMPTS = 3  # each waits busy_timeout_ms for the writer's lock


def run(toolset: Toolset, caller: Caller, name: str, arguments: Mapping[str, Any] | None) -> Body:
    """Call an operation and answer in the toolset's form; blocks while a waiting operation waits."""
    return toolset.reply.body(perform(toolset, caller, name, arguments))


async def arun(toolset: Toolset, caller: Caller, name: str, arguments: Mapping[str, Any] | None) -> Body:
    """Do what `run` does from an event loop."""
    return toolset.reply.body(await aperform(toolset, caller, name, arguments))


def perform(toolset: Toolset, caller: Caller, name: str, arguments: Mapping[str, Any] | None) -> Outcome:
    """Call an operation; blocks while a waiting operation waits."""

    def call() -> Data:
        operation = toolset.find(name)
        params = validated(operation, in_our_words(operation, completed(operation, caller, arguments)))
        if caller.cwd is not None:
            params = placed(params, caller.cwd)
        if caller.transport in PAGES or caller.cwd is not None or operation.own_transaction:
            params = reach_from_thread(params, caller.agent_id)
        data = _call(operation, params, caller)
        # asyncio's own way in: an interruption ends the wait, too, where asgiref's would leave it to its thread
        return asyncio.run(_wait(caller, operation, params, data)) if operation.wait else data

    started = time.perf_counter()
    return observed(toolset, name, started, in_their_words(_outcome(call), answers_for(toolset, name, arguments)))


async def aperform(toolset: Toolset, caller: Caller, name: str, arguments: Mapping[str, Any] | None) -> Outcome:
    """Call an operation from an event loop: it uses the store on a thread, and parks a wait without one."""
    started = time.perf_counter()
    calling = _aperform(toolset, caller, name, arguments)
    answers = answers_for(toolset, name, arguments)
    del arguments  # waits may be thousands: each holds no more than it must
    return observed(toolset, name, started, in_their_words(await calling, answers))


def in_our_words(operation: Operation[Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of a call after every translation that they concern."""
    for each in translators:
        if each.concerns(operation, given):
            given = each.translate(operation, given)
    return given


def answers_for(toolset: Toolset, name: str, arguments: Mapping[str, Any] | None) -> list[Answer]:
    """Return the translations of the outcome that a call asks for."""
    operation = toolset.contents.operations.get(name) if arguments else None
    if operation is None or arguments is None:
        return []
    return [answer for each in translators if (answer := each.answer(operation, arguments)) is not None]


def in_their_words(outcome: Outcome, answers: list[Answer]) -> Outcome:
    """Return an outcome after the translations that its call asked for."""
    for answer in answers:
        outcome = answer(outcome)
    return outcome


def observed(toolset: Toolset, name: str, started: float, outcome: Outcome) -> Outcome:
    """Report a call to the observers and return its outcome; `started` is from `time.perf_counter`."""
    for observe in observers:
        observe(toolset, name, outcome, time.perf_counter() - started)
    return outcome


async def _aperform(toolset: Toolset, caller: Caller, name: str, arguments: Mapping[str, Any] | None) -> Outcome:
    try:
        operation, params = await prepared(toolset, caller, name, arguments)
        del arguments
        seen = waiting.waiter().position  # before the call, which sees all events up to here

        wait = operation.wait
        interests: list[Interested] = []  # of a call that reads and will wait: its thread finds it in passing
        call = partial(_permitted, operation, params, caller, interests)
        if operation.quick:
            data = await waiting.on_loop_or_thread(pool_of(operation, params), call)
            return Outcome(data if wait is None else await _wait(caller, operation, params, data, seen, *interests))
        # An answer that moves a cursor reaches who asked, or has moved nothing.
        answers = wait is not None and wait.finish is not None
        in_thread = waiting.unless_left if answers else waiting.in_thread
        calling = in_thread(pool_of(operation, params), partial(_outcome, call), caller.agent_id)
        if wait is not None and wait.abandoned is not None:
            return await _unless_abandoned(caller, operation, params, calling, seen)
        outcome = await calling
        if wait is None or outcome.data is None:
            return outcome
        return Outcome(await _wait(caller, operation, params, outcome.data, seen, *interests))
    except Exception as error:
        return Outcome(error=documented(error))


def _permitted(operation: Operation[Any], params: Params, caller: Caller, interests: list[Interested]) -> Data:
    """Make a call and return its data; if it reads and will wait, add the wait's interest to
    `interests`."""
    data, wait = _call(operation, params, caller), operation.wait
    if wait is not None and operation.read_only and wait.timeout(params) > 0 and not wait.done(data):
        interests.append(wait.interested(wait.resume(params, data)))
    return data


async def prepared(
    toolset: Toolset, caller: Caller, name: str, arguments: Mapping[str, Any] | None
) -> tuple[Operation[Any], Params]:
    """Return an operation and its parameters, once the paths that they name have answered.

    Raises NOT_FOUND, and the errors of validation and of the parameters.
    """
    operation = toolset.find(name)
    given = completed(operation, caller, arguments)
    if any(each.concerns(operation, given) for each in translators):
        given = await waiting.in_thread(waiting.READERS, partial(in_our_words, operation, given))
    params = validated(operation, given)
    if caller.cwd is not None:
        params = placed(params, caller.cwd)
    # A process of one agent holds up that agent only, and need not hurry past, unless it holds the store meanwhile, or
    # the event loop.
    if caller.transport != "stdio" or operation.own_transaction or operation.quick:
        params = await reach(params, caller.agent_id, recent=operation.recent_place)
    return operation, params


async def _unless_abandoned(
    caller: Caller,
    operation: Operation[Any],
    params: Params,
    calling: Coroutine[Any, Any, Outcome],
    seen: int | None,
) -> Outcome:
    """Return the answer of an operation that is notified when its caller disconnects, even in the middle of the
    call."""

    def notify(called: asyncio.Task[Outcome]) -> None:
        if called.cancelled() or (data := called.result().data) is None:
            return

        def abandon() -> Data:
            abandoned(params, caller, data)
            return data

        waiting.WRITERS.submit(waiting.with_store, partial(_outcome, partial(retried, abandon)))

    assert operation.wait is not None and operation.wait.abandoned is not None
    abandoned, call = operation.wait.abandoned, asyncio.ensure_future(calling)
    try:
        outcome = await asyncio.shield(call)
        return outcome if outcome.data is None else Outcome(await _wait(caller, operation, params, outcome.data, seen))
    except asyncio.CancelledError:
        call.add_done_callback(notify)
        raise


def pool_of(operation: Operation[Any], params: Params) -> ThreadPoolExecutor:
    """Return the threads that a call runs on."""
    if operation.slow(params):
        return waiting.MINUTES if operation.takes_minutes else waiting.SLOW
    return waiting.READERS if operation.read_only else waiting.writing_calls()


async def _wait(
    caller: Caller,
    operation: Operation[Any],
    params: Params,
    data: Data,
    seen: int | None = None,
    interested: Interested | None = None,
) -> Data:
    """Look repeatedly, starting from the answer of the performed call, until there is a result or the time is over.

    The first look comes at once, unless the waiter's position `seen` before the call shows that it would find nothing.
    """
    wait = operation.wait
    assert wait is not None
    seconds = wait.timeout(params)
    if wait.capped:
        seconds = min(seconds, CoreSettings.current().max_wait_timeout_seconds)
    if wait.done(data):
        return data
    if seconds <= 0:
        return wait.expired(params, data)
    deadline = time.monotonic() + seconds

    # What is slow when it is called is as slow when it is looked at again, and what is quick as quick.
    looking = pool_of(operation, params) if operation.slow(params) else waiting.READERS
    if interested is None:  # it may look at a path
        interested = await waiting.in_thread(waiting.READERS, partial(wait.interested, wait.resume(params, data)))
    async with waiting.waiter().park(interested) as parked:
        deadline += waiting.waiter().spread(parked, deadline - time.monotonic())
        stays, past = wait.next_change is None and not wait.unfinished(data), 0
        if stays and not waiting.waiter().closing and not waiting.waiter().passed_since(seen, parked):
            woken = await parked.wait(deadline - time.monotonic())
            if not woken and wait.finish is None:
                return wait.expired(params, data)  # nothing came: thousands may end together, and none need look
            past = parked.past
        position = wait.past(wait.resume(params, data), past)
        while True:
            read = waiting.on_loop_or_thread if operation.quick else partial(waiting.in_thread, agent=caller.agent_id)
            found, change = await read(looking, partial(_look, operation, params, caller, position, data))
            left = deadline - time.monotonic()
            if wait.done(found):
                if wait.finish is None:
                    return found
                finish = partial(_finished, operation, params, caller, data)
                answer = await waiting.unless_left(pool_of(operation, params), finish)
                if wait.done(answer):
                    return answer
                change = datetime.now(UTC)  # another was quicker, or holds the store
            data = found if wait.finish is None else data
            if left <= 0 or waiting.waiter().closing:
                return wait.expired(params, data)
            position = wait.resume(params, data)
            if not wait.unfinished(data):
                await parked.wait(min(left, _seconds_until(change)))
                position = wait.past(position, parked.past)


def _look(
    operation: Operation[Any], params: Params, caller: Caller, position: Params, known: Data
) -> tuple[Data, datetime | None]:
    """Return what there is from `position` on, and when time alone may change that; `known` while the store is busy."""
    wait = operation.wait
    assert wait is not None
    with unless_busy():
        store().check()
        domain().refresh_settings()
        check(caller, operation, params)
        change = wait.next_change(position) if wait.next_change else None  # first: what opens now, the look sees
        return retried(lambda: wait.look(position, caller)), change
    return known, datetime.now(UTC)  # no error: whoever sent the call again would have it performed again


def _finished(operation: Operation[Any], params: Params, caller: Caller, performed: Data) -> Data:
    """Return the answer after something was found; a caller that gave up before this changes nothing."""
    assert operation.wait is not None and operation.wait.finish is not None
    finish = partial(operation.wait.finish, params, caller, performed)
    with unless_busy():
        return retried(partial(once, operation, caller, finish, finishes=operation.wait.done))
    return performed


def _seconds_until(moment: datetime | None) -> float:
    if moment is None:
        return math.inf
    return max((moment - datetime.now(UTC)).total_seconds(), CoreSettings.current().poll_interval_ms / 1000)


def permit(caller: Caller, operation: Operation[Any], params: Params) -> Outcome | None:
    """Check that the store is still at its path, then the caller's identity, then the operation's guards. Return the
    recorded outcome of a repeated call that was done before; no guard refuses that."""
    return retried(partial(_permit, caller, operation, params))


def _permit(caller: Caller, operation: Operation[Any], params: Params) -> Outcome | None:
    store().check()
    domain().refresh_settings()
    if caller.request is not None and caller.request.repeated and is_recorded(operation):
        check_identity(caller, operation, params)
        if (outcome := caller.request.outcome()) is not None:
            return outcome
    check(caller, operation, params)
    return None


def check(caller: Caller, operation: Operation[Any], params: Params) -> None:
    """Check identity and guards. Raises what `check_identity` raises, and what a guard raises."""
    check_identity(caller, operation, params)
    for guard in operation.guards:
        guard.check(operation, params, caller)


def check_identity(caller: Caller, operation: Operation[Any], params: Params) -> None:
    """Check the acting agent. Raises NOT_OWNER if the connection acts as another agent or its credential is no longer
    valid, NOT_ALLOWED if an operator forbids the agent this operation."""
    check_credential(caller)
    acting = getattr(params, operation.acts_as) if operation.acts_as else None
    if caller.agent_id is not None and acting is not None and acting != caller.agent_id:
        raise NexusError(
            Code.NOT_OWNER,
            f"This connection acts as {caller.agent_id!r} only; pass that as {operation.acts_as}.",
            {"field": operation.acts_as},
        )
    if caller.operator is None and (agent_id := acting or caller.agent_id) is not None:
        domain().check_allowed(agent_id, operation)
    if caller.operator is None:
        for look in checks:
            look(caller, operation, params)


def check_credential(caller: Caller) -> None:
    """Check that the key that bound the connection is still valid, with one indexed read. Raises NOT_OWNER."""
    if caller.credential is not None and domain().agent_of_credential(caller.credential) != caller.agent_id:
        raise NexusError(
            Code.NOT_OWNER,
            "The API key of this connection was deactivated or replaced, or its agent deleted. Ask an operator.",
        )


def _call(operation: Operation[Any], params: Params, caller: Caller) -> Data:
    if (done := permit(caller, operation, params)) is not None:
        return done.result()
    return retried(partial(once, operation, caller, partial(_perform, operation, params, caller)))


def is_recorded(operation: Operation[Any]) -> bool:
    """Return whether calls are recorded, for connections that may repeat them. An idempotent one may simply be made
    again, and one that calls other programs for minutes cannot be."""
    return not (operation.read_only or operation.idempotent or operation.takes_minutes)


def once(
    operation: Operation[Any],
    caller: Caller,
    call: Callable[[], Data],
    *,
    finishes: Callable[[Data], bool] | None = None,
) -> Data:
    """Make a call, or finish a wait whose answer `finishes` it. The outcome is recorded in the same transaction, if the
    connection may send the call again; the second of two such calls returns the outcome of the first."""
    request = caller.request
    if request is None or not is_recorded(operation):
        return call()

    def called() -> Outcome:
        try:
            return Outcome(call())
        except NexusError as error:  # raised behind the commit, with what the refusal stored
            return Outcome(error=error)

    try:
        if operation.own_transaction:
            outcome = _marked(request, called)
        else:
            with in_one_transaction():
                outcome = called()
                waits = finishes is not None and outcome.data is not None and not finishes(outcome.data)
                if connection.in_atomic_block and not waits:  # otherwise it wrote nothing, and may be made again
                    request.record(CALLED if finishes is None else FINISHED, outcome)
    except Repeated as repeated:
        outcome = repeated.outcome
    return outcome.result()


def _marked(request: Request, called: Callable[[], Outcome]) -> Outcome:
    """Make a call that has its own transactions: the first one records that it has begun, a further one the outcome."""
    before = commits()

    def mark() -> None:
        if commits() == before:
            request.record(BEGUN)

    with marked(mark):
        outcome = called()
    if commits() > before:
        with write(request.name):
            request.record(CALLED, outcome)
    return outcome


def retried(call: Callable[[], T]) -> T:
    """Call, and retry while another process holds the store, as long as nothing of the call was committed."""
    before = commits()
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return call()
        except DatabaseError as error:
            connection.close()  # the next attempt starts on a sound connection
            if attempt == ATTEMPTS or commits() > before or not store().is_busy(error):
                raise
            time.sleep(random.uniform(0.01, 0.05) * attempt)  # noqa: S311  # spreads the retries of many processes
    raise AssertionError("unreachable")


def _perform(operation: Operation[Any], params: Params, caller: Caller) -> Data:
    """Perform the call. What an operator changes through an agent's operation is recorded in the same transaction. If
    a refusal stores something, such as a result that comes too late, that is stored for an operator, too."""
    says_itself = operation.operator_only or operation.own_transaction
    if caller.operator is None or operation.read_only or says_itself or operation.sign_of_life:
        return operation.call(params, caller)
    ids = {name: value for name, value in params if name.endswith("_id") and isinstance(value, str)}
    with write():
        try:
            with domain().acting(caller.operator, operation.name, **ids):
                return operation.call(params, caller)
        except NexusError as error:
            refusal = error  # raised behind the commit: what was refused is rolled back already
    raise refusal


def _outcome(call: Callable[[], Data]) -> Outcome:
    try:
        return Outcome(call())
    except Exception as error:
        return Outcome(error=documented(error))


def documented(error: Exception) -> NexusError:
    """Return the documented error for any exception."""
    if isinstance(error, NexusError):
        return error
    if isinstance(error, Left):
        return invalid("The client went away before this was done.")  # which nobody reads
    known = store().failure(error)  # the driver's own errors too: the watch for commits has no Django between
    if known is not None or isinstance(error, DatabaseError):
        if known is None or not (known.details.get("retryable") or moved(known)):  # of a moved one the log tells once
            log.exception("the store failed", exc_info=error)
        return known or NexusError(Code.DB_ERROR, "The store failed; the server's log has the cause. Ask the operator.")
    log.exception("an operation failed unexpectedly", exc_info=error)
    return NexusError(
        Code.INTERNAL_ERROR, "An unexpected internal error occurred.", {"exception": type(error).__name__}
    )


KINDS = ("stdio:", "mcp:")  # connections of one client, which last; whoever holds a key may be several
MOST = 10_000  # connections that are remembered, the latest


@dataclass(frozen=True)
class OfConnection:
    """Mark a parameter that names the project: if it is left out, it is the connection's, unless the call has
    `unless`."""

    unless: str = ""


class Joined(NamedTuple):
    """The agent of a connection, its project and its session there."""

    agent_id: str
    project_root: str
    session_id: str = ""  # unknown where an earlier version passed it on


_joined: OrderedDict[str, Joined] = OrderedDict()
_lock = Lock()


def remember(connection: str | None, joined: Joined) -> None:
    """Remember the agent and the project of a connection in this process."""
    if connection is None or not connection.startswith(KINDS):
        return
    with _lock:
        _joined[connection] = joined
        _joined.move_to_end(connection)
        if len(_joined) > MOST:
            _joined.popitem(last=False)


def joined_as(connection: str) -> Joined | None:
    """Return the agent and the project of a connection, if this process remembers them."""
    return _joined.get(connection)


def completed(operation: Operation[Any], caller: Caller, arguments: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the arguments of a call, with the agent and the project of its connection where it leaves them out."""
    given = arguments or {}
    if operation.accepts_anything or caller.operator is not None:
        return given
    joined = joined_as(caller.connection or "")
    acting, agent_id = operation.acts_as, caller.agent_id or (joined and joined.agent_id)
    more: dict[str, Any] = {}
    if acting is not None and agent_id is not None and acting not in given:
        more[acting] = agent_id
    if joined is not None:
        more |= {
            name: joined.project_root
            for name, declared in operation.params.model_fields.items()
            for mark in declared.metadata
            if isinstance(mark, OfConnection) and name not in given and mark.unless not in given
        }
    return {**given, **more} if more else given
