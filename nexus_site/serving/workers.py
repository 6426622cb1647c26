"""Several processes behind one port. All requests with one agent's key are served by the same process.

Sessions, streams, waits, joined topics and turns are in a process's memory. So a request is routed by its key, and not
by its session: its process has everything that belongs to the key. The hub itself is worker 0. It accepts every
connection and serves requests without an agent's key: operators, pages, strangers, the pool. An open connection is
passed to another process, with the bytes that were read, when a request on it belongs there.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import re
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from django.conf import settings

from nexus.core import waiting
from nexus.core.access import KEY
from nexus.core.config import given
from nexus.core.operations.errors import Code, NexusError
from nexus.core.processes import INHERIT, NEUTRAL, PIPE, own_environment, python, start_async
from nexus_site.serving import metrics
from nexus_site.serving.intake import HEAD_BYTES, keys_in

log = logging.getLogger(__name__)

SHARED = re.compile(rb"[A-Z]+ /(mcp[/? ]|api/|ws/events/)")  # everything else is for worker 0
END_OF_HEAD = b"\r\n\r\n"
CONNECTION, MEASURE, END = b"C", b"M", b"E"  # the first bytes of messages between processes
LARGEST_MESSAGE = 1 + HEAD_BYTES + 2**16  # bytes: Twisted reads at most 64 KiB at once
AT_ONCE = 32  # messages that are handled before the event loop does other work
MOST_UNSENT = 1000  # messages that wait for a process that does not read, or is being restarted
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0  # seconds before a worker that crashed is restarted
END_SECONDS = 20.0  # for a worker to answer its calls, and end
MEASURE_SECONDS = 2.0  # for a worker to send its metrics
READY = b"ready\n"

_workers: Workers | None = None  # in worker 0 of several


def workers() -> Workers | None:
    """Return the other workers of this hub; None where it is a single process."""
    return _workers


def owner(head: bytes, workers: int) -> int:
    """Return the number of the worker that a request belongs to, from its first bytes."""
    if not SHARED.match(head):
        return 0
    keys = keys_in(head.partition(END_OF_HEAD)[0])
    key = min(keys) if len(keys) == 1 else ""
    return int(key.removeprefix("nxs_"), 16) % workers if KEY.fullmatch(key) else 0


class Channel:
    """One end of the channel between worker 0 and another: messages in order, each with a descriptor or without."""

    def __init__(
        self, end: socket.socket, received: Callable[[bytes, int | None], None], left: Callable[[], None]
    ) -> None:
        end.setblocking(False)
        self._end, self._received, self._left = end, received, left
        self._unsent: deque[tuple[bytes, int | None]] = deque()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(end, self._receive)

    def send(self, message: bytes, descriptor: int | None = None) -> bool:
        """Send a message now or later, and close `descriptor` then. Where too many messages wait, close it at once and
        return False."""
        if len(self._unsent) >= MOST_UNSENT:
            _close(descriptor)
            return False
        self._unsent.append((message, descriptor))
        if len(self._unsent) == 1:
            self._flush()
        return True

    def _flush(self) -> None:
        while self._unsent:
            message, descriptor = self._unsent[0]
            try:
                socket.send_fds(self._end, [message], [] if descriptor is None else [descriptor])
            except BlockingIOError:
                self._loop.add_writer(self._end, self._flush)
                return
            except OSError as error:  # such as too many descriptors under way
                log.warning("A connection was lost on its way to another worker (%s).", error.strerror)
            self._unsent.popleft()
            _close(descriptor)
        self._loop.remove_writer(self._end)

    def _receive(self) -> None:
        for _ in range(AT_ONCE):
            try:
                message, descriptors, _, _ = socket.recv_fds(self._end, LARGEST_MESSAGE, 1, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                return
            except OSError:  # the other end is closed, and did not read everything
                message = b""
            if not message:
                self._loop.remove_reader(self._end)
                self._left()
                return
            self._received(message, next(iter(descriptors), None))


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)


class Share:
    """One process's share of the requests to the port; worker 0's and the others' differ."""

    def __init__(self, number: int, workers: int) -> None:
        self.number, self.workers = number, workers
        self.is_ending = False  # from now on, a request is answered where it arrives
        self._adopt: Callable[[int, bytes], None] = lambda descriptor, data: None

    def owner(self, head: bytes) -> int:
        """Return the number of the worker that must answer a request."""
        return self.number if self.is_ending else owner(head, self.workers)

    def hand_over(self, number: int, data: bytes, connection: socket.socket) -> bool:
        """Pass a connection on which `data` was read to a worker; return False where too many wait for it."""
        try:
            descriptor = os.dup(connection.fileno())
        except OSError:  # too many are open
            return False
        return self._channel_to(number).send(CONNECTION + data, descriptor)

    async def start(self, adopt: Callable[[int, bytes], None], end: Callable[[], None]) -> None:
        """Accept connections by `adopt`, which gets a descriptor to close and the data that was read; return when all
        processes can.

        `end` ends this process. Raises CONFIG_ERROR.
        """
        raise NotImplementedError

    async def end(self) -> None:
        """Return when no other process waits for the end of this one."""

    def _channel_to(self, number: int) -> Channel:
        raise NotImplementedError


