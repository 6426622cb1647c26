"""The one way in: every transport hands a name and arguments to `run` or `arun` and gets the envelope.

In this order: strict validation, the caller's identity against the acting agent, permissions and trust, the call with
a bounded retry on a busy store, the envelope. No exception and no library's text leaves here.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from asgiref.sync import async_to_sync
from django.conf import settings
from django.db import DatabaseError, connection
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from coordination import store, waiter
from coordination.clock import now
from coordination.errors import Code, NexusError, failure, invalid, not_found, ok
from coordination.operation import REGISTRY, Caller, Data, Fault, Operation, Params
from coordination.services import audit, sessions
from coordination.services import settings as stored_settings

log = logging.getLogger(__name__)

Envelope = dict[str, Any]

observers: list[Callable[[str, Envelope, float], None]] = []  # told of every call: its name, envelope and seconds

ATTEMPTS = 3  # each waits busy_timeout_ms for the writer's lock
MAX_NESTING = 64
PRECEDENCE = (Code.WORKSPACE_REQUIRED, Code.INVALID_STREAM, Code.VALIDATION_ERROR)


def run(caller: Caller, name: str, arguments: Mapping[str, Any] | None) -> Envelope:
    """Call an operation and answer its envelope; blocks while a waiting operation waits."""

    def call() -> Data:
        operation, params = _admit(caller, name, arguments)
        if operation.wait is None or operation.wait.timeout(params) <= 0:
            return _call(operation, params, caller)
        return async_to_sync(_wait)(caller, operation, params)

    started = time.perf_counter()
    return _observed(name, started, _enveloped(call))


async def arun(caller: Caller, name: str, arguments: Mapping[str, Any] | None) -> Envelope:
    """Call an operation from an event loop: the store is used on a thread, a wait is parked without one."""
    started = time.perf_counter()
    return _observed(name, started, await _arun(caller, name, arguments))


def _observed(name: str, started: float, envelope: Envelope) -> Envelope:
    for observe in observers:
        observe(name, envelope, time.perf_counter() - started)
    return envelope


async def _arun(caller: Caller, name: str, arguments: Mapping[str, Any] | None) -> Envelope:
    try:
        operation = _find(name)
        params = _validate(operation, arguments)
        pool = waiter.READERS if operation.read_only else waiter.WRITERS
        wait = operation.wait
        if wait is None or wait.timeout(params) <= 0:
            return await waiter.in_thread(
                pool, lambda: _enveloped(lambda: _call(*_permit(caller, operation, params), caller))
            )
        await waiter.in_thread(pool, lambda: _permit(caller, operation, params))
        return ok(await _wait(caller, operation, params))
    except Exception as error:
        return failure(documented(error))


async def _wait(caller: Caller, operation: Operation[Any], params: Params) -> Data:
    wait = operation.wait
    assert wait is not None
    deadline = time.monotonic() + min(wait.timeout(params), settings.NEXUS.max_wait_timeout_seconds)

    def look(position: Params) -> tuple[Data, datetime | None]:
        change = wait.next_change(position) if wait.next_change else None  # first: what opens meanwhile, the call sees
        return _call(operation, position, caller), change

    position = params
    async with waiter.waiter().park(wait.interested(params)) as parked:
        while True:
            data, change = await waiter.in_thread(waiter.READERS, partial(look, position))
            left = deadline - time.monotonic()
            if wait.done(data):
                return data
            if left <= 0 or waiter.waiter().closing:
                return wait.expired(params, data)
            position = wait.resume(position, data)
            await parked.wait(min(left, _seconds_until(change)))


def _seconds_until(moment: datetime | None) -> float:
    if moment is None:
        return math.inf
    return max((moment - datetime.now(UTC)).total_seconds(), settings.NEXUS.poll_interval_ms / 1000)


def _admit(caller: Caller, name: str, arguments: Mapping[str, Any] | None) -> tuple[Operation[Any], Params]:
    operation = _find(name)
    return _permit(caller, operation, _validate(operation, arguments))


def _find(name: str) -> Operation[Any]:
    try:
        return REGISTRY[name]
    except KeyError:
        raise not_found("operation", name[:200]) from None


def _validate(operation: Operation[Any], arguments: Mapping[str, Any] | None) -> Params:
    model: type[Params] = operation.params
    if operation.accepts_anything:
        return model()
    given = arguments or {}
    faults = unstorable(given)
    try:
        params = model.model_validate(given)
    except ValidationError as error:
        faults += [_fault(operation, detail) for detail in error.errors(include_url=False, include_context=True)]
    if faults:
        raise min(faults, key=lambda fault: PRECEDENCE.index(fault.code))
    return params


def _permit(caller: Caller, operation: Operation[Any], params: Params) -> tuple[Operation[Any], Params]:
    """Identity first, then what the caller may, then the session's credentials."""
    stored_settings.refresh()
    acting = getattr(params, operation.acts_as) if operation.acts_as else None
    if caller.agent_id is not None and acting is not None and acting != caller.agent_id:
        raise NexusError(
            Code.NOT_OWNER,
            f"This connection acts as {caller.agent_id!r} only; pass that as {operation.acts_as}.",
            {"field": operation.acts_as},
        )
    if operation.operator_only and caller.operator is None:
        raise NexusError(Code.NOT_OWNER, f"{operation.name} is for operators.")
    if operation.session is not None:
        assert acting is not None, "a sensitive operation names its acting agent"
        sessions.check_credentials(
            agent_id=acting,
            session_id=getattr(params, operation.session),
            secret=getattr(params, "session_secret", None),
            required=settings.NEXUS.trust_mode == "strict" and caller.operator is None,
        )
    return operation, params


