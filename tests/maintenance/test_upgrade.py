"""Stores of other versions: earlier ones are migrated, newer ones refused, a step that dies leaves what was."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from nexus.core.apps import nexus_apps
from nexus.core.database.keys import number_of
from nexus.core.database.sqlite import schema
from nexus.core.operations.errors import NexusError
from tests.maintenance.conftest import ROOT, Done, Home
from tests.migrations import STEPS, loader_of_replaced

pytestmark = [pytest.mark.sqlite, pytest.mark.usefixtures("starts_processes")]  # its subject is the file

Nexus = Callable[..., Done]
THEN = "2026-01-01 12:00:00.000001"


def rows(count: int) -> dict[str, dict[str, Any]]:
    """By table, what an operation of any version so far would have left, in the `count`th of some workspaces.

    Columns that a schema lacks are to be left out.
    """
    workspace, agent = f"{count:a>64}", f"ana-{count}"
    return {
        "workspaces": {
            "workspace_id": workspace,
            "number": number_of(workspace),
            "root_realpath": f"/srv/project-{count}",
            "created_at": THEN,
            "last_seen_at": THEN,
        },
        "agents": {
            "agent_id": agent,
            "role": "coder",
            "capabilities": '["ocr"]',
            "created_at": THEN,
            "updated_at": THEN,
        },
        "sessions": {
            "session_id": f"ses_{count}",
            "agent_id": agent,
            "workspace_id": workspace,
            "status": "active",
            "secret_hash": "0" * 64,
            "started_at": THEN,
            "last_heartbeat_at": THEN,
        },
        "channels": {"channel_id": f"chn_{count}", "workspace_id": workspace, "name": "general", "created_at": THEN},
        "artifacts": {
            "artifact_id": f"art_{count}",
            "workspace_id": workspace,
            "artifact_type": "text",
            "content": "words",
            "size_bytes": 5,
            "content_type": "text/plain",
            "created_at": THEN,
        },
        "messages": {
            "message_id": f"msg_{count}",
            "workspace_id": workspace,
            "from_agent_id": agent,
            "subject": "From before",
            "body": "the upgrade",
            "artifacts": "[]",
            "created_at": THEN,
            "recipients_count": 1,
        },
        "message_deliveries": {
            "delivery_id": f"dlv_{count}",
            "message_id": f"msg_{count}",
            "recipient_agent_id": agent,
            "status": "unread",
            "attempts": 0,
            "created_at": THEN,
        },
        "events": {
            "event_id": 1 + count,
            "workspace_id": workspace,
            "stream": "workspace",
            "type": "message.created",
            "actor_agent_id": agent,
            "payload": f'{{"message_id": "msg_{count}"}}',
            "visibility": "public",
            "created_at": THEN,
        },
        "handoffs": {
            "handoff_id": f"hnd_{count}",
            "title": f"Work for {agent}",
            "workspace_id": workspace,
            "from_agent_id": agent,
            "target": f'{{"strategy": "direct", "agent_id": "{agent}"}}',
            "visibility": "public",
            "status": "OPEN",
            "created_event_id": 1 + count,
            "created_at": THEN,
            "updated_at": THEN,
        },
    }


def now(table: str, row: dict[str, Any]) -> dict[str, Any]:
    """A row as today's schema has it: events and messages name a workspace by its number."""
    by_text = table in ("events", "messages") and isinstance(row["workspace_id"], str)
    return row | {"workspace_id": number_of(row["workspace_id"])} if by_text else row


MIGRATE = """
import json, sys, django
django.setup()
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from tests.maintenance.test_upgrade import write
from tests.migrations import loader_of_replaced
written = []
for count, step in enumerate(json.loads(sys.argv[1]), -int(sys.argv[2])):
    executor = MigrationExecutor(connection)
    executor.loader = loader_of_replaced(connection)
    executor.migrate([tuple(step)])
    if count >= 0:
        written.append(write(connection.settings_dict["NAME"], count))
print(json.dumps(written))
"""


