"""The ids that a table gives out: its sequence knows the highest, whatever became of the row."""

from __future__ import annotations

from django.db import connection
from django.db.models import Model


def given_out(model: type[Model]) -> int:
    """The highest automatic id that a model's table gave out; 0 when it gave none."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {sequence(model)}")  # noqa: S608
        return int(cursor.fetchone()[0])


def give_out_above(model: type[Model], head: int) -> None:
    """Inside a transaction: the next automatic id is above `head`, and above what was given out before."""
    if head > given_out(model):
        with connection.cursor() as cursor:
            cursor.execute("SELECT setval(%s, %s)", [sequence(model), head])


def sequence(model: type[Model]) -> str:
    """The sequence of a model's automatic key, quoted."""
    with connection.cursor() as cursor:
        table = connection.ops.quote_name(model._meta.db_table)
        cursor.execute("SELECT pg_get_serial_sequence(%s, %s)", [table, model._meta.pk.column])
        return str(cursor.fetchone()[0])
