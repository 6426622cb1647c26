"""Migrations that replace others: a store may have been made by either, or be half way through those replaced."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder
from django.db.migrations.writer import OperationWriter

from nexus.core.apps import own_labels
from nexus.core.database.migrations import SQUASHED, pending_migrations, shipped_migrations, unknown_migrations
from nexus.core.database.steps import SQLFor
from tests.migrations import STEPS
from tests.postgres import store_of

ROOT = Path(__file__).parents[2]

MIGRATE = """
import json, django
django.setup()
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from tests.core.test_migrations import rows, schema
from tests.migrations import loader_of_replaced
executor = MigrationExecutor(connection)
executor.loader = loader_of_replaced(connection)
executor.migrate(executor.loader.graph.leaf_nodes())
call_command("migrate", verbosity=0)  # the triggers
print(json.dumps([schema(connection), rows(connection)]))
"""
FRESH = """
import json, django
django.setup()
from django.db import connection
from nexus.core.database.store import store
from tests.core.test_migrations import rows, schema
store().prepare()
print(json.dumps([schema(connection), rows(connection)]))
"""
OF_SQLITE = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
OF_POSTGRESQL = [
    """
    SELECT 'column', table_name, column_name, data_type, is_nullable, column_default, character_maximum_length,
        is_identity, collation_name
    FROM information_schema.columns WHERE table_schema = current_schema()
    """,
    "SELECT 'index', tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()",
    # PostgreSQL names a column's own check after the column, which may have had another name then.
    """
    SELECT 'constraint', conrelid::regclass::text, regexp_replace(conname, '.*_check$', ''), pg_get_constraintdef(oid)
    FROM pg_constraint WHERE connamespace = current_schema()::regnamespace
    """,
    "SELECT 'trigger', tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
    "SELECT 'function', proname, prosrc FROM pg_proc WHERE pronamespace = current_schema()::regnamespace",
]


def schema(database: BaseDatabaseWrapper) -> list[list[Any]]:
    """Everything that a store's schema has; the order of columns and constraints, which nobody reads, left out."""
    with database.cursor() as cursor:
        if database.vendor == "postgresql":
            rows = []
            for query in OF_POSTGRESQL:
                cursor.execute(query)
                rows += cursor.fetchall()
        else:
            cursor.execute(OF_SQLITE)
            rows = [(kind, name, *_parts(sql)) for kind, name, sql in cursor.fetchall()]
    return sorted((list(row) for row in rows), key=repr)


def rows(database: BaseDatabaseWrapper) -> dict[str, int]:
    """How many rows each table of a store has; those without any left out."""
    tables = database.introspection.django_table_names()
    with database.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(f"SELECT '{table}', (SELECT count(*) FROM {table})" for table in tables))
        return {table: count for table, count in cursor.fetchall() if count}


def _parts(sql: str) -> list[str]:
    """Of a CREATE TABLE its columns and constraints, of another statement the whole."""
    head, _, body = " ".join(sql.split()).removesuffix(")").partition("(")
    if not head.startswith("CREATE TABLE"):
        return [sql]
    parts, depth = [""], 0
    for character in body:
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [head, *sorted(part.strip() for part in parts)]


def said(program: str, home: Path) -> list[Any]:
    """The lines that a program printed in a process of its own, whose store is new."""
    home.mkdir(mode=0o700)
    environ = {**os.environ, "NEXUS_HOME": str(home), "DJANGO_SETTINGS_MODULE": "nexus_site.settings", **store_of(home)}
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environ, check=True, stdout=subprocess.PIPE)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.usefixtures("starts_processes")
def test_a_fresh_store_is_as_the_replaced_migrations_made_it(tmp_path: Path) -> None:
    [replaced], [fresh] = said(MIGRATE, tmp_path / "replaced"), said(FRESH, tmp_path / "fresh")

    assert replaced[1] == fresh[1]
    assert [row for row in replaced[0] if row not in fresh[0]] == []
    assert replaced[0] == fresh[0]