def write(database: str, count: int) -> dict[str, dict[str, Any]]:
    """Write such rows as the schema of a store has place for; those rows."""
    written = {}
    with closing(sqlite3.connect(database, isolation_level=None)) as raw:
        for table, row in rows(count).items():
            columns = {name: kind for _, name, kind, *_ in raw.execute(f"PRAGMA table_info({table})")}
            row = now(table, row) if columns.get("workspace_id") == "bigint" else row
            if kept := {name: value for name, value in row.items() if name in columns}:
                raw.execute(
                    f"INSERT INTO {table} ({', '.join(kept)}) VALUES ({', '.join('?' * len(kept))})", [*kept.values()]
                )
                written[table] = kept
    return written


def earlier(home: Home, applied: list[tuple[str, str]], since: int = 0) -> list[dict[str, dict[str, Any]]]:
    """Make a home whose store went through these migrations; after each of them from the `since`th on, rows were
    written as its version had them. Those rows."""
    home.path.mkdir(mode=0o700)
    environ = {**os.environ, "NEXUS_HOME": str(home.path), "DJANGO_SETTINGS_MODULE": "nexus_site.settings"}
    command = [sys.executable, "-c", MIGRATE, json.dumps(applied), str(since)]
    done = subprocess.run(command, cwd=ROOT, env=environ, check=True, stdout=subprocess.PIPE)
    home.database.chmod(0o600)
    written: list[dict[str, dict[str, Any]]] = json.loads(done.stdout)
    return written


BEFORE_LASTING_WORK = STEPS[: STEPS.index(("handoffs", "0003_lasting_work"))]  # of the second of handoffs' replacements
HISTORIES = {"all-at-once": STEPS[:1], "half-way": BEFORE_LASTING_WORK, "one-by-one": STEPS[:-1]}


@pytest.mark.parametrize("applied", HISTORIES.values(), ids=HISTORIES)
def test_it_migrates_what_every_earlier_schema_had(
    tmp_path: Path, configure: Callable[..., None], nexus: Nexus, applied: list[tuple[str, str]]
) -> None:
    home = Home(tmp_path / "home")
    written = earlier(home, applied)

    done = home.process("export", "--workspace-id", written[-1]["workspaces"]["workspace_id"])

    assert done.returncode == 0, done.stderr
    assert len(written) == len(applied)
    with closing(sqlite3.connect(home.database)) as raw:
        raw.row_factory = sqlite3.Row
        for step, tables in zip(applied, written, strict=True):
            for table, row in tables.items():
                key, value = next(iter(row.items()))
                found = raw.execute(f"SELECT * FROM {table} WHERE {key} = ?", [value]).fetchone()
                assert {name: found[name] for name in row} == now(table, row), step
        titles = {title for (title,) in raw.execute("SELECT title FROM handoffs")}
        assert all(title.startswith("Work for ana-") for title in titles), titles
    configure(home=home.path, db_path=None)
    examined = nexus("doctor")
    assert examined.code == 0, examined.out


# What tests/maintenance/scenario.py wrote before the apps moved below `nexus`, as the version then did.
BEFORE_THE_MOVE = ROOT / "tests/data/before-the-move/store.db.gz"


@pytest.fixture
def kept(tmp_path: Path) -> Home:
    """A home with that store."""
    home = Home(tmp_path / "kept")
    home.path.mkdir(mode=0o700)
    home.database.write_bytes(gzip.decompress(BEFORE_THE_MOVE.read_bytes()))
    home.database.chmod(0o600)
    return home


def contents(home: Home, columns: dict[str, list[str]]) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of each table, with the texts that numbers of today's schema stand for."""
    numbers: dict[Any, str] = {}
    if any(name == "number" for _, name, *_ in home.sql("PRAGMA table_info(workspaces)")):
        numbers = dict(home.sql("SELECT number, workspace_id FROM workspaces"))
    found = {}
    for table, names in columns.items():
        read = home.sql(f"SELECT {', '.join(names)} FROM {table}")
        found[table] = sorted(
            (
                tuple(
                    numbers.get(value, value) if name == '"workspace_id"' else value
                    for name, value in zip(names, row, strict=True)
                )
                for row in read
            ),
            key=repr,
        )
    return found


