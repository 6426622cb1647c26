"""Connections to the PostgreSQL server: their parameters, the meaning of errors, and the notifications of commits.

A connection that cannot reach the server fails soon. One connection of the process listens for the commits of all
others. A notification can be lost with its connection, so each watch also looks at intervals.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Generator, Mapping
from contextlib import closing, suppress
from time import monotonic
from typing import Any, Self

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import PoolTimeout

from nexus.core.config import CoreSettings
from nexus.core.operations.errors import Code, NexusError, invalid

# Where the network is cut, nothing comes back, not even an error: without these a call would hang for a quarter of an
# hour. https://www.postgresql.org/docs/current/libpq-connect.html
DEFAULTS = {
    "connect_timeout": 10,  # seconds
    "tcp_user_timeout": 10_000,  # milliseconds until what was sent is known to have arrived
    "keepalives_idle": 5,  # seconds of silence, then the other end is asked
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "client_encoding": "utf8",
    "target_session_attrs": "read-write",  # of several hosts the primary, and no standby that took its address
}
NAME = {"application_name": "nexus"}  # by which who takes the store's place knows its users: no URL gives another


def parameters(config: CoreSettings) -> dict[str, Any]:
    """Return the parameters of libpq, by name: those of the URL, our defaults for the rest, and our name."""
    assert config.database_url is not None
    return {**DEFAULTS, **conninfo_to_dict(config.database_url), **NAME}


# https://www.postgresql.org/docs/current/errcodes-appendix.html
LOCKED = {"55P03", "40001", "40P01"}  # lock_not_available, serialization_failure, deadlock_detected
LOST = {"57P01", "57P02", "57P03"}  # admin_shutdown, crash_shutdown, cannot_connect_now
CONNECTION_CLASS = "08"
UNREACHABLE = "unreachable"
CAUSES: Mapping[str, tuple[str, str]] = {
    "28P01": ("refused", "The database server refuses the user or the password of the database URL."),
    "28000": ("refused", "The database server refuses the user of the database URL: see its pg_hba.conf."),
    "3D000": ("missing", "The database that the URL names does not exist. Create it: see docs/how-to/scale-out.md."),
    "42501": ("forbidden", "The user of the database URL may not do this. Make it the owner of the database."),
    "53100": ("disk_full", "The disk of the database server is full; nothing of this call was written."),
    "25006": (
        "read_only",
        "The database server takes no writes: it is a standby, or another server is taking its place. Send the same "
        "call again in a moment. If it stays so, name the primary in the database URL.",
    ),
    "58030": ("io_error", "The disk of the database server refused a read or a write. See the server's log."),
    "XX001": ("damaged", "The database is damaged: see the server's log, and restore a backup."),
    "XX002": ("damaged", "An index of the database is damaged: see the server's log, then REINDEX DATABASE."),
}
# The server's own words at connecting come without a code.
SPOKEN: Mapping[str, str] = {
    "too many clients": "53300",
    "too many connections": "53300",
    "remaining connection slots": "53300",
    "password authentication failed": "28P01",
    "no password supplied": "28P01",
    "no pg_hba.conf entry": "28000",
    'role "': "28000",
    'database "': "3D000",
    "session is read-only": "25006",
}


def _source(error: BaseException) -> psycopg.Error | None:
    while error is not None and not isinstance(error, psycopg.Error):
        error = error.__cause__  # type: ignore[assignment]
    return error


def state(error: BaseException) -> str:
    """Return the five characters of SQLSTATE; empty if there is none."""
    source = _source(error)
    if source is None:
        return ""
    if source.sqlstate is None and isinstance(source, psycopg.OperationalError):
        return next((code for words, code in SPOKEN.items() if words in str(source)), "")
    return source.sqlstate or ""


def is_lost(error: BaseException) -> bool:
    """Return whether the server could not be reached, or the connection to it ended."""
    source, code = _source(error), state(error)
    if code:
        return code in LOST or code.startswith(CONNECTION_CLASS)
    # psycopg gives a connection that ended, and a pool that has none to lend, no code.
    return isinstance(source, psycopg.OperationalError | psycopg.InterfaceError)


def is_busy(error: BaseException) -> bool:
    """Return whether the same call may succeed in a moment: another writer was first, or the server was away."""
    return state(error) in {*LOCKED, "53300", "25006"} or is_lost(error)


def failure(error: BaseException) -> NexusError | None:
    """Return the DB_ERROR for an error of PostgreSQL, with its cause and what to do; None when unknown.

    `details.retryable` is true if the same call may succeed in a moment; otherwise there is `details.cause`. A text
    that PostgreSQL cannot store is a VALIDATION_ERROR, because a page's address may contain any text.
    """
    code = state(error)
    if code in LOCKED:
        text = "The store is busy with another writer. Send the same call again in a second or two."
        return NexusError(Code.DB_ERROR, text, {"retryable": True})
    if code == "53300":
        text = "The database server has no connection left (max_connections). Send the same call again in a moment."
        return NexusError(Code.DB_ERROR, text, {"retryable": True, "cause": "too_many_connections"})
    if isinstance(_source(error), PoolTimeout) and (why := Connection.why_not()) is not None and not is_lost(why):
        return failure(why)
    if is_lost(error):
        text = "The database server cannot be reached; nothing of this call was written. Send it again in a moment."
        return NexusError(Code.DB_ERROR, text, {"retryable": True, "cause": UNREACHABLE})
    if isinstance(_source(error), psycopg.DataError) and "NUL" in str(error):
        return invalid("A text holds a NUL character; remove it.")
    if code not in CAUSES:
        return None
    cause, message = CAUSES[code]
    return NexusError(
        Code.DB_ERROR, message, {"retryable": True, "cause": cause} if is_busy(error) else {"cause": cause}
    )


log = logging.getLogger(__name__)
logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # it warns at each try; `Connection` says what matters


SILENT_SECONDS = 10.0  # without a byte of the answer, until another connection asks the server for this one
HAS_BACKEND = "SELECT FROM pg_stat_activity WHERE pid = %s"


class Connection(psycopg.Connection[Any]):
    """A connection to the store's server. The log says once why none can be made, and once that one was made again.

    A statement may take as long as it takes. But if the server is silent, and does not tell a new connection that it
    still has this one, the statement ends as on a lost connection: a kernel acknowledges bytes for a server that hangs,
    so no timeout of TCP would end it.
    """

    _lock = threading.Lock()
    _error: psycopg.OperationalError | None = None  # of this process's last try

    @classmethod
    def connect(cls, *args: Any, **parameters: Any) -> Self:
        try:
            made = super().connect(*args, **parameters)
        except psycopg.OperationalError as error:
            if (cause := _cause(error)) != _cause(cls._tried(error)):
                said = " ".join(str(error).split())
                log.warning("The database is away (%s): %s. It is tried again.", cause, said)
            raise
        if cls._tried(None) is not None:
            log.warning("The database is back.")
        return made

    def wait(self, gen: Any, *arguments: Any, **bounds: Any) -> Any:
        return super().wait(self._heard(gen), *arguments, **bounds)

    def _heard(self, steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Take psycopg's steps, which wait for the socket and hear every 0.1 s that it is not ready."""
        try:
            wanted, heard = next(steps), monotonic()
            while True:
                ready = yield wanted
                if ready:
                    heard = monotonic()
                elif monotonic() - heard > SILENT_SECONDS:
                    self._ask_server()
                    heard = monotonic()
                wanted = steps.send(ready)
        except StopIteration as end:
            return end.value

    def _ask_server(self) -> None:
        """Close this connection and raise OperationalError unless its server still has it. Another server may answer
        at the same address, or at another one of the URL."""
        own = {"host": self.info.host, "hostaddr": self.info.hostaddr, "port": self.info.port}
        address = {**parameters(CoreSettings.current()), **own, "target_session_attrs": "any"}
        try:
            with closing(self.connect(**address, autocommit=True)) as other:
                if other.execute(HAS_BACKEND, [self.info.backend_pid]).fetchone():
                    return
        except psycopg.OperationalError as error:
            if not is_lost(error):
                return  # it answers, with a refusal
        self.close()
        raise psycopg.OperationalError("the server is silent")

    @classmethod
    def _tried(cls, error: psycopg.OperationalError | None) -> psycopg.OperationalError | None:
        """Record the outcome of a try; return that of the one before."""
        with Connection._lock:
            before, Connection._error = Connection._error, error
        return before

    @classmethod
    def why_not(cls) -> psycopg.OperationalError | None:
        """Return why no connection can be made, if the last try failed."""
        return Connection._error


