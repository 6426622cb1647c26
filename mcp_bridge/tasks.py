"""Waiting calls as tasks: begun once, checked at each request, ended once. No process waits for one, so none is lost
with a process."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from itertools import accumulate
from typing import Any, Final

from mcp_bridge.models import ID_LENGTH, Task, TaskStatus
from nexus.core.clock import now
from nexus.core.database.store import unless_busy, write
from nexus.core.operations import deferred
from nexus.core.operations.caller import Caller
from nexus.core.operations.deferred import Deferred, NotKept
from nexus.core.operations.errors import Code, NexusError, not_found
from nexus.core.operations.registry import TOOLSETS, Operation
from nexus.core.operations.replies import Data, Outcome
from nexus.core.operations.runner import check_credential, in_our_words, retried
from nexus.core.operations.validation import validated
from nexus.core.waiting import READERS, WRITERS, in_thread

MOST_WAITING = 100  # waiting tasks of one agent; a further call is answered without one
MOST_OVER, MOST_BYTES = 100, 16 * 2**20  # ended tasks of one agent and bytes of their results; the newest stay
KEPT = timedelta(days=1)  # after its time is over
SECRETS: Final = {"session_secret"}
WELL_FORMED = re.compile(r"[A-Za-z0-9_-]{1,64}")
FAILURES = {Code.DB_ERROR, Code.INTERNAL_ERROR}  # our own errors, not answers to the call


async def begin(operation: Operation[Any], caller: Caller, arguments: dict[str, Any] | None) -> Outcome | Task:
    """Make a call; return its outcome, or the task that waits for it. Raises NotKept where the agent has too many."""
    return await deferred.abegin(operation.toolset, caller, operation.name, arguments, partial(_keep, caller))


def _keep(caller: Caller, call: Deferred, seconds: float) -> Task:
    """Store the task in the transaction of the call, so that both exist or neither."""
    operation, moment = call.operation, now()
    agent_id = caller.agent_id or (getattr(call.params, operation.acts_as) if operation.acts_as else None)
    if Task.objects.of(agent_id).waiting(moment).count() >= MOST_WAITING:
        raise NotKept
    _make_room(agent_id, moment)
    until = moment + timedelta(seconds=seconds)
    return Task.objects.create(
        task_id=secrets.token_urlsafe(24),
        agent_id=agent_id,
        toolset=operation.toolset.name,
        operation=operation.name,
        arguments=json.dumps(call.params.model_dump(mode="json", exclude=SECRETS, exclude_unset=True) | call.asked),
        answered=json.dumps(call.data),
        created_at=moment,
        updated_at=moment,
        waits_until=until,
        expires_at=until + KEPT,
    )


async def get(task_id: str, caller: Caller) -> Task:
    """Return a task in its current state, after a check whether the call has ended.

    Raises NOT_FOUND for one that does not exist or is another's, and the errors that refuse the caller the read.
    """
    task, write_down = await in_thread(READERS, partial(_look, task_id, caller))
    if write_down is None:
        return task
    with unless_busy():
        return await in_thread(WRITERS, partial(retried, write_down))
    return task  # the next check finds the same


async def interest(task_id: str, caller: Caller) -> Callable[[Any], bool]:
    """Return the filter of events that may end a task; of an ended one, none pass. Raises NOT_FOUND."""
    return await in_thread(READERS, partial(_interest, task_id, caller))


async def cancel(task_id: str, caller: Caller) -> None:
    """End the wait of a call, as if its caller had hung up; an ended one stays as it is. Raises NOT_FOUND."""
    await in_thread(WRITERS, partial(retried, partial(give_up, task_id, caller)))


def give_up(task_id: str, caller: Caller) -> None:
    """End the wait of a call, as if its caller had hung up; an ended one stays as it is. Raises NOT_FOUND."""
    with write():
        task = find(task_id, caller)
        if not Task.objects.working().filter(pk=task_id).update(status=TaskStatus.CANCELLED, updated_at=now()):
            return
        with contextlib.suppress(NexusError):  # what it waited for is gone
            call = _call(task)
            if call.wait.abandoned is not None:
                call.wait.abandoned(call.params, caller, call.data)


async def stored_task(task_id: str, caller: Caller) -> Task:
    """Return a task as it is stored, without a check. Raises NOT_FOUND."""
    return await in_thread(READERS, partial(find, task_id, caller))


def find(task_id: str, caller: Caller) -> Task:
    """Return a stored task. Raises NOT_FOUND for one that no longer exists and for another agent's, NOT_OWNER for a
    key that is no longer valid."""
    check_credential(caller)
    task = Task.objects.kept(now()).filter(pk=task_id).first() if WELL_FORMED.fullmatch(task_id) else None
    if task is None or caller.agent_id not in (None, task.agent_id):
        raise not_found("task", task_id[:ID_LENGTH])
    return task


def _look(task_id: str, caller: Caller) -> tuple[Task, Callable[[], Task] | None]:
    """Return the task, and the write that its current answer needs on the writers' thread, if any."""
    task = find(task_id, caller)
    if task.status != TaskStatus.WORKING:
        return task, None
    call = _call(task)
    deferred.check(caller, call)
    over = task.waits_until <= now()  # before the check, which sees what came in time
    try:
        looked = deferred.look(caller, call)
    except NexusError as error:
        if error.code in FAILURES:
            raise
        refused = Outcome(error=error)
        return task, partial(_end, task, caller, call, lambda: refused)
    more = call.wait.unfinished(looked.data)
    if call.wait.done(looked.data):
        return task, partial(_end, task, caller, call, lambda: _finished(caller, call, looked.data))
    if over and not more:
        expired = call.wait.expired(call.params, looked.data)
        return task, partial(_end, task, caller, call, lambda: Outcome(expired))
    if more or call.wait.unfinished(call.data):
        return task, partial(_come_so_far, task, caller, looked)
    return task, None