UNDONE = """
import json, django
django.setup()
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from nexus.core.database.store import store
from nexus.core.operations.errors import NexusError
right = MigrationRecorder.record_applied
MigrationRecorder.record_applied = lambda *_: 1 / 0
try:
    store().prepare()
except NexusError as error:
    print(json.dumps([error.code, connection.introspection.table_names()]))
MigrationRecorder.record_applied = right
store().prepare()
print(json.dumps(store().pending()))
"""


@pytest.mark.usefixtures("starts_processes")
def test_tables_that_could_not_all_be_made_are_undone_and_made_at_the_next_start(tmp_path: Path) -> None:
    assert said(UNDONE, tmp_path / "home") == [["MIGRATION_ERROR", []], False]


@pytest.mark.parametrize("count", range(len(STEPS) + 1))
def test_a_store_that_had_some_of_the_replaced_migrations_gets_the_rest(
    db: None, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    applied = dict.fromkeys(STEPS[:count])
    monkeypatch.setattr(MigrationRecorder, "applied_migrations", lambda recorder: dict(applied))

    executor = MigrationExecutor(connection)

    executor.loader.check_consistent_history(connection)
    plan = [step for step, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())]
    made = [key for step in plan for key in step.replaces or [(step.app_label, step.name)] if key[0] in own_labels()]
    assert sorted(made) == sorted(STEPS[count:])


def test_a_store_that_has_what_was_replaced_lacks_nothing() -> None:
    squashed = {key for key in shipped_migrations() if SQUASHED in key[1]}
    before = shipped_migrations() - squashed

    assert len(squashed) == 9
    assert pending_migrations(before) == pending_migrations(shipped_migrations()) == set()
    assert unknown_migrations(shipped_migrations()) == set()
    assert pending_migrations(before - {STEPS[0]}) == {STEPS[0]}


ALTER = """
import json, django
django.setup()
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from nexus.core.clock import now
from nexus.core.database import steps
executor = MigrationExecutor(connection)
before = [("coordination", "0014_numbers_of_workspaces")]
apps = executor.migrate(before).apps
place = apps.get_model("coordination", "Workspace").objects.create(
    workspace_id="a" * 64, number="a" * 64, root_realpath="/srv", created_at=now(), last_seen_at=now()
)
Event = apps.get_model("coordination", "Event")
Event.objects.bulk_create(
    Event(workspace=place if number else None, stream="agent", type="toy", payload={}, visibility="public",
          created_at=now())
    for number in range(25)
)
told = []
steps.ROWS_AT_ONCE = 10
steps.Bar.__call__ = lambda bar, *how_far: told.append(how_far)
executor = MigrationExecutor(connection)
executor.migrate([("coordination", "0015_events_by_number")])
with connection.cursor() as cursor:
    cursor.execute("SELECT count(*) FROM events JOIN workspaces ON events.workspace_id = number")
    print(json.dumps([told, cursor.fetchone()[0]]))
"""


@pytest.mark.usefixtures("starts_processes")
def test_a_large_table_says_how_far_it_is_on_either_database(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    environ = {**os.environ, "NEXUS_HOME": str(home), "DJANGO_SETTINGS_MODULE": "nexus_site.settings", **store_of(home)}

    done = subprocess.run([sys.executable, "-c", ALTER], cwd=ROOT, env=environ, check=True, stdout=subprocess.PIPE)

    told, named = json.loads(done.stdout)
    assert told[:2] == [[0, 15, 25], [0, 5, 25]]
    assert named == 24


def test_a_step_for_one_database_is_written_with_its_name() -> None:
    step = SQLFor("sqlite", "CREATE TABLE a (b)", "DROP TABLE a")

    written, _ = OperationWriter(step).serialize()

    assert "vendor='sqlite'" in written and "reverse_sql='DROP TABLE a'" in written
