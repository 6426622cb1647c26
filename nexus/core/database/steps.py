"""Migration steps for one of the databases only, and steps that take long."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from django.core.management.base import OutputWrapper
from django.db import migrations
from django.db.models import Model

from nexus.core.database.store import store
from nexus.core.progress import Bar

ROWS_AT_ONCE = 20_000
# PostgreSQL rewrites a table in one statement, of which nothing else can tell how far it is.
FOUND = """
CREATE TEMP SEQUENCE looked_up;
CREATE FUNCTION pg_temp.found(text) RETURNS {stored} LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('pg_temp.looked_up') % {at_once} = 0 THEN
        RAISE INFO '%', currval('pg_temp.looked_up');
    END IF;
    RETURN ({found} $1);
END $$
"""


class SQLFor(migrations.RunSQL):
    """SQL for one database only: `sqlite` or `postgresql`."""

    def __init__(self, vendor: str, sql: str, reverse_sql: str = migrations.RunSQL.noop) -> None:
        super().__init__(sql, reverse_sql)
        self.vendor = vendor

    def deconstruct(self) -> tuple[str, Sequence[Any], dict[str, Any]]:
        name, args, kwargs = super().deconstruct()
        return name, args, {"vendor": self.vendor, **kwargs}

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor == self.vendor:
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor == self.vendor:
            super().database_backwards(app_label, schema_editor, from_state, to_state)


class AlterReference(migrations.AlterField):
    """Let a foreign key refer to the same rows by another of their columns; it reports its progress on stderr."""

    reversible = False

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        former, model = (state.apps.get_model(app_label, self.model_name) for state in (from_state, to_state))
        before, after = (each._meta.get_field(self.name) for each in (former, model))
        referred = (after.target_field.column, after.related_model._meta.db_table, before.target_field.column)
        found = "SELECT {} FROM {} WHERE {} = ".format(*map(schema_editor.quote_name, referred))  # noqa: S608
        if schema_editor.connection.vendor == "postgresql":
            _alter_column(schema_editor, former, before, model, after, found)
            return
        beside = to_state.clone()
        renamed = migrations.AlterModelTable(self.model_name, f"new__{model._meta.db_table}")
        renamed.state_forwards(app_label, beside)
        _copy_table(schema_editor, former, before, beside.apps.get_model(app_label, self.model_name), found)


def _alter_column(
    schema_editor: Any, former: type[Model], before: Any, model: type[Model], after: Any, found: str
) -> None:
    for name in schema_editor._constraint_names(former, [before.column], foreign_key=True):
        schema_editor.execute(schema_editor._delete_fk_sql(former, name))
    table, column = map(schema_editor.quote_name, (former._meta.db_table, before.column))
    stored = after.db_type(schema_editor.connection)
    schema_editor.execute(FOUND.format(stored=stored, found=found, at_once=ROWS_AT_ONCE), None)
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {table}")  # noqa: S608
        (rows,) = cursor.fetchone()
    progress = Bar(OutputWrapper(sys.stderr), f"Migrating {former._meta.db_table}")

    def hear(notice: Any) -> None:
        if (notice.message_primary or "").isdecimal():
            progress(0, max(rows - int(notice.message_primary), 0), rows)

    schema_editor.connection.connection.add_notice_handler(hear)
    try:
        schema_editor.execute(f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {stored} USING pg_temp.found({column})")
    finally:
        schema_editor.connection.connection.remove_notice_handler(hear)
    schema_editor.execute("DROP FUNCTION pg_temp.found(text)")
    schema_editor.execute("DROP SEQUENCE pg_temp.looked_up")
    schema_editor.execute(schema_editor._create_fk_sql(model, after, "_fk_%(to_table)s_%(to_column)s"))


def _copy_table(schema_editor: Any, former: type[Model], before: Any, made: type[Model], found: str) -> None:
    """Copy a table into its replacement, some rows at a time, as Django does when SQLite cannot alter it."""
    table, quoted = former._meta.db_table, schema_editor.quote_name
    columns = {field.column: quoted(field.column) for field in made._meta.local_concrete_fields}
    values = columns | {before.column: f"({found}{quoted(table)}.{quoted(before.column)})"}
    copy = (
        f"INSERT INTO {quoted(made._meta.db_table)} ({', '.join(columns.values())}) "  # noqa: S608
        f"SELECT {', '.join(values.values())} FROM {quoted(table)} WHERE rowid > %s AND rowid <= %s"
    )
    schema_editor.create_model(made)
    with schema_editor.connection.cursor() as cursor:
        # SQLite renames no table while a trigger names one that is gone.
        triggers = cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            cursor.execute(f"DROP TRIGGER {quoted(name)}")
        cursor.execute(f"SELECT min(rowid), max(rowid) FROM {quoted(table)}")  # noqa: S608
        first, last = (number or 0 for number in cursor.fetchone())
        progress = Bar(OutputWrapper(sys.stderr), f"Migrating {table}")
        for start in range(first - 1, last, ROWS_AT_ONCE):
            cursor.execute(copy, [start, start + ROWS_AT_ONCE])
            progress(0, max(last - start - ROWS_AT_ONCE, 0), last - first + 1)
        progress.still("indexes")
    given_out = store().given_out(former)
    schema_editor.delete_model(former, handle_autom2m=False)
    schema_editor.alter_db_table(made, made._meta.db_table, table)
    if given_out:
        store().give_out_above(former, given_out)  # its newest rows may be gone
    for _, trigger in triggers:
        schema_editor.execute(trigger)
