"""The hub's side of the pool: a token while it runs, a worker that is restarted when it ends, and the end on request.

Of several servers with one store, one runs the pool and ends when that is requested; the others stand by.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import os
import signal
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

from django.db import DatabaseError

from coordination.log.selectors import interest_keys
from nexus.client.tokens import API_KEY_PREFIX, ServerTokenManager, read_token
from nexus.control.agents import machines, pool
from nexus.control.config import DEFAULT_PORT, ControlSettings
from nexus.control.models import STREAM, Incarnation
from nexus.control.rpc.agent_stream import DRAFTS
from nexus.control.rpc.endpoint import ENDPOINT
from nexus.control.runners import sandbox
from nexus.control.runners.git import LOGIN
from nexus.control.runners.processes import Running
from nexus.control.runners_file import runners
from nexus.control.worker.store_access import await_exclusive_role, stored
from nexus.core.background_work import Failures
from nexus.core.clock import iso, now
from nexus.core.config import CoreSettings, explicit
from nexus.core.domain import ANY, domain
from nexus.core.instance import running, secret_key
from nexus.core.operations.errors import Code, NexusError
from nexus.core.processes import INHERIT, NEUTRAL, own_environment, python, start_async
from nexus.core.waiting import READERS, Interest, in_thread, waiter

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0  # seconds before a worker that died is started again
START_SECONDS = 300.0  # for a worker's first sign of life
HANG_SECONDS = 30.0  # without a further one, after which it is ended and replaced
GRACE_SECONDS = 5.0  # for a worker to end, after the time for its turns
LONGEST_LINE = 2**20  # bytes of a worker's report
END_SECONDS = 5.0  # for the end of a machine to be stored; else it is lost a little later
LOOK_SECONDS = 60.0  # between two looks for a request to end, when no event came


class Begun(NamedTuple):
    """The point from which this server has the pool; requests before it are not meant for it."""

    moment: datetime
    event: int  # the newest event then


def admit() -> None:
    """Publish the hub's token, before the server accepts connections. Does nothing if the pool is off.

    Raises CONFIG_ERROR if the token's file cannot be written, because then nobody could be the pool's operator;
    and for invalid runners.
    """
    if not ControlSettings.current().control:
        return
    runners()
    sandbox.state()  # cached now: it starts programs, for which no page or writer should wait
    token, tokens = _token(), token_file()
    try:
        tokens.save(token)
    except OSError as error:
        raise NexusError(
            Code.CONFIG_ERROR, f"The pool's token cannot be written to {tokens.token_path}: {error.strerror}."
        ) from None
    ENDPOINT.token = token


def _token() -> str:
    """Return the token of this home, the same at each start: scripts keep it, and logins go on."""
    key = secret_key(CoreSettings.current().home)
    return API_KEY_PREFIX + urlsafe_b64encode(hmac.digest(key.encode(), b"rpc.token", "sha256")).decode().rstrip("=")


async def supervise() -> None:
    """Run the pool while the server runs. Does nothing if the pool is off."""
    if not ControlSettings.current().control:
        return
    token, tokens = ENDPOINT.token, token_file()
    try:
        begun = await stored(_now, math.inf)
        while True:
            begun = await _run_pool(begun)
    finally:
        ENDPOINT.token = None
        if read_token(tokens.token_path, strict=False) == token:  # not the file that another server wrote since
            tokens.delete()


def _now() -> Begun:
    return Begun(now(), domain().newest_event_id())


async def _run_pool(begun: Begun) -> Begun:
    """Run the pool once no other server does, and until another takes the lock; return since when this server had
    it."""
    only = await await_exclusive_role(
        pool.SERVER, "Another server runs this store's pool; this one stands by, and takes over when it ends."
    )
    try:
        await stored(pool.stay, math.inf, twice=True)
        if only.waited:
            begun = await stored(_now, math.inf)
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(_keep_working(begun.moment)),
                tasks.create_task(_end_when_asked(begun.event)),
            ]
            while await only.retaken():
                pass
            for task in running:
                task.cancel()
    finally:
        await asyncio.to_thread(only.exclusive_lock.release)
    return begun


def token_file() -> ServerTokenManager:
    """Return the manager of the token's file in the home. The file is named by a port: JSON-RPC's own, else the
    server's."""
    home = CoreSettings.current().home
    holder = running(home)
    own = holder.port if holder and holder.pid == os.getpid() else DEFAULT_PORT  # not that of another server
    return ServerTokenManager(ControlSettings.current().rpc_port or own, home)


async def _keep_working(since: datetime) -> None:
    pause = FIRST_PAUSE
    loop = asyncio.get_running_loop()
    while True:
        started = loop.time()
        try:
            code = await _worked(since)
        except OSError as error:  # out of processes or files
            log.warning("The pool's worker could not be started (%s).", error.strerror)
        else:
            log.warning("The pool's worker ended (%s); it is started again.", code)
        if loop.time() - started > LONGEST_PAUSE:
            pause = FIRST_PAUSE
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


