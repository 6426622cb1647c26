"""Partitions of a large table, by ranges of its automatic key: they are made ahead, and old ones are dropped whole.

Rows beyond the last range go to a partition without one, so that no insert fails where nobody made partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import connection
from django.db.models import Model

from nexus.core.database.base import SMALLEST

# A long reader must not hold up all others behind the lock of one who waits for it: that one tries again later.
LOCK_TIMEOUT = "SET LOCAL lock_timeout = '100ms'"
RANGES = r"""
    WITH bounds AS (
        SELECT c.relname AS name, pg_get_expr(c.relpartbound, c.oid) AS bound
        FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid WHERE inhparent = %s::regclass
    )
    SELECT name, substring(bound FROM 'FROM \(''(\d+)''\)')::bigint AS first,
        substring(bound FROM 'TO \(''(\d+)''\)')::bigint
    FROM bounds WHERE bound <> 'DEFAULT' ORDER BY first
"""
TRIGGERS = "SELECT tgname FROM pg_trigger WHERE tgrelid = %s::regclass AND NOT tgisinternal"
CONSTRAINTS = """
    SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %s::regclass AND contype IN ('p', 'f')
"""
INDEXES = """
    SELECT relname, CASE WHEN NOT indisprimary THEN pg_get_indexdef(indexrelid) END
    FROM pg_index JOIN pg_class c ON c.oid = indexrelid WHERE indrelid = %s::regclass
"""


@dataclass(frozen=True)
class Partition:
    """The rows of a table with a key from `first` to the one before `beyond`."""

    model: type[Model]
    name: str
    first: int
    beyond: int

    def drop(self) -> bool:
        """Delete these rows at once, without their triggers; return whether no other process was first. Call it in a
        transaction that writes alone. Raises Django's error of a busy store if somebody has been reading for long."""
        if self not in partitions(self.model):
            return False
        with connection.cursor() as cursor:
            cursor.execute(LOCK_TIMEOUT)
            cursor.execute(f"DROP TABLE {connection.ops.quote_name(self.name)}")
        return True


def partitions(model: type[Model]) -> Sequence[Partition]:
    """Return the partitions that have a range, lowest first; none where the table is a plain one."""
    with connection.cursor() as cursor:
        cursor.execute(RANGES, [connection.ops.quote_name(model._meta.db_table)])
        return [Partition(model, *row) for row in cursor.fetchall()]


def extend(model: type[Model], *, upto: int, size: int) -> None:
    """Add partitions until there is room for keys up to `upto`. If rows came beyond the last range, the partition that
    has them gets a range, which takes a scan of it."""
    table, default = (connection.ops.quote_name(f"{model._meta.db_table}{suffix}") for suffix in ("", "_default"))
    with connection.cursor() as cursor:
        there = partitions(model)
        if not there:
            return
        first = there[-1].beyond
        cursor.execute(LOCK_TIMEOUT)
        cursor.execute(f"SELECT max({_key(model)}) FROM {default}")  # noqa: S608
        (stray,) = cursor.fetchone()
        while first <= upto:
            beyond = first + _whole(size)
            name = connection.ops.quote_name(f"{model._meta.db_table}_{first}")
            if stray is not None and stray >= first:
                beyond = max(beyond, _whole(stray + 1))
                cursor.execute(f"ALTER TABLE {table} DETACH PARTITION {default}")
                cursor.execute(f"ALTER TABLE {default} RENAME TO {name}")
                cursor.execute(f"CREATE TABLE {default} PARTITION OF {table} DEFAULT")
            else:
                cursor.execute(f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL EXCLUDING IDENTITY)")
            cursor.execute(f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ({first}) TO ({beyond})")
            first = beyond


def partition(model: type[Model], head: int) -> None:
    """Partition a plain table, which becomes the first partition. It gets its triggers with the next migration."""
    quote = connection.ops.quote_name
    table, first, default = (quote(f"{model._meta.db_table}{suffix}") for suffix in ("", "_0", "_default"))
    with connection.cursor() as cursor:

        def found(query: str) -> list[tuple[str, ...]]:
            cursor.execute(query, [table])
            return list(cursor.fetchall())

        for (trigger,) in found(TRIGGERS):
            cursor.execute(f"DROP TRIGGER {quote(trigger)} ON {table}")
        constraints, indexes = found(CONSTRAINTS), found(INDEXES)
        for name, _ in indexes:
            cursor.execute(f"ALTER INDEX {quote(name)} RENAME TO {quote(f'{name}_0')}")
        cursor.execute(f"ALTER TABLE {table} ALTER COLUMN {_key(model)} DROP IDENTITY")
        cursor.execute(f"ALTER TABLE {table} RENAME TO {first}")
        like = f"LIKE {first} INCLUDING ALL EXCLUDING INDEXES"
        cursor.execute(f"CREATE TABLE {table} ({like}) PARTITION BY RANGE ({_key(model)})")
        cursor.execute(f"ALTER TABLE {table} ALTER COLUMN {_key(model)} ADD GENERATED BY DEFAULT AS IDENTITY")
        for name, definition in constraints:
            cursor.execute(f"ALTER TABLE {table} ADD CONSTRAINT {quote(name)} {definition}")
        for _, definition in indexes:
            if definition:
                cursor.execute(definition)
        cursor.execute(f"ALTER TABLE {table} ATTACH PARTITION {first} FOR VALUES FROM (0) TO ({_whole(head + 1)})")
        cursor.execute(f"CREATE TABLE {default} PARTITION OF {table} DEFAULT")


def _key(model: type[Model]) -> str:
    return connection.ops.quote_name(str(model._meta.pk.column))


def _whole(ids: int) -> int:
    """Round up, so that every bound is a round number."""
    return -(-ids // SMALLEST) * SMALLEST
