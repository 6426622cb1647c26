"""Another process that writes to the event log, as fast as the store takes it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

COLUMNS = "workspace_id, stream, type, actor_agent_id, payload, visibility, target, created_at"


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
    with closing(sqlite3.connect(home / "nexus.db", timeout=30, isolation_level=None)) as store:
        store.execute("BEGIN IMMEDIATE")
        ids = []
        for type in types:
            cursor = store.execute(
                f"INSERT INTO events ({COLUMNS}) VALUES (?, 'workspace', ?, 'writer', ?, ?, ?, datetime('now'))",
                (workspace_id, type, payload, visibility, target),
            )
            assert cursor.lastrowid is not None
            ids.append(cursor.lastrowid)
        store.execute("COMMIT")
    return ids
