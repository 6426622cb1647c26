"""The migrations of Nexus's own apps, those that a store has applied, and SQL of one database only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from django.apps import apps
from django.db import connection
from django.db.migrations import RunPython, RunSQL
from django.db.migrations.state import ProjectState

from nexus.core.apps import own_labels
from nexus.core.operations.errors import Code, NexusError

# In the name of a migration that replaces all up to another one, as `manage.py squashmigrations` does. Only that one
# stands in its `replaces`, and is recorded with it: a store that has it lacks nothing, and a start need not write.
SQUASHED = "_squashed_"
# The commit is one that has all replaced migrations.
MIGRATE_FIRST = "Start commit f693ed07 of Nexus once on it, which migrates it, then this version."


def shipped_migrations() -> set[tuple[str, str]]:
    """Return (app, name) of every migration of this version, from the file names: nothing is imported."""
    return {
        (config.label, path.stem)
        for config in apps.get_app_configs()
        for path in Path(config.path, "migrations").glob("[0-9]*.py")
    }


def pending_migrations(applied: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return (app, name) of the migrations of this version that are not applied."""
    return {(app, name) for app, name in shipped_migrations() if (app, _last_replaced(name) or name) not in applied}


def unknown_migrations(applied: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return (app, name) of the applied migrations of Nexus's own apps that this version does not know; a newer one
    applied them."""
    shipped, own = shipped_migrations(), set(own_labels())
    replaced = {app: _last_replaced(name) for app, name in shipped if SQUASHED in name}
    return {(app, name) for app, name in applied - shipped if app in own and name > replaced.get(app, "")}


def replaced_and_pending(applied: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return (app, name) of the replaced migrations that a store still needs because it has earlier ones of their
    app."""
    begun = {app for app, _ in applied}
    return {(app, last) for app, name in pending_migrations(applied) if app in begun and (last := _last_replaced(name))}


def _last_replaced(name: str) -> str:
    return name.partition(SQUASHED)[2]


def schema_version() -> int:
    """Return the number of applied migrations of Nexus's own apps, with those that were replaced; it rises by one with
    each."""
    labels = own_labels()
    with connection.cursor() as cursor:
        marks = ", ".join(["%s"] * len(labels))
        cursor.execute(f"SELECT max(name) FROM django_migrations WHERE app IN ({marks}) GROUP BY app", labels)  # noqa: S608
        return sum(int(name.partition("_")[0]) for (name,) in cursor.fetchall())


def refuse_other_version(where: object, applied: set[tuple[str, str]]) -> None:
    """Check that a store has no migration that this version does not know, and lacks none that this version has no
    more. Raises MIGRATION_ERROR."""
    if newer := unknown_migrations(applied):
        raise NexusError(
            Code.MIGRATION_ERROR,
            f"The store at {where} was written by a newer version. Upgrade Nexus or choose another store.",
            {"unknown_migrations": sorted(".".join(row) for row in newer)},
        )
    if older := replaced_and_pending(applied):
        raise NexusError(
            Code.MIGRATION_ERROR,
            f"The store at {where} is too old for this version and was left as it is. {MIGRATE_FIRST}",
            {"pending_migrations": sorted(".".join(row) for row in older)},
        )


def create_tables() -> None:
    """Give a store that has no table all of them at once, as this version's migrations leave them.

    It is all done or nothing. `migrate` would make them step by step, and for most steps Django makes the classes of
    all models anew: that takes about four times as long. Of the steps, those in SQL and Python are run at the end.
    """
    from django.db.migrations.executor import MigrationExecutor  # few processes migrate

    executor = MigrationExecutor(connection)
    if executor.loader.applied_migrations:
        return
    plan = [migration for migration, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())]
    state = ProjectState(real_apps=executor.loader.unmigrated_apps)
    for migration in plan:
        migration.mutate_state(state, preserve=False)
    with connection.schema_editor() as editor:
        for model in state.apps.get_models():
            if model._meta.can_migrate(connection):
                editor.create_model(model)
        while editor.deferred_sql:  # the indexes, which a step may move
            editor.execute(editor.deferred_sql.pop(0), None)
        for migration in plan:
            for step in migration.operations:
                if isinstance(step, RunSQL | RunPython):
                    step.database_forwards(migration.app_label, editor, state, state)
            for label, name in [*migration.replaces, (migration.app_label, migration.name)]:
                executor.recorder.record_applied(label, name)


class SQLFor(RunSQL):
    """SQL for one database only: `sqlite` or `postgresql`."""

    def __init__(self, vendor: str, sql: str, reverse_sql: str = RunSQL.noop) -> None:
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


def postgres_triggers(parts: Mapping[str, tuple[str, str, str]]) -> dict[str, str]:
    """Return triggers by name; `parts` gives the moment, the body and the condition of each."""
    return {name: postgres_trigger(name, moment, body, when=when) for name, (moment, body, when) in parts.items()}


def postgres_trigger(name: str, moment: str, body: str, *, when: str = "true") -> str:
    """Return the SQL that creates a trigger anew, with its function. `moment` is such as `AFTER INSERT ON events`;
    `body` is PL/pgSQL that sees the rows `new` and `old`. The condition is in the function, because PostgreSQL
    keeps a function's text unchanged and rewrites a trigger's condition."""
    table = moment.split()[-1]
    each = "STATEMENT" if "TRUNCATE" in moment else "ROW"
    source = f"""
        BEGIN
            IF {when} THEN
                {body}
            END IF;
            IF TG_OP = 'DELETE' THEN RETURN old; ELSE RETURN new; END IF;
        END """
    return postgres_text(
        name, table, source, f"CREATE TRIGGER {name} {moment} FOR EACH {each} EXECUTE FUNCTION {name}()"
    )


def postgres_text(name: str, table: str, source: str, trigger: str) -> str:
    """Return the statements that create a trigger with its function, whose texts PostgreSQL keeps."""
    return f"""
        CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $${source}$$;
        DROP TRIGGER IF EXISTS {name} ON {table};
        {trigger}
    """
