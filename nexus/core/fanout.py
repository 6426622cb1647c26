"""Fan-out by NATS: what processes at one PostgreSQL database tell each other when `nats_url` is set.

A message is a hint and carries no truth: a commit's has the id of its event, and who hears it reads the store. So
nothing depends on a message that is lost. Publishing never blocks or fails a call, and each watch reads the store again
after a connection was made, and every LOOK_SECONDS anyway.

One thread of the process has an event loop and the connection. A subject is `nexus.`, the database's identity, `event.`
and the key of an event, so NATS passes a message only to processes with a wait for that key.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import hashlib
import logging
import math
import re
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from functools import cache, partial
from typing import Any

from nexus.core.config import CoreSettings, nats_parts
from nexus.core.database.base import LOOK_SECONDS
from nexus.core.domain import ANY

log = logging.getLogger(__name__)

CONNECT_SECONDS = 10  # for a connection, its handshakes and the database's identity
AGAIN_SECONDS = 1.0  # after a connection was lost, or not made
ASK_SECONDS = 2.0  # the server is asked so often whether it is there,
ANSWER_SECONDS = 4.0  # and has so long to answer
MOST_WAITING = 8 * 2**20  # bytes that wait to be sent; then messages are dropped
AT_ONCE = 1000  # subjects that begin or end before the server is asked whether it took them
OVERHEAD = 100  # bytes of a message without its content
KEEP_SECONDS = 5.0  # a key without a wait is still heard for so long: an agent that was woken soon waits again
EXIT_SECONDS = 1.0  # for a process that ends to send what it committed

Heard = Callable[[bytes | None], None]  # gets a message, or None if some may have been missed; on the wire's thread

ROOT = "nexus"  # the first word of every subject
PROBE = "probe"  # the last of one that nobody hears
PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what a subject has as it is
PLAIN_ID = re.compile(rb"[0-9]{1,18}")

# By words in an error of the server or the library, the sentence for people. No error's own text is shown: it may
# repeat the address.
NO_IDENTITY = "no identity of the database"
ENDED = "ended after its greeting"
WITHOUT_TLS = "the server offers no tls"
EXPLAINED: Mapping[str, str] = {
    "authorization": "NATS refuses the user, password, token or key of nats_url",
    "authentication": "NATS refuses the user, password, token or key of nats_url",
    "permissions violation": "NATS does not allow this user the subjects under nexus.>",
    "maximum connections": "NATS ended the connection at once: it may be full (max_connections)",
    ENDED: "NATS ended the connection at once: it may be full (max_connections)",
    "maximum account active connections": "NATS has no connection left for this account",
    "maximum subscriptions": "NATS allows this user fewer subscriptions than there are waits (max_subscriptions)",
    "slow consumer": "NATS ended the connection, because this process read too slowly",
    NO_IDENTITY: "The database could not be asked for its identity, which names the subjects",
    WITHOUT_TLS: "NATS offers no TLS, which nats_url asks for (tls://)",
    "info message": "What answers at nats_url is not a NATS server",
}


def subject_of(key: Hashable) -> str:
    """Return the subject of the events with a key; that of all events for a key of another form."""
    return subject("event", *key) if isinstance(key, tuple) else "event.>"


def subject(kind: str, *parts: Hashable) -> str:
    """Return the subject of a kind of messages about some values, whatever characters are in these."""
    return ".".join((kind, *map(_token, parts)))


def _token(part: Hashable) -> str:
    if part == ANY:
        return "*"
    if part is None:
        return "~none"
    if isinstance(part, tuple):
        return f"~{part[0]}"
    text = str(part)
    return text if PLAIN.fullmatch(text) else f"~{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"


def explain(*errors: BaseException | None) -> str:
    """Return why there is no connection, in words without an address; of several errors, the first that tells it."""
    return next((known for error in errors if (known := _explained(error))), "NATS cannot be reached")


def _explained(error: BaseException | None) -> str | None:
    if isinstance(error, ssl.SSLError):
        return "The TLS handshake with NATS failed: see its certificate, and ?ca= of nats_url"
    said = str(error).lower()
    return next((known for words, known in EXPLAINED.items() if words in said), None)


def identity() -> str:
    """Return what tells this database from all others, however its address is written. Raises OSError."""
    import psycopg

    from nexus.core.database.postgres.connection import parameters

    asked = (
        "SELECT (SELECT system_identifier FROM pg_control_system()), oid"
        " FROM pg_database WHERE datname = current_database()"
    )
    try:
        with contextlib.closing(psycopg.connect(**parameters(CoreSettings.current()), autocommit=True)) as connection:
            row = connection.execute(asked).fetchone()
    except psycopg.Error:
        raise OSError(NO_IDENTITY) from None
    assert row is not None
    return f"{row[0]}-{row[1]}"


class Wire:
    """The connection of this process to NATS. Its methods may be called from any thread, and return at once."""

    def __init__(self, url: str) -> None:
        self.problem: str | None = None  # why there is no connection, once one was tried
        self.received = 0  # messages
        self._url = url
        self._prefix = ""
        self._lock = threading.Lock()  # of what follows
        self._outgoing: deque[tuple[str, bytes]] = deque()
        self._waiting = 0  # bytes in it
        self._heard: dict[str, set[Heard]] = {}  # by subject
        self._changed: set[str] = set()  # subjects that began or ended
        self._called = False
        self._finishing = False
        self._sent = threading.Event()  # all was sent, and the process may end
        self._loop = asyncio.new_event_loop()
        self._stirred = asyncio.Event()
        threading.Thread(target=self._work, name="nexus-nats", daemon=True).start()

    def publish(self, subject: str, content: bytes) -> None:
        """Send a message soon, or drop it: without a connection, or if too much waits."""
        size = len(subject) + len(content) + OVERHEAD
        with self._lock:
            if self.problem is not None or self._waiting + size > MOST_WAITING:
                return
            self._outgoing.append((subject, content))
            self._waiting += size
            self._stir()

    def hear(self, subject: str, heard: Heard) -> None:
        """Call `heard` with each message of a subject, soon."""
        with self._lock:
            listeners = self._heard.setdefault(subject, set())
            if not listeners:
                self._changed.add(subject)
                self._stir()
            listeners.add(heard)

    def unhear(self, subject: str, heard: Heard) -> None:
        """End `hear`; a last message may still come."""
        with self._lock:
            listeners = self._heard.get(subject, set())
            listeners.discard(heard)
            if not listeners and self._heard.pop(subject, None) is not None:
                self._changed.add(subject)
                self._stir()

    def finish(self) -> None:
        """End it; what was published has a moment to be sent, if there is a connection."""
        with self._lock:
            self._finishing = True
            self._stir()
        if self.problem is None:
            self._sent.wait(EXIT_SECONDS)

    def _stir(self) -> None:
        if not self._called:
            self._called = True
            self._loop.call_soon_threadsafe(self._stirred.set)

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._connect_forever())

    async def _connect_forever(self) -> None:
        while not self._finishing:
            connection = Connection(self._url)
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    self._prefix = self._prefix or f"{ROOT}.{await asyncio.to_thread(identity)}."
                    await connection.open(self._stirred.set)
                await self._serve(connection)
            except Exception as error:  # whatever it is, the store is still read at intervals
                self._lost(explain(error, *connection.errors()))
            finally:
                connection.abandon()
            await asyncio.sleep(AGAIN_SECONDS)

    async def _serve(self, connection: Connection) -> None:
        """Send and hear until the wire ends, or the connection fails: raises its error."""
        with self._lock:
            self._changed = set(self._heard)
        asked = -math.inf
        await connection.publish(self._prefix + PROBE, b"")  # a server that forbids it says so before the first message
        while True:
            connection.check()
            with self._lock:
                outgoing, self._outgoing, self._waiting = self._outgoing, deque(), 0
                changed = [self._changed.pop() for _ in range(min(len(self._changed), AT_ONCE))]
                is_all = not self._changed
                begun = [subject for subject in changed if subject in self._heard]
                is_last, self._called = self._finishing, False
            async with asyncio.timeout(ANSWER_SECONDS):
                for subject in changed:
                    await connection.end(subject)
                for subject in begun:
                    await connection.begin(subject, self._prefix + subject, partial(self._hear, subject))
                for subject, content in outgoing:
                    await connection.publish(self._prefix + subject, content)
                if begun or is_last or time.monotonic() >= asked + ASK_SECONDS:
                    await connection.confirm()
                    connection.check()  # what it forbids, it has said by now
                    asked = time.monotonic()
            if self.problem is not None:
                log.warning("NATS is reached again.")
                self.problem = None
            for subject in begun:  # a message may have come before
                self._pass_on(subject, None)
            if is_last:
                return self._sent.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ASK_SECONDS if is_all else 0):
                    await self._stirred.wait()
            self._stirred.clear()

    async def _hear(self, subject: str, message: Any) -> None:
        self.received += 1
        self._pass_on(subject, message.data)

    def _pass_on(self, subject: str, content: bytes | None) -> None:
        with self._lock:
            listeners = tuple(self._heard.get(subject, ()))
        for heard in listeners:
            heard(content)

    def _lost(self, problem: str) -> None:
        if problem != self.problem and not self._finishing:
            log.warning(
                "%s. Waits look at the database every %g s meanwhile, and drafts stay at their hub.",
                problem,
                LOOK_SECONDS,
            )
        with self._lock:
            self.problem = problem
            self._outgoing.clear()  # who waits has looked by the time there is a connection
            self._waiting = 0
            if self._finishing:
                self._sent.set()


@cache
def _client() -> type[Any]:
    from nats.aio.client import Client

    logging.getLogger(Client.__module__).setLevel(logging.CRITICAL)  # it logs tracebacks; `Wire` says what matters

    class EnforcingTLS(Client):
        """Sends no credentials in the clear to an address that asks for TLS, whatever the server offers."""

        def _connect_command(self) -> bytes:
            assert self._current_server is not None
            if self._current_server.uri.scheme == "tls" and not self._server_info.get("tls_required"):
                raise OSError(WITHOUT_TLS)
            return super()._connect_command()

    return EnforcingTLS


class Connection:
    """One connection to NATS. It is never repaired: the library gives up for good after some errors, and may wait for
    ever for a peer that no longer reads."""

    def __init__(self, url: str) -> None:
        self._servers, self._files = nats_parts(url)
        self._client = _client()()
        self._error: Exception | None = None  # the last that the library reported
        self._subscriptions: dict[str, Any] = {}

    async def open(self, failing: Callable[[], None]) -> None:
        """Connect to one of the servers; `failing` is called when the connection fails. Raises when none takes it."""

        async def failed(error: Exception) -> None:
            self._error = error
            failing()

        async def closed() -> None:
            failing()

        authority = self._files.get("ca")
        try:
            await self._client.connect(
                self._servers,
                name="nexus",
                error_cb=failed,
                closed_cb=closed,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=CONNECT_SECONDS // 2,
                no_echo=True,
                flush_timeout=ANSWER_SECONDS,
                tls=ssl.create_default_context(cafile=authority) if authority else None,
                user_credentials=self._files.get("creds"),
                nkeys_seed=self._files.get("nkey"),
            )
        except Exception as error:
            known = self._error or error  # the library's last word for any failure is that no server is left
            if isinstance(known, ConnectionError) and self._client._server_info:
                known = OSError(ENDED)  # a full server's reason is lost if it was written to meanwhile
            raise known from None
        if not self._client.is_connected:
            raise OSError(ENDED)
        self._error = None  # another server may have failed before

    def check(self) -> None:
        """Raise the error that the connection has met, if it has."""
        if self._error is not None or self._client.is_closed:
            raise self._error or OSError("closed")

    def errors(self) -> list[Exception | None]:
        """Return the errors that the library has met: the server's own, and that of the network."""
        return [self._client.last_error, self._error]

    async def publish(self, subject: str, content: bytes) -> None:
        """Send a message; one that is larger than the server takes is dropped."""
        if len(content) <= self._client.max_payload:
            await self._client.publish(subject, content)

    async def begin(self, name: str, subject: str, heard: Callable[[Any], Awaitable[None]]) -> None:
        """Subscribe to a subject, under a name."""
        self._subscriptions[name] = await self._client.subscribe(subject, cb=heard)

    async def end(self, name: str) -> None:
        """Unsubscribe, if there is a subscription of that name."""
        if (subscription := self._subscriptions.pop(name, None)) is not None:
            await subscription.unsubscribe()

    async def confirm(self) -> None:
        """Return once the server has taken all that was sent."""
        for _ in range(2):  # the library's first question overtakes what was sent before it
            await self._client.flush(CONNECT_SECONDS)

    def abandon(self) -> None:
        """End it at once, without a word to the server, which may not read it."""
        client = self._client
        for task in (client._reading_task, client._ping_interval_task, client._flusher_task):
            if task is not None:
                task.cancel()
        for subscription in self._subscriptions.values():
            subscription._stop_processing()
        if (writer := getattr(client._transport, "_io_writer", None)) is not None:
            writer.transport.abort()


