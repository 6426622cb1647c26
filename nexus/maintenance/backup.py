"""Backup of the store while it is in use, and restore of a backup while nobody uses the store."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from coordination.log.emit import streams
from nexus.core import files
from nexus.core.apps import own_labels
from nexus.core.clock import now
from nexus.core.config import CoreSettings
from nexus.core.database.migrations import refuse_other_version
from nexus.core.database.sqlite.errors import DAMAGED, beside, refuse_damaged
from nexus.core.database.store import store
from nexus.core.operations.errors import Code, NexusError
from nexus.core.progress import Bar
from nexus.maintenance import store_file
from nexus.maintenance.store_users import users_of_file

UNREAD_IDS = 1_000_000  # assumed since the backup, if the store cannot be read
RESTORED = "history.restored"  # the event for every follower


@dataclass(frozen=True)
class Backup:
    """A checked copy of a store."""

    path: Path
    size_bytes: int
    rows: dict[str, int]  # by table
    schema: list[tuple[str, str, str | None]]


@dataclass(frozen=True)
class Restored:
    """The result of `restore`."""

    rows: dict[str, int]
    replaced: Path | None  # the path of the former store; None if there was none


def stamp() -> str:
    """Return the time as it appears in this module's file names."""
    return now().strftime("%Y%m%dT%H%M%S%fZ")


def file_of(config: CoreSettings) -> Path:
    """Return the file of the store. Raises CONFIG_ERROR on PostgreSQL, whose own programs make its backups."""
    if config.database_url is not None:
        raise NexusError(
            Code.CONFIG_ERROR,
            "The store is on PostgreSQL: back it up with pg_dump and restore it with pg_restore, as "
            "docs/how-to/scale-out.md shows.",
        )
    return config.database


def back_up(database: Path, destination: Path, progress: Bar | None = None) -> Backup:
    """Copy the store as it is at one moment, while others write, and check the copy before it gets its name.

    Raises VALIDATION_ERROR if there is no store or `destination` exists, DB_ERROR if the store is damaged or the copy
    cannot be written. Leaves nothing behind then.
    """
    if not database.exists():
        raise NexusError(Code.VALIDATION_ERROR, f"There is no store at {database}. Check --home and --db-path.")
    if destination.exists():
        raise store_file.exists_error(destination)
    with (
        store_file.explained(f"No backup was written to {destination}."),
        store_file.partial_file(destination) as partial,
    ):
        refuse_damaged(database)
        with closing(store_file.open_store(database)) as source, store_file.one_state(source):
            source.execute("PRAGMA query_only=ON")
            store_file.copy(source, partial, progress)
            made = checked(partial, progress)
            if (made.rows, made.schema) != (store_file.row_counts(source), store_file.schema(source)):
                raise NexusError(Code.DB_ERROR, "The copy differs from the store. Run `nexus doctor`, then try again.")
        store_file.publish(partial, destination)
    return replace(made, path=destination)


def checked(path: Path, progress: Bar | None = None) -> Backup:
    """Check a copy and return what it holds. Raises DB_ERROR for a damaged one, or one that is not a Nexus store."""
    refuse_damaged(path)
    with closing(store_file.open_store(path, "immutable=1")) as copy:
        if store_file.integrity_faults(copy, progress) or store_file.dangling_references(copy, progress):
            raise NexusError(Code.DB_ERROR, DAMAGED, {"cause": "damaged"})
        applied = store_file.migrations(copy)
        if not any(app in own_labels() for app, _ in applied):
            raise NexusError(Code.VALIDATION_ERROR, f"{path} is not a store of Nexus.")
        return Backup(path, path.stat().st_size, store_file.row_counts(copy), store_file.schema(copy))


def restore(backup: Path, database: Path, *, home: Path, progress: Bar | None = None) -> Restored:
    """Replace the store with a backup, completely or not at all; keep the former store beside it, a damaged one with
    its write-ahead log. A store in use is refused.

    No id is given out twice: event ids continue above the former store's. The first new events are `history.restored`,
    one in each stream of each workspace, so that every follower with a cursor from the former history sees it.

    Raises VALIDATION_ERROR for a file that is not a backup, MIGRATION_ERROR for one of a newer version or one that is
    too old, DB_ERROR for a damaged one or a store in use.
    """
    if not backup.is_file():
        raise NexusError(Code.VALIDATION_ERROR, f"There is no backup at {backup}.")
    with store_file.explained("Nothing was restored."):
        database.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with store_file.partial_file(database) as partial:
            refuse_damaged(backup)
            with closing(store_file.open_to_look(backup)) as source, store_file.one_state(source):
                store_file.copy(source, partial, progress)
                applied = store_file.migrations(source)
            made = checked(partial, progress)
            refuse_other_version(backup, applied)
            if users := users_of_file(database, home):
                raise NexusError(
                    Code.DB_ERROR, f"The store is in use by {users}. Stop that first.", {"cause": "in_use"}
                )
            _go_on_above(partial, database, damaged=database.exists() and not _takes_in_its_log(database))
            aside = database.with_name(f"{database.name}.replaced-{stamp()}")
            _swap(partial, database, aside)
    return Restored(made.rows, aside if aside.exists() else None)


def _go_on_above(copy: Path, former: Path, *, damaged: bool = False) -> None:
    """Let a copy's event ids continue above those of the former store, and record the restore in its log.

    The ids of a damaged store may be unknown; then they continue far above.
    """
    with closing(store_file.open_store(copy)) as restored:
        restored_to = _given_out(restored)
        head = max(restored_to, _given_out_of(former))
        head += UNREAD_IDS if damaged else 0
        restored.execute("BEGIN IMMEDIATE")
        if head > restored_to:
            restored.execute("DELETE FROM sqlite_sequence WHERE name = 'events'")
            restored.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?)", (head,))
        payload = json.dumps({"restored_to": restored_to, "former": head})
        restored.executemany(
            "INSERT INTO events (workspace_id, stream, type, payload, visibility, created_at)"
            " SELECT number, ?, ?, ?, 'public', ?"
            " FROM (SELECT number FROM workspaces UNION ALL SELECT NULL) ORDER BY number",
            [(stream, RESTORED, payload, now().strftime("%Y-%m-%d %H:%M:%S.%f")) for stream in streams()],
        )
        restored.execute("COMMIT")


def _given_out_of(former: Path) -> int:
    if not former.exists():
        return 0
    try:
        with closing(store_file.open_to_look(former)) as store:
            return _given_out(store)
    except sqlite3.DatabaseError:
        return 0


def _given_out(connection: sqlite3.Connection) -> int:
    """Return the highest event id that a store gave out."""
    return int(connection.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = 'events'").fetchone()[0] or 0)


def _takes_in_its_log(database: Path) -> bool:
    """Write the store's log into its file, so that the file is all of it; return False for a damaged store."""
    try:
        refuse_damaged(database)
        store_file.one_file(database)
    except (sqlite3.DatabaseError, NexusError) as error:
        known = error if isinstance(error, NexusError) else store().failure(error)
        if known is None or known.details.get("cause") != "damaged":
            raise
        return False
    return True


def _swap(copy: Path, database: Path, aside: Path) -> None:
    """Move the former store aside and the copy into its place. The log of a damaged store goes before the store's name
    is reused: a log must never meet another store."""
    for suffix in ("-wal", "-shm"):
        if beside(database, suffix).exists():
            beside(database, suffix).rename(beside(aside, suffix))
    if database.exists():
        os.link(database, aside)
    copy.rename(database)
    files.sync(database.parent)
