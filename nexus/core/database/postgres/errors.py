"""What an error of PostgreSQL means: whether the same call may be sent again, and what to do if not."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg

from nexus.core.operations.errors import Code, NexusError, invalid

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
    "25006": ("read_only", "The database server takes no writes: it is a standby. Name the primary in the URL."),
    "58030": ("io_error", "The disk of the database server refused a read or a write. See the server's log."),
    "XX001": ("damaged", "The database is damaged: see the server's log, and restore a backup."),
    "XX002": ("damaged", "An index of the database is damaged: see the server's log, then REINDEX DATABASE."),
}
# The server's own words at connecting come without a code.
SPOKEN: Mapping[str, str] = {
    "password authentication failed": "28P01",
    "no password supplied": "28P01",
    "no pg_hba.conf entry": "28000",
    'role "': "28000",
    'database "': "3D000",
}


def _source(error: BaseException) -> psycopg.Error | None:
    while error is not None and not isinstance(error, psycopg.Error):
        error = error.__cause__  # type: ignore[assignment]
    return error


def state(error: BaseException) -> str:
    """The five characters of SQLSTATE; empty where there is none."""
    source = _source(error)
    if source is None:
        return ""
    if source.sqlstate is None and isinstance(source, psycopg.OperationalError):
        return next((code for words, code in SPOKEN.items() if words in str(source)), "")
    return source.sqlstate or ""


def is_lost(error: BaseException) -> bool:
    """Whether the server could not be reached, or the connection to it ended."""
    source, code = _source(error), state(error)
    if code:
        return code in LOST or code.startswith(CONNECTION_CLASS)
    # psycopg gives a connection that ended, and a pool that has none to lend, no code.
    return isinstance(source, psycopg.OperationalError | psycopg.InterfaceError)


def is_busy(error: BaseException) -> bool:
    """Whether the same call may succeed in a moment: another writer was first, or the server was away."""
    code = state(error)
    return code in LOCKED or code == "53300" or is_lost(error)


def failure(error: BaseException) -> NexusError | None:
    """The DB_ERROR for an error of PostgreSQL, with its cause and what to do; None when unknown.

    `details.retryable` is there, and true, where the same call may succeed in a moment; else `details.cause`. A text
    that PostgreSQL cannot hold is a VALIDATION_ERROR: pages ask for what their address says.
    """
    code = state(error)
    if code in LOCKED:
        text = "The store is busy with another writer. Send the same call again in a second or two."
        return NexusError(Code.DB_ERROR, text, {"retryable": True})
    if code == "53300":
        text = "The database server has no connection left (max_connections). Send the same call again in a moment."
        return NexusError(Code.DB_ERROR, text, {"retryable": True, "cause": "too_many_connections"})
    if is_lost(error):
        text = "The database server cannot be reached; nothing of this call was written. Send it again in a moment."
        return NexusError(Code.DB_ERROR, text, {"retryable": True, "cause": UNREACHABLE})
    if isinstance(_source(error), psycopg.DataError) and "NUL" in str(error):
        return invalid("A text holds a NUL character; remove it.")
    if code not in CAUSES:
        return None
    cause, message = CAUSES[code]
    return NexusError(Code.DB_ERROR, message, {"cause": cause})
