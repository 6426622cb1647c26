"""Deferred calls: a call that waits is performed once and stored; any process can then look whether it is done, for as
long as somebody keeps it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from nexus.core.database.store import store, write
from nexus.core.domain import domain
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import NexusError
from nexus.core.operations.parameters import Params
from nexus.core.operations.registry import Operation, Toolset, Wait
from nexus.core.operations.replies import Data, Outcome
from nexus.core.operations.runner import (
    answers_for,
    check_identity,
    documented,
    in_their_words,
    observed,
    once,
    permit,
    pool_of,
    prepared,
    retried,
)
from nexus.core.waiting import WRITERS, in_thread

Kept = TypeVar("Kept")

LONGEST_SECONDS = 86_400.0  # it does not count as a parked wait, whose bound is lower
MOST_LOOKS = 20  # bounded ones at a time, where more lies before the next


class NotKept(Exception):
    """There is no room for a call; it counts as not made."""


@dataclass(frozen=True)
class Deferred:
    """A call that was performed and waits: its arguments, and its answer so far."""

    operation: Operation[Any]
    params: Params
    data: Data
    asked: dict[str, Any]  # arguments of another system that shape the answer

    def answered(self, outcome: Outcome) -> Outcome:
        """Return its outcome as the call asked for it."""
        return in_their_words(outcome, answers_for(self.operation.toolset, self.operation.name, self.asked))

    @property
    def wait(self) -> Wait[Any]:
        """The wait that its operation declares."""
        assert self.operation.wait is not None
        return self.operation.wait


async def abegin(
    toolset: Toolset,
    caller: Caller,
    name: str,
    arguments: Mapping[str, Any] | None,
    keep: Callable[[Deferred, float], Kept],
) -> Outcome | Kept:
    """Call a deferrable operation: return its outcome if it does not have to wait, otherwise what `keep` made of the
    call.

    `keep` gets the seconds that the call may wait, on a thread and inside a transaction: that of the call itself, if it
    writes. Raises NotKept if `keep` does; the call is rolled back then.
    """
    started = time.perf_counter()
    begun: Outcome | Kept
    try:
        operation, params = await prepared(toolset, caller, name, arguments)
        call = Deferred(operation, params, {}, asked(operation, arguments or {}))
        begun = await _begun(call, caller, keep)
    except NotKept:
        raise
    except Exception as error:
        begun = Outcome(error=documented(error))
    observed(toolset, name, started, begun if isinstance(begun, Outcome) else Outcome({}))
    return begun


def asked(operation: Operation[Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that only clients of another system give, if they shape the answer."""
    shaped = answers_for(operation.toolset, operation.name, arguments)
    fields = operation.params.model_fields
    return {name: value for name, value in arguments.items() if name not in fields} if shaped else {}


async def _begun(begun: Deferred, caller: Caller, keep: Callable[[Deferred, float], Kept]) -> Outcome | Kept:
    operation, params = begun.operation, begun.params

    def perform() -> Outcome:
        try:
            return Outcome(once(operation, caller, partial(operation.call, params, caller)))
        except NexusError as error:
            return Outcome(error=error)  # behind what a refusal keeps

    def kept(outcome: Outcome) -> Outcome | Kept:
        if outcome.data is None:
            return outcome
        call = replace(begun, data=outcome.data)
        seconds = min(call.wait.timeout(params), LONGEST_SECONDS)
        if call.wait.done(call.data):
            return call.answered(outcome)
        if seconds <= 0:
            return call.answered(Outcome(call.wait.expired(params, call.data)))
        with write():
            return keep(call, seconds)

    def performed() -> Outcome:
        return permit(caller, operation, params) or retried(perform)

    def performed_and_kept() -> Outcome | Kept:
        done = permit(caller, operation, params)

        def both() -> Outcome | Kept:
            with write():
                return kept(done or perform())

        return retried(both)

    if not operation.read_only:
        return await in_thread(WRITERS, performed_and_kept)
    outcome = await in_thread(pool_of(operation, params), performed)
    return await in_thread(WRITERS, partial(retried, partial(kept, outcome)))


def check(caller: Caller, call: Deferred) -> None:
    """Check the caller as at the beginning of the call. Raises NOT_OWNER and NOT_ALLOWED.

    The guards are not asked again: whoever has the call passed them, and what some of them ask for, such as a session's
    secret, is not stored.
    """
    store().check()
    domain().refresh_settings()
    check_identity(caller, call.operation, call.params)


def look(caller: Caller, call: Deferred) -> Deferred:
    """Return the call with its current answer, finished or not; reads only.

    Raises what the operation raises.
    """
    wait, performed, position = call.wait, call, call.wait.resume(call.params, call.data)
    for _ in range(MOST_LOOKS):
        found = retried(partial(wait.look, position, caller))
        if wait.done(found):
            return replace(call, data=found)
        if wait.finish is not None:
            return performed  # which `finish` starts from
        performed = replace(call, data=found)
        if not wait.unfinished(found):
            break
        position = wait.resume(call.params, found)
    return performed


def finish(caller: Caller, call: Deferred, found: Data) -> Data | None:
    """Return the answer to what `look` found, and write it if the operation does; None if another call was quicker."""
    wait = call.wait
    if wait.finish is None:
        return found
    answer = wait.finish(call.params, caller, call.data)
    return answer if wait.done(answer) else None
