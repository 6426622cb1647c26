"""Preparation of a PostgreSQL database: checks before anything is written, and migration under a lock."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from django.core.management import call_command
from django.db import connection, transaction

from nexus.core.apps import database_objects
from nexus.core.config import CoreSettings, without_password
from nexus.core.database.migrations import create_tables, pending_migrations, postgres_text, refuse_other_version
from nexus.core.database.postgres.connection import UNREACHABLE, failure, is_lost, parameters
from nexus.core.operations.errors import Code, NexusError

log = logging.getLogger(__name__)

OLDEST = 14
MIGRATION_LOCK = 0x4E787574
LOCK_SECONDS = 120  # a migration by another process may take this long
STEP_SECONDS = 0.2
STATE = """
    SELECT current_setting('server_version_num')::int / 10000, pg_encoding_to_char(encoding), datcollate,
        coalesce(has_schema_privilege(current_schema(), 'CREATE'), false), pg_is_in_recovery()
    FROM pg_database WHERE datname = current_database()
"""
TRIGGERS = """
    SELECT tgname, tgrelid::regclass::text, prosrc, pg_get_triggerdef(t.oid, true)
    FROM pg_trigger t JOIN pg_proc p ON p.oid = tgfoid
    WHERE NOT tgisinternal AND tgparentid = 0 AND tgenabled <> 'D' AND pg_table_is_visible(tgrelid)
"""
BYTEWISE = {"C", "POSIX", "C.UTF-8", "C.UTF8", "C.utf8", "ucs_basic"}
CREATE = "CREATE DATABASE … TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C.UTF-8'"


def prepare() -> None:
    """Migrate the database to this version, once, however many processes start together.

    Raises DB_ERROR when it cannot be reached or used, MIGRATION_ERROR when it is newer than the code, older than it can
    migrate, or a step failed.
    """
    try:
        CoreSettings.current().home.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise NexusError(
            Code.DB_ERROR,
            f"Cannot create the home {CoreSettings.current().home}: {error.strerror}. Choose another --home.",
        ) from None
    if pending():
        _migrate()


def pending() -> bool:
    """Return whether a migration of this version is not applied, or a trigger is missing or different.

    Raises as `prepare` does.
    """
    with direct() as server:
        version, encoding, collation, may_create, standby = _row(server, STATE)
        if version < OLDEST:
            raise _unfit(f"is PostgreSQL {version}; Nexus needs {OLDEST} or newer")
        if standby:
            raise _unfit("is a standby, which takes no writes. Name the primary in the URL")
        if encoding != "UTF8":
            raise _unfit(f"has the encoding {encoding}. Make one for Nexus: {CREATE}")
        if collation not in BYTEWISE:
            raise _unfit(f"sorts by {collation}, and ids sort by their bytes. Make one for Nexus: {CREATE}")
        known = _row(server, "SELECT to_regclass('django_migrations') IS NOT NULL")[0]
        applied = set(server.execute("SELECT app, name FROM django_migrations").fetchall()) if known else set()
        refuse_other_version(where(), applied)
        incomplete = bool(absent(server.execute(TRIGGERS), database_objects("postgresql")))
        waiting = incomplete or bool(pending_migrations(applied))
        if waiting and not may_create:
            raise _unfit("may not be changed by this user: it cannot create tables. Make the user the database's owner")
        return waiting


def absent(there: Iterable[tuple[Any, ...]], objects: Mapping[str, str]) -> list[str]:
    """Return the names of triggers that a store lacks or has with another text. `there` are the rows of TRIGGERS."""
    present = {row[0]: postgres_text(*row).split() for row in there}
    return [name for name, statements in objects.items() if present.get(name) != statements.split()]


def install(objects: Mapping[str, str]) -> None:
    """Create triggers anew, by name; a repetition changes nothing."""
    with transaction.atomic(), connection.cursor() as cursor:
        for statements in objects.values():
            cursor.execute(statements)


def where() -> str:
    """Return the database's address, without a password."""
    url = CoreSettings.current().database_url
    assert url is not None
    return without_password(url)


def _row(server: psycopg.Connection[Any], query: str) -> Any:
    row = server.execute(query.encode()).fetchone()
    assert row is not None
    return row


@contextmanager
def direct() -> Iterator[psycopg.Connection[Any]]:
    """Yield a connection without the pool, which would tell only its log why it has none. Raises DB_ERROR."""
    try:
        with psycopg.connect(**parameters(CoreSettings.current()), autocommit=True) as server:
            yield server
    except psycopg.Error as error:
        known = failure(error)
        if is_lost(error):
            text = f"No database server answers at {where()}. Start it, or correct host, port and sslmode of the URL."
            raise NexusError(Code.DB_ERROR, text, {"retryable": True, "cause": UNREACHABLE}) from None
        if known is None:
            log.error("opening %s failed", where(), exc_info=error)
            raise NexusError(Code.DB_ERROR, f"Cannot use the store at {where()}; the log has the cause.") from None
        raise NexusError(Code.DB_ERROR, f"Cannot use the store at {where()}. {known.message}", known.details) from None


def _unfit(why: str) -> NexusError:
    return NexusError(Code.DB_ERROR, f"The database at {where()} {why}.", {"cause": "unfit"})


def _migrate() -> None:
    deadline = time.monotonic() + LOCK_SECONDS
    with direct() as server:
        while not _row(server, f"SELECT pg_try_advisory_lock({MIGRATION_LOCK})")[0]:
            if time.monotonic() >= deadline:
                raise NexusError(
                    Code.MIGRATION_ERROR,
                    f"Another process has been migrating {where()} for {LOCK_SECONDS} s. Try again later.",
                )
            time.sleep(STEP_SECONDS)
        if not pending():  # another process did it while this one waited
            return
        try:
            create_tables()
            call_command("migrate", interactive=False, verbosity=0)
        except NexusError:
            raise
        except Exception as error:  # whatever a step raises
            known = failure(error)
            if known is None:
                log.exception("migrating %s failed", where())
            raise NexusError(
                Code.MIGRATION_ERROR,
                f"Migrating {where()} failed. {known.message if known else 'The log has the cause.'} The step that "
                "failed was undone, those before it stay applied, nothing is lost. Start again once the cause is gone.",
                known.details if known else {},
            ) from error
        finally:
            connection.close()