def _cause(error: psycopg.OperationalError | None) -> str | None:
    if error is None:
        return None
    known = failure(error)
    return str(known.details.get("cause")) if known else "unknown"


CHANNEL = "nexus_commits"
OWN = secrets.token_hex(8)  # names this process: it learns of its own commits sooner
LOOK_SECONDS = 1.0  # how long a commit can stay unseen whose notification was lost
AGAIN_SECONDS = 1.0  # after the connection was lost


def takes_writes(connection: psycopg.Connection[Any]) -> bool:
    """Return whether a connection's server is a primary. After a switch-over, a connection to the former one may last.
    Raises psycopg.Error."""
    return connection.execute("SHOW transaction_read_only").fetchone() == ("off",)


class _Listener:
    """A thread that counts notifications of others' commits; it ends with the process."""

    def __init__(self) -> None:
        self.count = 0
        threading.Thread(target=self._run, name="nexus-listen", daemon=True).start()

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            with suppress(psycopg.Error):  # `Connection` says what matters
                address = parameters(CoreSettings.current())
                with closing(Connection.connect(**address, autocommit=True)) as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    self._listen(connection)
            self.count += 1
            pause.wait(AGAIN_SECONDS)

    def _listen(self, connection: Connection) -> None:
        while takes_writes(connection):
            self.count += 1  # what was committed before the listening began, or reached nobody
            for notification in connection.notifies(timeout=LOOK_SECONDS):
                if notification.payload != OWN:
                    self.count += 1


_lock = threading.Lock()
_listener: _Listener | None = None


class CommitWatch:
    """One task's watch for commits, over the process's listener."""

    def __init__(self, listener: _Listener) -> None:
        self._listener, self._seen = listener, listener.count

    def has_news(self, seen: int) -> bool:
        """Return whether there may have been a commit since the last call, whatever it added."""
        before, self._seen = self._seen, self._listener.count
        return self._seen != before

    def close(self) -> None:
        """Do nothing: the listener goes on, because others may watch."""


def watch() -> CommitWatch:
    """Begin to watch; the first watch of a process starts its listener."""
    global _listener
    with _lock:
        _listener = _listener or _Listener()
        return CommitWatch(_listener)
