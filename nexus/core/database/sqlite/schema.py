"""Preparation of an SQLite store: a file that is damaged, or newer or much older than the code, is refused, others are
migrated under a lock."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from django.core.management import call_command
from django.db import connection, transaction

from nexus.core.apps import database_objects
from nexus.core.config import CoreSettings
from nexus.core.database import store_file
from nexus.core.database.migrations import create_tables, pending_migrations, refuse_other_version
from nexus.core.database.sqlite.errors import READ_ONLY, failure, not_a_store, refuse_damaged
from nexus.core.operations.errors import Code, NexusError
from nexus.core.sqlite import connect

log = logging.getLogger(__name__)

LOCK_SECONDS = 120  # a migration by another process may take this long


def prepare() -> None:
    """Create the home and migrate the store to this version, once, however many processes start together.

    Raises DB_ERROR when the file cannot be opened or is another program's, MIGRATION_ERROR when it is newer than the
    code, older than it can migrate, or a step failed.
    """
    database: Path = CoreSettings.current().database
    try:
        CoreSettings.current().home.mkdir(parents=True, exist_ok=True, mode=0o700)
        refuse_damaged(database)
        if not database.exists():
            database.touch(mode=0o600)
    except OSError as error:
        raise NexusError(
            Code.DB_ERROR,
            f"Cannot create the store at {database}: {error.strerror}. Choose another --home or --db-path.",
        ) from None
    if not all(os.access(path, os.W_OK) for path in (database, database.parent)):
        raise NexusError(Code.DB_ERROR, f"Cannot use the store at {database}. {READ_ONLY}", {"cause": "read_only"})
    if pending():
        _migrate(database)


def pending() -> bool:
    """Return whether a migration is not applied, or a process died before it had created the triggers again.

    It reads file names and two small tables only, because a start must stay quick.
    """
    store_file.check()
    database = CoreSettings.current().database
    try:
        patience = CoreSettings.current().busy_timeout_ms / 1000
        with closing(connect(store_file.existing(database), timeout=patience, uri=True)) as store:
            store.execute("BEGIN")  # one state: another process may be making the store, and its first table is ours
            known = store.execute("SELECT 1 FROM sqlite_master WHERE name = 'django_migrations'").fetchone()
            if not known and store.execute("SELECT 1 FROM sqlite_master WHERE type = 'table'").fetchone():
                raise not_a_store(database)
            rows = store.execute("SELECT app, name FROM django_migrations").fetchall() if known else []
            incomplete = bool(absent(store, database_objects("sqlite")))
    except sqlite3.Error as error:
        raise _cannot_open(database, error) from None
    applied = {(app, name) for app, name in rows}
    refuse_other_version(database, applied)
    return incomplete or bool(pending_migrations(applied))


def _cannot_open(database: Path, error: Exception) -> NexusError:
    known = failure(error)
    if known is None:
        log.error("opening %s failed", database, exc_info=error)
        return NexusError(Code.DB_ERROR, f"Cannot use the store at {database}; the log has the cause.")
    return NexusError(Code.DB_ERROR, f"Cannot use the store at {database}. {known.message}", known.details)


def _migrate(database: Path) -> None:
    from filelock import FileLock, Timeout

    try:
        with FileLock(f"{database}.migrate.lock", timeout=LOCK_SECONDS, mode=0o600):
            if pending():
                create_tables()
                call_command("migrate", interactive=False, verbosity=0)
    except Timeout:
        raise NexusError(
            Code.MIGRATION_ERROR,
            f"Another process has been migrating {database} for {LOCK_SECONDS} s. Try again later.",
        ) from None
    except NexusError:
        raise
    except Exception as error:  # whatever a step raises
        known = failure(error)
        if known is None:
            log.exception("migrating %s failed", database)
        raise NexusError(
            Code.MIGRATION_ERROR,
            f"Migrating {database} failed. {known.message if known else 'The log has the cause.'} The step that failed "
            "was undone, those before it stay applied, nothing is lost. Start again once the cause is gone.",
            known.details if known else {},
        ) from error
    finally:
        connection.close()


def absent(store: sqlite3.Connection, objects: Mapping[str, str]) -> list[str]:
    """Return the names of triggers that a store lacks or has with another text."""
    present = dict(store.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall())
    return [name for name, statement in objects.items() if present.get(name, "").split() != statement.split()]


def install(objects: Mapping[str, str]) -> None:
    """Create triggers anew, by name; a repetition changes nothing."""
    with transaction.atomic(), connection.cursor() as cursor:
        for name, statement in objects.items():
            cursor.execute(f'DROP TRIGGER IF EXISTS "{name}"')
            cursor.execute(statement)
