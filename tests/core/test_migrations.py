"""The migrations of a fresh store, and of one that was made by those that they replace."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.writer import OperationWriter

from nexus.core.database.migrations import SQLFor
from tests.postgres import store_of

ROOT = Path(__file__).parents[2]
# What tests/maintenance/scenario.py wrote at a commit that had the replaced migrations, and what pg_dump wrote of the
# database that it made: the schema, and the rows of django_migrations.
KEPT = ROOT / "tests/data/before-the-squash"

PREPARE = """
import json, django
django.setup()
from django.db import connection
from nexus.core.database.store import store
from tests.core.test_migrations import schema
store().prepare()
print(json.dumps(schema(connection)))
"""
OF_SQLITE = "SELECT type, name, coalesce(sql, '') FROM sqlite_master"
# The kept database has its log in partitions, with an index by age; a fresh one has it in one table.
OF_POSTGRESQL = [
    """
    SELECT 'column', table_name, column_name, data_type, is_nullable, column_default,
        character_maximum_length, is_identity, collation_name
    FROM information_schema.columns JOIN pg_class c ON c.oid = table_name::regclass
    WHERE table_schema = current_schema() AND NOT relispartition
    """,
    """
    SELECT 'index', tablename, indexname, replace(indexdef, ' ONLY ', ' ')
    FROM pg_indexes JOIN pg_class c ON c.oid = tablename::regclass
    WHERE schemaname = current_schema() AND NOT relispartition AND indexname <> 'events_by_age'
    """,
    """
    SELECT 'constraint', relname, conname, pg_get_constraintdef(o.oid)
    FROM pg_constraint o JOIN pg_class c ON c.oid = conrelid
    WHERE connamespace = current_schema()::regnamespace AND NOT relispartition
    """,
    "SELECT 'trigger', tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal AND tgparentid = 0",
    "SELECT 'function', proname, prosrc FROM pg_proc WHERE pronamespace = current_schema()::regnamespace",
]
CASTS = re.compile(r"::(text|character varying)(\[\])?|[()]")  # what a dump writes in another way than it was told


def schema(database: BaseDatabaseWrapper) -> list[list[Any]]:
    """Everything that a store's schema has; without the order of columns and constraints, which nobody reads."""
    rows: list[Any] = []
    with database.cursor() as cursor:
        if database.vendor == "postgresql":
            for query in OF_POSTGRESQL:
                cursor.execute(query)
                rows += ([CASTS.sub("", str(value)) for value in row] for row in cursor.fetchall())
        else:
            cursor.execute(OF_SQLITE)
            rows = [(kind, name, *_parts(sql)) for kind, name, sql in cursor.fetchall()]
    return sorted((list(row) for row in rows), key=repr)


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


def environment(home: Path) -> dict[str, str]:
    home.mkdir(mode=0o700)
    return {**os.environ, "NEXUS_HOME": str(home), "DJANGO_SETTINGS_MODULE": "nexus_site.settings", **store_of(home)}


def said(program: str, environ: dict[str, str]) -> list[Any]:
    """The lines that a program printed in a process of its own."""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environ, check=True, stdout=subprocess.PIPE)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.usefixtures("starts_processes")
def test_a_fresh_store_is_as_the_replaced_migrations_made_it(db: None, tmp_path: Path) -> None:
    kept = environment(tmp_path / "kept")
    if url := kept.get("NEXUS_DATABASE_URL"):
        import psycopg

        with psycopg.connect(url) as database:
            database.execute(gzip.decompress((KEPT / "schema.postgresql.sql.gz").read_bytes()))
    else:
        (tmp_path / "kept/nexus.db").write_bytes(gzip.decompress((KEPT / "store.db.gz").read_bytes()))

    [replaced], fresh = said(PREPARE, kept), json.loads(json.dumps(schema(connection)))

    assert [row for row in replaced if row not in fresh] == []
    assert fresh == replaced


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
    assert said(UNDONE, environment(tmp_path / "home")) == [["MIGRATION_ERROR", []], False]


def test_a_step_for_one_database_is_written_with_its_name() -> None:
    step = SQLFor("sqlite", "CREATE TABLE a (b)", "DROP TABLE a")

    written, _ = OperationWriter(step).serialize()

    assert "vendor='sqlite'" in written and "reverse_sql='DROP TABLE a'" in written


def test_no_model_lacks_a_migration(db: None) -> None:
    call_command("makemigrations", check=True, dry_run=True)  # it exits where a model does
