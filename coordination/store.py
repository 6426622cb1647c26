"""The store on disk: made, migrated under a lock, refused when it is newer than the code."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from django.db import DatabaseError, connection

from coordination.errors import Code, NexusError

log = logging.getLogger(__name__)

OWN_APPS = ("coordination", "inbox", "handoffs")
LOCK_SECONDS = 120  # a migration by another process may take this long


def prepare() -> None:
    """Create the home and bring the store to this version, once, however many processes start together.

    Raises DB_ERROR when the file cannot be opened, MIGRATION_ERROR when it is newer than the code or a step failed.
    """
    database: Path = settings.NEXUS.database
    try:
        settings.NEXUS.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not database.exists():
            database.touch(mode=0o600)
    except OSError as error:
        raise NexusError(
            Code.DB_ERROR,
            f"Cannot create the store at {database}: {error.strerror}. Choose another --home or --db-path.",
        ) from None
    if _pending(database):
        _migrate(database)


def schema_version() -> int:
    """How many migrations of Nexus's own apps are applied: rises by one with each."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM django_migrations WHERE app IN (%s, %s, %s)", OWN_APPS)
        return int(cursor.fetchone()[0])


def _pending(database: Path) -> bool:
    """Whether a migration on disk is not applied. Reads file names and one table: a start must stay quick."""
    try:
        with closing(sqlite3.connect(database, timeout=settings.NEXUS.busy_timeout_ms / 1000)) as store:
            known = store.execute("SELECT 1 FROM sqlite_master WHERE name = 'django_migrations'").fetchone()
            rows = store.execute("SELECT app, name FROM django_migrations").fetchall() if known else []
    except sqlite3.DatabaseError as error:
        raise NexusError(
            Code.DB_ERROR, f"{database} cannot be read as a store. Point --db-path at a Nexus store, or at a new file."
        ) from error
    applied = {(app, name) for app, name in rows}
    shipped = {
        (config.label, path.stem)
        for config in apps.get_app_configs()
        for path in Path(config.path, "migrations").glob("[0-9]*.py")
    }
    if newer := {row for row in applied - shipped if row[0] in OWN_APPS}:
        raise NexusError(
            Code.MIGRATION_ERROR,
            f"The store at {database} was written by a newer version. Upgrade Nexus or choose another --db-path.",
            {"unknown_migrations": sorted(".".join(row) for row in newer)},
        )
    return bool(shipped - applied)


def _migrate(database: Path) -> None:
    from filelock import FileLock, Timeout

    try:
        with FileLock(f"{database}.migrate.lock", timeout=LOCK_SECONDS, mode=0o600):
            if _pending(database):
                call_command("migrate", interactive=False, verbosity=0)
    except Timeout:
        raise NexusError(
            Code.MIGRATION_ERROR,
            f"Another process has been migrating {database} for {LOCK_SECONDS} s. Try again later.",
        ) from None
    except (DatabaseError, OSError) as error:
        log.exception("migrating %s failed", database)
        raise NexusError(
            Code.MIGRATION_ERROR,
            f"Migrating {database} failed; the log has the cause. The steps before it stay applied.",
        ) from error
    finally:
        connection.close()


@contextmanager
def without_waiting() -> Iterator[None]:
    """Inside, a lock held by another connection fails at once instead of after the busy timeout."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 0")
        try:
            yield
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {settings.NEXUS.busy_timeout_ms:d}")


@contextmanager
def snapshot() -> Iterator[None]:
    """Inside, every read sees the same committed state, and no lock is taken that a writer would wait for."""
    with connection.cursor() as cursor:
        cursor.execute("BEGIN DEFERRED")
        try:
            yield
        finally:
            cursor.execute("ROLLBACK")
