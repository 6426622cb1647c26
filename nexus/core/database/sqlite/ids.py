"""The ids that a table gives out: `sqlite_sequence` knows the highest, whatever became of the row."""

from __future__ import annotations

from django.db import connection
from django.db.models import Model


def given_out(model: type[Model]) -> int:
    """The highest automatic id that a model's table gave out, whatever became of its row; 0 when it gave none."""
    return _given_out(model._meta.db_table)


def give_out_above(model: type[Model], head: int) -> None:
    """Inside a transaction: the next automatic id is above `head`, and above what was given out before."""
    table = model._meta.db_table
    if head > _given_out(table):
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM sqlite_sequence WHERE name = %s", [table])
            cursor.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (%s, %s)", [table, head])


def admit_gaps(table: str) -> None:
    """Inside a transaction: ids that `table` lacks now, up to the highest it gave out, are no fault to doctor."""
    with connection.cursor() as cursor:
        cursor.execute(gaps_admitted(_given_out(table)))


def _given_out(table: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = %s", [table])
        return int(cursor.fetchone()[0] or 0)


def gaps_admitted(upto: int) -> str:
    """The statement by which a store says that ids up to `upto` may be missing: `PRAGMA user_version` holds it."""
    return f"PRAGMA user_version = {min(upto, 2**31 - 1):d}"