def _interest(task_id: str, caller: Caller) -> Callable[[Any], bool]:
    task = find(task_id, caller)
    if task.status != TaskStatus.WORKING:
        return lambda event: False
    call = _call(task)
    return call.wait.interested(call.wait.resume(call.params, call.data))


def _call(task: Task) -> Deferred:
    """Return the stored call. Raises NOT_FOUND and VALIDATION_ERROR where another version of Nexus made it and this
    one does not know it."""
    if task.toolset not in TOOLSETS:
        raise not_found("toolset", task.toolset)
    operation, given = TOOLSETS[task.toolset].find(task.operation), json.loads(task.arguments)
    params = validated(operation, in_our_words(operation, given))
    return Deferred(operation, params, json.loads(task.answered), deferred.asked(operation, given))


def _finished(caller: Caller, call: Deferred, found: Data) -> Outcome | None:
    try:
        answer = deferred.finish(caller, call, found)
    except NexusError as error:
        return Outcome(error=error)
    return None if answer is None else Outcome(answer)


def _end(task: Task, caller: Caller, call: Deferred, ending: Callable[[], Outcome | None]) -> Task:
    """Return the task with its result. Of two concurrent checks, or a check and a cancel, the first ends it."""
    from mcp_bridge.features import (
        wire,
    )  # imports the SDK's types, which a command that only finds its operation does not need

    with write():
        working = Task.objects.working().filter(pk=task.pk)
        outcome = ending() if working.exists() else None
        if outcome is not None:
            result = json.dumps(wire(call.operation.toolset.reply, call.answered(outcome)))
            moment = now()
            working.update(status=TaskStatus.COMPLETED, result=result, size=len(result), updated_at=moment)
            _make_room(task.agent_id, moment)
        return find(task.pk, caller)


def _come_so_far(task: Task, caller: Caller, looked: Deferred) -> Task:
    with write():
        Task.objects.working().filter(pk=task.pk).update(answered=json.dumps(looked.data), updated_at=now())
        return find(task.pk, caller)


def _make_room(agent_id: str | None, moment: datetime) -> None:
    """Delete an agent's expired tasks, and the oldest ended ones beyond the limits; the newest always stays."""
    of_agent = Task.objects.of(agent_id)
    of_agent.filter(expires_at__lte=moment).delete()
    over = list(of_agent.over(moment).order_by("-updated_at", "pk").values_list("pk", "size"))
    totals = accumulate(size for _, size in over)
    beyond = [
        pk
        for rank, ((pk, _), total) in enumerate(zip(over, totals, strict=True))
        if rank >= MOST_OVER or (rank and total > MOST_BYTES)
    ]
    Task.objects.filter(pk__in=beyond).delete()