class Member(Share):
    """The share of a worker that another process started; its channel is stdin."""

    async def start(self, adopt: Callable[[int, bytes], None], end: Callable[[], None]) -> None:
        self._adopt, self._end = adopt, end
        self._channel = Channel(socket.socket(fileno=os.dup(0)), self._received, self._leave)

    def _received(self, message: bytes, descriptor: int | None) -> None:
        if message == END:
            self._leave()
        elif descriptor is not None and message == MEASURE:
            metrics.look()
            asyncio.get_running_loop().run_in_executor(waiting.SLOW, _send_metrics, descriptor)
        elif descriptor is not None:
            self._adopt(descriptor, message[1:])

    def _leave(self) -> None:
        self.is_ending = True
        self._end()

    def _channel_to(self, number: int) -> Channel:
        return self._channel  # worker 0 passes it on


def _send_metrics(descriptor: int) -> None:
    with contextlib.suppress(BrokenPipeError), os.fdopen(descriptor, "wb") as pipe:
        pipe.write(metrics.of_this_process())


class Workers(Share):
    """Worker 0's share, and the other workers, which it starts, restarts after a crash, and ends."""

    def __init__(self, workers: int) -> None:
        super().__init__(0, workers)
        self.ready: set[int] = set()
        self._channels: dict[int, Channel] = {}
        self._running: set[int] = set()
        self._keeping: dict[int, asyncio.Task[None]] = {}

    async def start(self, adopt: Callable[[int, bytes], None], end: Callable[[], None]) -> None:
        global _workers
        _workers, self._adopt = self, adopt
        begun = []
        for number in range(1, self.workers):
            mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            # Both ends stay open here: messages to a worker that crashed wait for the next one.
            self._channels[number] = Channel(mine, self._received, lambda: None)
            begun.append(asyncio.get_running_loop().create_future())
            self._keeping[number] = asyncio.create_task(self._keep(number, theirs, begun[-1]))
        await asyncio.gather(*begun)

    async def end(self) -> None:
        self.is_ending = True
        for number, keeping in self._keeping.items():
            if number not in self._running or not self._channels[number].send(END):
                keeping.cancel()
        _, late = await asyncio.wait(self._keeping.values(), timeout=END_SECONDS)
        for keeping in late:
            keeping.cancel()
        await asyncio.gather(*self._keeping.values(), return_exceptions=True)

    @property
    def missing(self) -> list[int]:
        """The numbers of the workers that do not serve now."""
        return [number for number in range(1, self.workers) if number not in self.ready]

    def measure(self) -> Callable[[], Mapping[int, str]]:
        """Ask the others for their metrics; the returned function waits for the answers, on a thread."""
        pipes = {}
        for number in self.ready:
            reading, writing = os.pipe()
            pipes[number] = io.FileIO(reading)
            self._channels[number].send(MEASURE, writing)
        return partial(_read, pipes)

    def _received(self, message: bytes, descriptor: int | None) -> None:
        """Pass on a request that a worker received and that belongs to another."""
        if descriptor is None:
            return
        number = self.owner(message[1:])
        if number == 0:
            self._adopt(descriptor, message[1:])
        else:
            self._channels[number].send(message, descriptor)

    def _channel_to(self, number: int) -> Channel:
        return self._channels[number]

    async def _keep(self, number: int, end: socket.socket, begun: asyncio.Future[None]) -> None:
        pause = FIRST_PAUSE
        while True:
            started = time.monotonic()
            try:
                how = f"ended ({await self._run(number, end, begun)})"
            except OSError as error:
                how = f"could not be started ({error.strerror})"
            if self.is_ending:
                return
            if not begun.done():
                begun.set_exception(NexusError(Code.CONFIG_ERROR, f"Worker {number} {how} before it was ready."))
                return
            log.warning("Worker %d %s; it is started again.", number, how)
            if time.monotonic() - started > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _run(self, number: int, end: socket.socket, begun: asyncio.Future[None]) -> int:
        """Run a worker to its end and return its exit code; kill it when cancelled."""
        flags = ["--number", str(number), "--workers", str(self.workers), "--hosts", ",".join(settings.ALLOWED_HOSTS)]
        if settings.NEXUS_TRUSTS_LOCAL:
            flags.append("--trusts-local")
        command = python("nexus_site", "run-worker", *flags)
        process, lifeline = await start_async(
            command, cwd=NEUTRAL, env=own_environment() | given(), stdin=end.fileno(), stdout=PIPE, stderr=INHERIT
        )
        assert process.stdout is not None and lifeline is not None
        self._running.add(number)
        try:
            async for line in process.stdout:
                if line == READY:
                    self.ready.add(number)
                    if not begun.done():
                        begun.set_result(None)
            return await process.wait()
        finally:
            self.ready.discard(number)
            self._running.discard(number)
            os.close(lifeline)  # kills those that still run


def _read(pipes: Mapping[int, io.FileIO]) -> Mapping[int, str]:
    """Return what each pipe sends until its end, without those that do not end in time."""
    deadline = time.monotonic() + MEASURE_SECONDS
    texts = {}
    for number, pipe in pipes.items():
        said = bytearray()
        with pipe:
            poll = select.poll()  # `select` cannot handle descriptors above 1023
            poll.register(pipe, select.POLLIN | select.POLLHUP)
            while poll.poll(max(deadline - time.monotonic(), 0) * 1000):
                if not (piece := pipe.read(2**16)):
                    texts[number] = said.decode()
                    break
                said += piece
    return texts