def columns_of(home: Home) -> dict[str, list[str]]:
    tables = [model._meta.db_table for config in nexus_apps() for model in config.get_models()]
    columns = {table: [f'"{name}"' for _, name, *_ in home.sql(f"PRAGMA table_info({table})")] for table in tables}
    columns = {table: names for table, names in columns.items() if names}  # a table of today may be new
    return columns | {"django_content_type": ["id", "app_label", "model"]}


def test_it_opens_a_store_from_before_the_apps_moved(kept: Home, configure: Callable[..., None], nexus: Nexus) -> None:
    columns = columns_of(kept)
    before = contents(kept, columns)
    assert sum(map(len, before.values())) > 300
    whole = kept.sql("SELECT name, sql FROM sqlite_master ORDER BY name")

    migrated = kept.process("migrate")

    assert migrated.returncode == 0, migrated.stderr
    after = contents(kept, columns)
    types = "django_content_type"  # a model of today may be new
    assert set(before.pop(types)) <= set(after.pop(types))
    assert after == before
    [backup] = (kept.path / "backups").iterdir()
    assert str(backup) in migrated.stderr
    with closing(sqlite3.connect(backup)) as former:
        assert former.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall() == whole
    configure(home=kept.path, db_path=None)
    examined = nexus("doctor")
    assert examined.code == 0, examined.out


def test_it_keeps_the_webhooks_and_settings_of_a_store_from_before_the_apps_moved(kept: Home) -> None:
    kept.sql(
        "INSERT INTO webhooks (webhook_id, url, secret, agent_id, types, allow_private, cursor, created_at, failures)"
        f""" VALUES ('whk_1', 'https://example.com/nexus', 'whsec_', 'ana', '["message.created"]', 0, 1, '{THEN}', 0)"""
    )
    kept.sql(f"INSERT INTO stored_settings VALUES ('limit_unread', '500', '{THEN}', 'root')")

    shown = json.loads(kept.process("webhooks", "show", "whk_1", "--json").stdout)
    settings = json.loads(kept.process("settings", "list", "--json").stdout)["settings"]

    assert (shown["url"], shown["agent_id"], shown["types"]) == (
        "https://example.com/nexus",
        "ana",
        ["message.created"],
    )
    assert {each["name"]: each["value"] for each in settings if each["source"] == "stored"} == {"limit_unread": 500}


def test_whoever_reads_has_the_ids_that_a_store_always_had(kept: Home) -> None:
    events = dict(kept.sql("SELECT event_id, workspace_id FROM events WHERE workspace_id IS NOT NULL"))
    messages = dict(kept.sql("SELECT message_id, workspace_id FROM messages"))
    assert len(set(events.values())) > 1 and messages

    read: dict[str, dict[Any, str]] = {"event": {}, "message": {}}
    for workspace_id in sorted(set(events.values())):
        for line in kept.process("export", "--workspace-id", workspace_id).stdout.split("\n")[:-1]:
            record = json.loads(line)
            if record["kind"] in read:
                row = record["row"]
                read[record["kind"]][row[f"{record['kind']}_id"]] = row["workspace_id"]

    assert read == {"event": events, "message": messages}


KILLED = """
import itertools, os, signal, sys
import django
django.setup()
from nexus.core.database import steps
from nexus.core.database.store import store
from nexus.core.progress import Bar
numbers = itertools.count(1)
def told(*_):
    if next(numbers) == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
Bar.__call__ = Bar.still = told
steps.ROWS_AT_ONCE = 7
store().prepare()
"""


KILLED_IN_VACUUM = """
import os, signal
import django
django.setup()
from nexus.core.database.sqlite import schema
from nexus.core.database.store import store
from nexus.core.progress import Bar
schema.STEPS_A_LOOK = 1
def told(self, text):
    if text == "giving room back":
        os.kill(os.getpid(), signal.SIGKILL)
Bar.still = told
store().prepare()
"""