async def problem_of(url: str) -> str | None:
    """Return why messages cannot be sent and heard at this address now; None if they can."""

    async def nobody(message: Any) -> None:
        pass

    connection = Connection(url)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await connection.open(lambda: None)
            await connection.begin("doctor", f"{ROOT}.{PROBE}", nobody)
            await connection.publish(f"{ROOT}.{PROBE}", b"")
            await connection.confirm()
        connection.check()
    except Exception as error:
        return explain(error, *connection.errors())
    finally:
        connection.abandon()
    return None


class Watch:
    """One task's watch for commits (`nexus.core.database.base.CommitWatch`), over the wire of the process."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._near, self._far = socket.socketpair()
        self._near.setblocking(False)
        self.descriptor: int | None = self._near.fileno()
        self._lock = threading.Lock()  # of the two after it, and of the sockets' end
        self._newest = 0.0  # the highest event that a message named; infinite if a message may have been missed
        self._is_told = False
        self._looked = time.monotonic()
        self._subjects: set[str] = set()
        self._idle: dict[str, float] = {}  # of them, those without a wait, and since when; the oldest first

    @property
    def pause(self) -> float:
        """Seconds until it is time to look without a message."""
        return max(0.0, self._looked + LOOK_SECONDS - time.monotonic())

    def has_news(self, seen: int) -> bool:
        """Return whether a message named an event above `seen`, or it is time to look anyway."""
        moment = time.monotonic()
        with self._lock:
            newest, self._newest = self._newest, 0.0
        self._forget(moment - KEEP_SECONDS)
        if newest <= seen and moment < self._looked + LOOK_SECONDS:
            return False
        self._looked = moment
        return True

    def listen(self, key: Hashable) -> None:
        """Let commits with events of this key become news."""
        subject = subject_of(key)
        self._idle.pop(subject, None)
        if subject not in self._subjects:
            self._subjects.add(subject)
            self._wire.hear(subject, self._tell)

    def unlisten(self, key: Hashable) -> None:
        """End `listen` for a key in a while."""
        self._idle[subject_of(key)] = time.monotonic()

    def _forget(self, before: float) -> None:
        while self._idle and (oldest := next(iter(self._idle.items())))[1] <= before:
            self._unhear(oldest[0])

    def _unhear(self, subject: str) -> None:
        self._idle.pop(subject, None)
        self._subjects.discard(subject)
        self._wire.unhear(subject, self._tell)

    def _tell(self, content: bytes | None) -> None:
        event = int(content) if content is not None and PLAIN_ID.fullmatch(content) else math.inf
        with self._lock:
            self._newest = max(self._newest, event)
            if not self._is_told and self._far.fileno() >= 0:
                self._is_told = True
                self._far.send(b"\0")

    def drain(self) -> None:
        """Make the descriptor unreadable again."""
        with self._lock:
            if self._is_told:
                self._is_told = False
                self._near.recv(1)

    def close(self) -> None:
        """End the watch."""
        for subject in list(self._subjects):
            self._unhear(subject)
        with self._lock:
            self._near.close()
            self._far.close()


_lock = threading.Lock()
_wires: dict[str, Wire] = {}


def wire() -> Wire | None:
    """Return the wire of this process, which the first call makes; None without `nats_url`, or with another store than
    PostgreSQL."""
    config = CoreSettings.current()
    if config.nats_url is None or config.database_url is None:
        return None
    with _lock:
        if config.nats_url not in _wires:
            _wires[config.nats_url] = Wire(config.nats_url)
            atexit.register(_wires[config.nats_url].finish)
        return _wires[config.nats_url]


def announce(event_id: int, keys: Iterable[Hashable]) -> None:
    """Tell other processes of a committed event, by its keys. Those with ANY are left out: waits listen with them."""
    if (on := wire()) is not None:
        content = str(event_id).encode()
        for subject in {subject_of(key) for key in keys if isinstance(key, tuple) and ANY not in key}:
            on.publish(subject, content)
