"""The dispatch of operations: every transport passes the arguments of a call to it, and gets an outcome.

It works in this order: fill in what the connection said of itself, validate strictly, check the caller's identity
against the acting agent, check the operation's requirements, call it with a bounded retry while the database is busy.
It never passes on an exception or the text of a library.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from django.db import DatabaseError, connection
from django.dispatch import Signal

from nexus.core import waiting
from nexus.core.apps import nexus_apps
from nexus.core.cancellation import ClientDisconnected
from nexus.core.database.store import commits, store, unless_busy, write
from nexus.core.database.store_file import is_moved
from nexus.core.domain import domain
from nexus.core.operations.caller import Caller, joined_as
from nexus.core.operations.errors import Code, NexusError, invalid
from nexus.core.operations.outside import reach, reach_from_thread, with_absolute_paths
from nexus.core.operations.parameters import OfConnection, Params
from nexus.core.operations.registry import Answer, Operation, Toolset
from nexus.core.operations.replies import Body, Data, Outcome
from nexus.core.operations.shares import share_from_thread, share_of
from nexus.core.operations.validation import validated
from nexus.core.operations.waits import Interested, Looking, unless_abandoned, wait_for

log = logging.getLogger(__name__)

# Sent after each call by its toolset, with the operation's `name`, the `outcome`, and the `seconds` that it took.
called = Signal(use_caching=True)

T = TypeVar("T")

PAGES = frozenset(("admin", "rest"))  # transports that call from a thread of a server
VERIFIED_SECONDS = 1.0  # that a request's look at its key counts: its body may come slowly, its turn late
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
        params = validated(operation, _in_our_words(operation, _completed(operation, caller, arguments)))
        if caller.cwd is not None:
            params = with_absolute_paths(params, caller.cwd)
        if caller.transport in PAGES or caller.cwd is not None or operation.own_transaction:
            params = reach_from_thread(params, share_from_thread(caller))
        data = _call(operation, params, caller)
        answer = data if operation.wait is None else operation.wait.at_once(params, data)
        if answer is not None:
            return answer
        # asyncio's own way in: an interruption ends the wait, too, where asgiref's would leave it to its thread
        return asyncio.run(_wait(caller, operation, params, data))

    started = time.perf_counter()
    return _answered(toolset, name, started, _outcome(call), _answers_for(toolset, name, arguments))


async def aperform(toolset: Toolset, caller: Caller, name: str, arguments: Mapping[str, Any] | None) -> Outcome:
    """Call an operation from an event loop: it uses the store on a thread, and parks a wait without one."""
    started = time.perf_counter()
    calling = _aperform(toolset, caller, name, arguments)
    answers = _answers_for(toolset, name, arguments)
    del arguments  # waits may be thousands: each holds no more than it must
    return _answered(toolset, name, started, await calling, answers)


def _answered(toolset: Toolset, name: str, started: float, outcome: Outcome, answers: list[Answer]) -> Outcome:
    """Return an outcome after the translations that its call asked for, once those who count calls know of it."""
    for answer in answers:
        outcome = answer(outcome)
    called.send(toolset, name=name, outcome=outcome, seconds=time.perf_counter() - started)
    return outcome


def _completed(operation: Operation[Any], caller: Caller, arguments: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the arguments of a call, with the agent and the project of its connection where it leaves them out."""
    given = arguments or {}
    if operation.accepts_anything or caller.operator is not None:
        return given
    joined = joined_as(caller.connection)
    acting, agent_id = operation.acts_as, caller.agent_id or (joined and joined.agent_id) or caller.named
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


