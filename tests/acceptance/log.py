"""Another process that writes to the event log, as fast as the store takes it; and a look into a store from outside."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from nexus.core.database.keys import number_of
from tests.acceptance.hub import START_SECONDS
from tests.postgres import SERVER, store_of

COLUMNS = "workspace_id, stream, type, actor_agent_id, payload, visibility, target, created_at"
VALUE = "%s" if SERVER else "?"  # how either driver marks a value in SQL


@contextmanager
def opened(home: Path) -> Iterator[Any]:
    """A connection to the store of a home, each statement a transaction: `execute`, as both databases' drivers have."""
    if SERVER:
        import psycopg

        with psycopg.connect(
            store_of(home)["NEXUS_DATABASE_URL"], autocommit=True, options="-c TimeZone=UTC"
        ) as connection:
            yield connection
    else:
        with closing(sqlite3.connect(home / "nexus.db", timeout=START_SECONDS, isolation_level=None)) as store:
            yield store


def append(
    home: Path,
    workspace_id: str,
    types: list[str],
    *,
    visibility: str = "public",
    target: str | None = None,
    payload: str = "{}",
) -> list[int]:
    """Append one event of each type, in one commit; their ids."""
    values = [(number_of(workspace_id), "workspace", type, "writer", payload, visibility, target) for type in types]
    with opened(home) as store:
        _begin(store)
        row = ", ".join([VALUE] * len(values[0]))
        insert = f"INSERT INTO events ({COLUMNS}) VALUES ({row}, CURRENT_TIMESTAMP) RETURNING event_id"
        ids = [store.execute(insert, value).fetchone()[0] for value in values]
        store.execute("COMMIT")
    return ids


def _begin(store: Any) -> None:
    """Begin as every writer of Nexus does."""
    if not SERVER:
        store.execute("BEGIN IMMEDIATE")
        return
    from nexus.core.database.postgres import connection as listener
    from nexus.core.database.postgres.store import WRITERS_LOCK

    store.execute("BEGIN")
    store.execute("SELECT pg_advisory_xact_lock(%s), pg_notify(%s, '')", (WRITERS_LOCK, listener.CHANNEL))