def test_a_migration_that_is_killed_again_and_again_ends_as_one_in_one_go_does(kept: Home, tmp_path: Path) -> None:
    whole = Home(tmp_path / "whole")
    shutil.copytree(kept.path, whole.path)
    assert whole.process("migrate").returncode == 0
    environ = {**os.environ, "NEXUS_HOME": str(kept.path), "DJANGO_SETTINGS_MODULE": "nexus_site.settings"}

    ends, applied = [], []
    for number in (1, 61, 123, 2, 15, 19, 4, 10, 10_000):  # of what it tells: in the backup, in either table
        done = subprocess.run([sys.executable, "-c", KILLED, str(number)], cwd=ROOT, env=environ, check=False)
        ends.append(done.returncode)
        applied += kept.sql("SELECT count(*) FROM django_migrations")

    assert set(ends[:-1]) == {-9} and ends[-1] == 0, ends
    assert len(set(applied)) > 2, applied  # what was done stayed done
    tables = [name for (name,) in whole.sql("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    tables = [name for name in tables if name not in ("django_migrations", "search_index")]  # times; no rows of its own
    for read in [
        *(f"SELECT * FROM {table}" for table in tables),
        "SELECT type, name, sql FROM sqlite_master ORDER BY type, name",
        "SELECT app, name FROM django_migrations ORDER BY app, name",
    ]:
        assert sorted(kept.sql(read), key=repr) == sorted(whole.sql(read), key=repr), read
    assert kept.sql("PRAGMA integrity_check") == [("ok",)]
    (backup,) = (kept.path / "backups").iterdir()  # of the store as it was, and nothing of those that were killed
    assert backup.suffix == ".db"


@pytest.mark.parametrize("command", ["migrate", "export --workspace-id x"])
def test_a_migration_gives_the_room_back_that_it_freed(kept: Home, command: str) -> None:
    kept.sql("CREATE TABLE ballast AS SELECT randomblob(3000000) AS content")
    kept.sql("DROP TABLE ballast")
    before = kept.database.stat().st_size

    kept.process(*command.split())

    assert kept.database.stat().st_size < before - 2_000_000


def test_a_start_gives_the_room_back_that_a_killed_migration_freed(kept: Home) -> None:
    """The kill comes once all migrations are applied, in the middle of the work on the file."""
    kept.sql("CREATE TABLE ballast AS SELECT randomblob(3000000) AS content")
    kept.sql("DROP TABLE ballast")
    environ = {**os.environ, "NEXUS_HOME": str(kept.path), "DJANGO_SETTINGS_MODULE": "nexus_site.settings"}
    done = subprocess.run([sys.executable, "-c", KILLED_IN_VACUUM], cwd=ROOT, env=environ, check=False)
    before = kept.database.stat().st_size
    assert done.returncode == -signal.SIGKILL and before > 3_000_000
    applied = kept.sql("SELECT count(*) FROM django_migrations")

    kept.process("export", "--workspace-id", "x")

    assert kept.database.stat().st_size < before - 2_000_000
    assert kept.sql("SELECT count(*) FROM django_migrations") == applied
    assert not schema.migration_mark(kept.database).exists()


def test_others_are_refused_while_a_process_migrates(
    kept: Home, configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(home=kept.path, db_path=None)
    monkeypatch.setattr(schema, "LOCK_SECONDS", 0)
    before = kept.database.read_bytes()

    with FileLock(f"{kept.database}.migrate.lock"), pytest.raises(NexusError, match="has been migrating") as refused:
        schema.prepare()

    assert refused.value.code == "MIGRATION_ERROR"
    assert kept.database.read_bytes() == before


HOME, USED = "b" * 64, "c" * 64


def test_it_takes_the_operators_trail_out_of_the_workspace_that_stood_for_the_home(
    tmp_path: Path, configure: Callable[..., None], nexus: Nexus
) -> None:
    home = Home(tmp_path / "home")
    graph, there = (
        loader_of_replaced().graph,
        [step for step in STEPS if step[0] == "coordination" and step[1] > "0004"],
    )
    before = [step for step in STEPS if not set(there) & set(graph.forwards_plan(step))]
    [written] = earlier(home, before, since=len(before) - 1)
    theirs = written["workspaces"]["workspace_id"]
    for workspace in (HOME, USED):
        home.sql(
            f"INSERT INTO workspaces VALUES ('{workspace}', NULL, '/srv/{workspace[0]}', '{THEN}', '{THEN}')",
            "INSERT INTO events (workspace_id, stream, type, payload, visibility, created_at) "
            f"VALUES ('{workspace}', 'agent', 'agent.created', '{{\"operator\": \"olga\"}}', 'private', '{THEN}')",
        )
    home.sql(f"INSERT INTO channels VALUES ('chn_2', 'general', '{THEN}', '{USED}')")
    home.sql(
        "INSERT INTO events (workspace_id, stream, type, payload, visibility, created_at) "
        f"VALUES ('{theirs}', 'agent', 'history.restored', '{{}}', 'public', '{THEN}')"
    )
    told = home.sql("SELECT event_id, type, payload, created_at FROM events ORDER BY event_id")

    assert home.process("export", "--workspace-id", theirs).returncode == 0

    assert home.sql("SELECT event_id, type, payload, created_at FROM events ORDER BY event_id") == told
    by_number = (
        "SELECT w.workspace_id FROM events e LEFT JOIN workspaces w ON number = e.workspace_id ORDER BY event_id"
    )
    assert home.sql(by_number) == [*((theirs,), (None,), (None,), (theirs,))]
    assert home.sql("SELECT workspace_id FROM workspaces ORDER BY workspace_id") == [(theirs,), (USED,)]
    configure(home=home.path, db_path=None)
    assert nexus("doctor").code == 0


@pytest.mark.parametrize("command", ["runmcp", "export --workspace-id x", "serve"])
def test_it_refuses_a_store_that_a_newer_version_wrote(home: Home, command: str) -> None:
    home.sql("INSERT INTO django_migrations (app, name, applied) VALUES ('handoffs', '0999_later', '2030-01-01')")
    before = home.database.read_bytes()

    done = home.process(*command.split())

    assert done.returncode == 1
    assert done.stderr.startswith("[nexus] MIGRATION_ERROR: ")
    assert "newer version" in done.stderr
    assert home.database.read_bytes() == before


HALF = """
import os, signal
from django.db import migrations

def die(apps, schema_editor):
    {death}

class Migration(migrations.Migration):
    dependencies = [("coordination", "{after}")]
    operations = [
        migrations.RunSQL("CREATE TABLE half_done (a)"),
        migrations.RunSQL("DELETE FROM message_deliveries"),
        migrations.RunPython(die),
    ]
"""
DEATHS = {"raises": "raise ValueError('no')", "killed": "os.kill(os.getpid(), signal.SIGKILL)"}


@pytest.mark.parametrize("death", DEATHS)
def test_it_keeps_the_old_store_when_a_step_dies_half_way(home: Home, nexus: Nexus, tmp_path: Path, death: str) -> None:
    after = max(name for app, name in STEPS if app == "coordination")
    before = (home.sql("SELECT * FROM message_deliveries"), home.sql("SELECT * FROM sqlite_master"))
    later = tmp_path / "later"  # the next version, with a step that dies
    skip = shutil.ignore_patterns("static", "locale")
    for name in ("nexus", "coordination", "inbox", "handoffs", "mcp_bridge", "nexus_site"):
        shutil.copytree(ROOT / name, later / name, ignore=skip)
    step = later / "coordination/migrations/0990_half.py"
    step.write_text(HALF.format(death=DEATHS[death], after=after))
    (later / "manage.py").write_text((ROOT / "manage.py").read_text())

    died = home.process("export", "--workspace-id", "x", root=later)

    assert died.returncode == (1 if death == "raises" else -9)
    assert "MIGRATION_ERROR" in died.stderr or death == "killed"
    assert (home.sql("SELECT * FROM message_deliveries"), home.sql("SELECT * FROM sqlite_master")) == before
    examined = nexus("doctor")
    assert examined.code == 0, examined.out
    assert json.loads(nexus("backup", "--json").out)["checked"]

    step.write_text(HALF.format(death="pass", after=after))  # its repair
    assert "not in this store" in home.process("export", "--workspace-id", "x", root=later).stderr
    assert home.sql("SELECT count(*) FROM half_done") == [(0,)]