def _in_our_words(operation: Operation[Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of a call after every translation that they concern."""
    for each in operation.toolset.translators:
        if each.concerns(operation, given):
            given = each.translate(operation, given)
    return given


def _answers_for(toolset: Toolset, name: str, arguments: Mapping[str, Any] | None) -> list[Answer]:
    """Return the translations of the outcome that a call asks for."""
    operation = toolset.contents.operations.get(name)
    if operation is None or not arguments:
        return []
    return [answer for each in operation.toolset.translators if (answer := each.answer(operation, arguments))]


async def _aperform(toolset: Toolset, caller: Caller, name: str, arguments: Mapping[str, Any] | None) -> Outcome:
    try:
        operation, params = await _prepared(toolset, caller, name, arguments)
        del arguments
        seen = waiting.waiter().position  # before the call, which sees all events up to here

        wait = operation.wait
        interests: list[Interested] = []  # of a call that will wait: its thread finds it in passing
        call = partial(_permitted, operation, params, caller, interests)

        async def waited(outcome: Outcome) -> Outcome:
            if wait is None or outcome.data is None:
                return outcome
            if (answer := wait.at_once(params, outcome.data)) is not None:
                return Outcome(answer)
            return Outcome(await _wait(caller, operation, params, outcome.data, seen, *interests))

        if operation.quick:
            return await waited(Outcome(await waiting.on_loop_or_thread(_pool_of(operation, params), call)))
        # An answer that moves a cursor reaches who asked, or has moved nothing.
        in_thread = waiting.unless_left if wait is not None and wait.finish is not None else waiting.in_thread
        calling = in_thread(_pool_of(operation, params), partial(_outcome, call), await share_of(caller))
        if wait is not None and wait.abandoned is not None:
            abandoned = partial(_abandoned, wait.abandoned, params, caller)
            return await unless_abandoned(calling, waited, abandoned)
        return await waited(await calling)
    except Exception as error:
        return Outcome(error=documented(error))


def _abandoned(abandon: Callable[[Any, Caller, Data], object], params: Params, caller: Caller, data: Data) -> Outcome:
    """Let an operation know that its caller went away after it had answered `data`."""

    def call() -> Data:
        abandon(params, caller, data)
        return data

    return _outcome(partial(_retried, call))


def _permitted(operation: Operation[Any], params: Params, caller: Caller, interests: list[Interested]) -> Data:
    """Make a call and return its data; if it will wait, add the wait's interest to `interests`."""
    data, wait = _call(operation, params, caller), operation.wait
    if wait is not None and wait.at_once(params, data) is None:
        interests.append(wait.interested(wait.resume(params, data)))
    return data


async def _prepared(
    toolset: Toolset, caller: Caller, name: str, arguments: Mapping[str, Any] | None
) -> tuple[Operation[Any], Params]:
    """Return an operation and its parameters, once the paths that they name have answered.

    Raises NOT_FOUND, and the errors of validation and of the parameters.
    """
    operation = toolset.find(name)
    given = _completed(operation, caller, arguments)
    if any(each.concerns(operation, given) for each in operation.toolset.translators):
        given = await waiting.in_thread(waiting.READERS, partial(_in_our_words, operation, given))
    params = validated(operation, given)
    if caller.cwd is not None:
        params = with_absolute_paths(params, caller.cwd)
    # A process of one agent holds up that agent only, and need not hurry past, unless it holds the store meanwhile, or
    # the event loop.
    if caller.transport != "stdio" or operation.own_transaction or operation.quick:
        params = await reach(params, await share_of(caller), recent=operation.recent_place)
    return operation, params


def _pool_of(operation: Operation[Any], params: Params) -> ThreadPoolExecutor:
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
    """Return the answer of a call that waits; `data` is what the call itself answered."""
    wait, pool = operation.wait, _pool_of(operation, params)
    assert wait is not None
    # What is slow when it is called is as slow when it is looked at again, and what is quick as quick.
    looking = pool if operation.slow(params) else waiting.READERS

    async def look(position: Params, known: Data) -> tuple[Data, datetime | None]:
        read = partial(_look, operation, params, caller, position, known)
        if wait.look is None:
            return await waiting.unless_left(pool, read)
        if operation.quick:
            return await waiting.on_loop_or_thread(looking, read)
        return await waiting.in_thread(looking, read, await share_of(caller))

    def finish(performed: Data) -> Coroutine[Any, Any, Data]:
        return waiting.unless_left(pool, partial(_finished, operation, params, caller, performed))

    return await wait_for(wait, params, data, Looking(look, finish), seen, interested)


def _look(
    operation: Operation[Any], params: Params, caller: Caller, position: Params, known: Data
) -> tuple[Data, datetime | None]:
    """Return what there is from `position` on, and when time alone may change that; `known` while the store is busy."""
    wait = operation.wait
    assert wait is not None
    with unless_busy():
        domain().refresh_settings()
        check_credential(caller)
        _check(caller, operation, params)
        change = wait.next_change(position) if wait.next_change else None  # first: what opens now, the look sees
        look = (
            _finishing(operation, params, caller, known) if wait.look is None else partial(wait.look, position, caller)
        )
        return _retried(look), change
    return known, datetime.now(UTC)  # no error: whoever sent the call again would have it performed again


def _finished(operation: Operation[Any], params: Params, caller: Caller, performed: Data) -> Data:
    """Return the answer after something was found; a caller that gave up before this changes nothing."""
    with unless_busy():
        return _retried(_finishing(operation, params, caller, performed))
    return performed


def _finishing(operation: Operation[Any], params: Params, caller: Caller, performed: Data) -> Callable[[], Data]:
    assert operation.wait is not None and operation.wait.finish is not None
    finish = partial(operation.wait.finish, params, caller, performed)
    return partial(_once, operation, caller, finish, operation.wait.done)


def _call(operation: Operation[Any], params: Params, caller: Caller) -> Data:
    if (done := _retried(partial(_permit, caller, operation, params))) is not None:
        return done.result()
    return _retried(partial(_once, operation, caller, partial(_perform, operation, params, caller)))


def _permit(caller: Caller, operation: Operation[Any], params: Params) -> Outcome | None:
    """Check the caller's identity, then the operation's requirements. Return the recorded outcome of a repeated call
    that was done before; no requirement refuses that."""
    domain().refresh_settings()
    if time.monotonic() - caller.verified_at > VERIFIED_SECONDS:
        check_credential(caller)
    if caller.request is not None and caller.request.repeated and operation.is_recorded:
        _check_identity(caller, operation, params)
        if (outcome := caller.request.outcome()) is not None:
            return outcome
    _check(caller, operation, params)
    return None


def _check(caller: Caller, operation: Operation[Any], params: Params) -> None:
    """Check identity and requirements. Raises what `_check_identity` and the requirements raise, and NOT_OWNER for a
    viewer's call that is no read."""
    _check_identity(caller, operation, params)
    if caller.viewer and not operation.read_only:
        raise NexusError(Code.NOT_OWNER, "This account is a viewer's: it sees everything and does nothing.")
    for requirement in operation.requires:
        requirement.check(operation, params, caller)


def _check_identity(caller: Caller, operation: Operation[Any], params: Params) -> None:
    """Check the acting agent. Raises NOT_OWNER if the connection acts as another agent, NOT_ALLOWED if an operator
    forbids the agent this operation, and what an app's `check_call` raises."""
    acting = getattr(params, operation.acts_as) if operation.acts_as else None
    if caller.agent_id is not None and acting is not None and acting != caller.agent_id:
        raise NexusError(
            Code.NOT_OWNER,
            f"This connection acts as {caller.agent_id!r} only; pass that as {operation.acts_as}.",
            {"field": operation.acts_as},
        )
    if caller.operator is None:
        if (agent_id := acting or caller.agent_id) is not None:
            domain().check_allowed(agent_id, operation)
        for app in nexus_apps():
            app.check_call(caller, operation, params)


def check_credential(caller: Caller) -> None:
    """Check that the key that bound the connection is still valid, with one indexed read. Raises NOT_OWNER."""
    if caller.credential is not None and domain().agent_of_credential(caller.credential) != caller.agent_id:
        raise NexusError(
            Code.NOT_OWNER,
            "The API key of this connection was deactivated or replaced, or its agent deleted. Ask an operator.",
        )


def _once(
    operation: Operation[Any],
    caller: Caller,
    call: Callable[[], Data],
    finishes: Callable[[Data], bool] | None = None,
) -> Data:
    """Make a call, or finish a wait whose answer `finishes` it; only once, if its connection may send it again."""
    if caller.request is None or not operation.is_recorded:
        return call()
    return caller.request.once(operation, call, finishes)


def _retried(call: Callable[[], T]) -> T:
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
    if isinstance(error, ClientDisconnected):
        return invalid("The client went away before this was done.")  # which nobody reads
    known = store().failure(error)  # the driver's own errors too: the watch for commits has no Django between
    if known is not None and (known.details.get("retryable") or is_moved(known)):
        return known  # a call may simply be sent again, and the log has said already that the store moved
    if known is not None or isinstance(error, DatabaseError):
        log.exception("the store failed", exc_info=error)
        return known or NexusError(Code.DB_ERROR, "The store failed; the server's log has the cause. Ask the operator.")
    log.exception("an operation failed unexpectedly", exc_info=error)
    return NexusError(
        Code.INTERNAL_ERROR, "An unexpected internal error occurred.", {"exception": type(error).__name__}
    )