async def work_as_machine(name: str, labels: Sequence[str], capacity: int, ready: Callable[[], None]) -> None:
    """Run the worker of a machine beside the hubs until cancelled, and beat meanwhile. A worker that ends is started
    again, as the next incarnation. `ready` is called once the machine has its name.

    Raises CONFIG_ERROR if another process works under this name.
    """
    since, pause, own = now(), FIRST_PAUSE, None
    while True:
        begin = partial(machines.begin_incarnation, name, labels=labels, capacity=capacity, own=own)
        own = await stored(lambda: begin(runners=runners().by_name), math.inf, twice=True)  # noqa: B023
        ready()
        ready, started = (lambda: None), asyncio.get_running_loop().time()
        place = ("--machine", own.machine, "--epoch", str(own.epoch), "--max-agents", str(capacity))
        working, beating = asyncio.create_task(_worked(since, *place)), asyncio.create_task(_beat(own))
        try:
            await asyncio.wait((working, beating), return_when=asyncio.FIRST_COMPLETED)
        finally:
            working.cancel()
            (code,) = await asyncio.gather(working, return_exceptions=True)
            beating.cancel()  # only now: while its turns end, it lives
            await _end(own)
        log.warning("The worker of the machine %r ended (%s); it is started again.", name, code)
        pause = FIRST_PAUSE if asyncio.get_running_loop().time() - started > LONGEST_PAUSE else pause * 2
        await asyncio.sleep(min(pause, LONGEST_PAUSE))


async def _end(own: Incarnation) -> None:
    """Store the end of an incarnation; without the database, it counts as lost a little later, and its machine goes on
    when the database is back."""
    try:
        await stored(partial(machines.end, own), END_SECONDS, twice=True)
    except (DatabaseError, NexusError) as error:
        log.warning("The end of the machine %r could not be stored (%s).", own.machine, error)


async def _beat(own: Incarnation) -> None:
    """Give signs of life, and look for machines that give none, until this incarnation is over."""
    lost, failures = machines.LostMachines(), Failures(log)
    while True:
        try:
            if not await in_thread(READERS, lambda: machines.beat(own, runners=runners().by_name)):
                return
            await in_thread(READERS, lost.look)
            failures.succeeded(None, "the machine beats")
        except Exception as error:
            failures.failed(None, "the machine gave no sign of life", error)
        await asyncio.sleep(machines.BEAT_SECONDS)


async def _worked(since: datetime, *place: str) -> int:
    """Run a worker, of another machine than the hub with its arguments `place`, and return its exit code. When
    cancelled, end the worker first. Its guardian leaves nothing of it, also where this process is killed."""
    chosen, grace = ControlSettings.current(), 0.0
    started = await start_async(
        python("nexus_site", "run-pool", "--since", iso(since), *place),
        cwd=NEUTRAL,
        env=_environment(),
        stderr=INHERIT,
        limit=LONGEST_LINE,  # the worker reports drafts on its stdout
    )
    worker = Running(started.process, started.lifeline)
    hearing = asyncio.create_task(_hear(worker.stdout))
    try:
        await asyncio.shield(hearing)
        grace = GRACE_SECONDS
    except TimeoutError:
        log.error("The pool's worker gives no sign of life; it is ended.")
    except asyncio.CancelledError:
        grace = chosen.pool_stop_seconds + GRACE_SECONDS
        raise
    finally:
        code = await worker.end(grace)  # the end of its stdin asks it to end within its time
        hearing.cancel()
        await asyncio.gather(hearing, return_exceptions=True)
        DRAFTS.clear()
    return code


async def _hear(reports: asyncio.StreamReader) -> None:
    """Pass a worker's reports on until it ends. Raises TimeoutError if it gives no sign of life for too long."""
    seconds = START_SECONDS
    while True:
        try:
            line = await asyncio.wait_for(reports.readline(), seconds)
        except TimeoutError:  # or this process stood still, and has not read what came
            line = await asyncio.wait_for(reports.readline(), FIRST_PAUSE)
        if not line:
            return
        DRAFTS.hear(line)
        seconds = HANG_SECONDS


def _environment() -> dict[str, str]:
    """Return the settings of this process, resolved, and the variables that runners, traces, git and ssh need."""
    traced = (name for name in os.environ if name.startswith("OTEL_"))
    needed = (name for runner in runners().by_name.values() for name in runner.variables)
    return own_environment(*needed, *traced, *LOGIN) | explicit() | {"NEXUS_CONTROL": "true"}


async def _end_when_asked(since: int) -> None:
    """End the server when the log holds a request for it. A wake-up alone is no proof of one."""
    asks = Interest(interest_keys([ANY], [STREAM], None), lambda event: event.type == pool.END_ASKED)
    while True:
        try:
            async with waiter().park(asks) as parked:
                while True:
                    newest = await in_thread(READERS, domain().newest_event_id)
                    if await in_thread(READERS, partial(pool.is_asked_to_end, since, newest)):
                        return os.kill(os.getpid(), signal.SIGTERM)
                    since = newest
                    await parked.wait(LOOK_SECONDS)
        except Exception as error:
            log.warning("Whether the server is to end could not be read (%s); it is tried again.", error)
            await asyncio.sleep(FIRST_PAUSE)