def _call(operation: Operation[Any], params: Params, caller: Caller) -> Data:
    """The call itself, tried again while another process holds the store."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _perform(operation, params, caller)
        except DatabaseError as error:
            connection.close()  # the next attempt starts on a sound connection
            if attempt == ATTEMPTS or not store.is_busy(error):
                raise
            time.sleep(random.uniform(0.01, 0.05) * attempt)  # noqa: S311  # spreads the retries of many processes
    raise AssertionError("unreachable")


def _perform(operation: Operation[Any], params: Params, caller: Caller) -> Data:
    """The call; what an operator changes through an agent's verb is recorded with it, all or nothing."""
    if caller.operator is None or operation.read_only or operation.operator_only:
        return operation.call(params, caller)
    with store.write():
        data = operation.call(params, caller)
        ids = {name: value for name, value in params if name.endswith("_id") and isinstance(value, str)}
        audit.record(caller.operator, "operator.acted", now(), operation=operation.name, **ids)
    return data


def _enveloped(call: Callable[[], Data]) -> Envelope:
    try:
        return ok(call())
    except Exception as error:
        return failure(documented(error))


def documented(error: Exception) -> NexusError:
    """The documented error for any exception."""
    if isinstance(error, NexusError):
        return error
    if isinstance(error, DatabaseError):
        known = store.failure(error)
        if known is None or not known.details.get("retryable"):
            log.exception("the store failed", exc_info=error)
        return known or NexusError(Code.DB_ERROR, "The store failed; the server's log has the cause. Ask the operator.")
    log.exception("an operation failed unexpectedly", exc_info=error)
    return NexusError(
        Code.INTERNAL_ERROR, "An unexpected internal error occurred.", {"exception": type(error).__name__}
    )


def unstorable(arguments: Mapping[str, Any]) -> list[NexusError]:
    """A VALIDATION_ERROR for each argument with what JSON can carry and a store or a peer cannot.

    That is NUL characters, lone surrogates, NaN and infinities, and nesting deeper than 64.
    """
    problems = ((name, next(_unstorable({name: value}), None)) for name, value in arguments.items())
    return [invalid(f"{name[:200]!r} {problem}.", field=name[:200]) for name, problem in problems if problem]


def _unstorable(root: Any) -> Iterator[str]:
    pending = [(root, 0)]
    while pending:
        value, depth = pending.pop()
        if isinstance(value, str):
            if "\x00" in value:
                yield "holds a NUL character; remove it"
            if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
                yield "holds a lone surrogate; send well-formed Unicode"
        elif isinstance(value, float) and not math.isfinite(value):
            yield "holds NaN or an infinity, which JSON does not have"
        elif isinstance(value, dict | list):
            if depth > MAX_NESTING:
                yield f"is nested deeper than {MAX_NESTING} levels"
                return
            items = [*value.keys(), *value.values()] if isinstance(value, dict) else value
            pending.extend((item, depth + 1) for item in items)


PROBLEMS: Mapping[str, str] = {
    "missing": "is required",
    "string_type": "must be a string",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must hold at least {min_length}",
    "too_long": "must hold at most {max_length}",
    "literal_error": "must be one of {expected}",
    "value_error": "{error}",
}


def _fault(operation: Operation[Any], detail: ErrorDetails) -> NexusError:
    name = str(detail["loc"][0]) if detail["loc"] else "arguments"
    if detail["type"] == "extra_forbidden" and len(detail["loc"]) > 1:
        return invalid(f"Unknown key {str(detail['loc'][-1])[:200]!r} in {name}.", field=name)
    if detail["type"] == "extra_forbidden":
        takes = ", ".join(operation.params.model_fields) or "no arguments"
        return invalid(f"Unknown argument {name[:200]!r}; {operation.name} takes {takes}.", field=name[:200])
    given = detail["input"]
    absent = detail["type"] == "missing" or given is None or (isinstance(given, str) and not given.strip())
    info = operation.params.model_fields.get(name)
    fault = next((mark for mark in info.metadata if isinstance(mark, Fault)), Fault()) if info else Fault()
    kind = "missing" if given is None else detail["type"]
    problem = PROBLEMS.get(kind, "is not valid")
    return NexusError(
        fault.absent if absent else fault.malformed,
        f"{name} {problem.format_map(detail.get('ctx', {}))}.",
        {"field": name},
    )
