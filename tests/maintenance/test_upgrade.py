"""Stores of other versions: earlier ones are migrated, newer ones refused, a step that dies leaves what was."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.db.migrations.loader import MigrationLoader

from core.apps import own_labels
from nexus_site.launch import APPS
from tests.maintenance.conftest import ROOT, Done, Home

pytestmark = pytest.mark.sqlite  # its subject is the file

Nexus = Callable[..., Done]
WORKSPACE = "a" * 64
THEN = "2026-01-01 12:00:00.000001"

# What an operation of any version so far would have left; columns that a schema lacks are left out.
ROWS: dict[str, dict[str, Any]] = {
    "workspaces": {
        "workspace_id": WORKSPACE,
        "root_realpath": "/srv/project",
        "created_at": THEN,
        "last_seen_at": THEN,
    },
    "agents": {"agent_id": "ana", "role": "coder", "capabilities": '["ocr"]', "created_at": THEN, "updated_at": THEN},
    "sessions": {
        "session_id": "ses_1",
        "agent_id": "ana",
        "workspace_id": WORKSPACE,
        "status": "active",
        "secret_hash": "0" * 64,
        "started_at": THEN,
        "last_heartbeat_at": THEN,
    },
    "channels": {"channel_id": "chn_1", "workspace_id": WORKSPACE, "name": "general", "created_at": THEN},
    "artifacts": {
        "artifact_id": "art_1",
        "workspace_id": WORKSPACE,
        "artifact_type": "text",
        "content": "words",
        "size_bytes": 5,
        "content_type": "text/plain",
        "created_at": THEN,
    },
    "messages": {
        "message_id": "msg_1",
        "workspace_id": WORKSPACE,
        "from_agent_id": "ana",
        "subject": "From before",
        "body": "the upgrade",
        "artifacts": "[]",
        "created_at": THEN,
        "recipients_count": 1,
    },
    "message_deliveries": {
        "delivery_id": "dlv_1",
        "message_id": "msg_1",
        "recipient_agent_id": "ana",
        "status": "unread",
        "attempts": 0,
        "created_at": THEN,
    },
    "events": {
        "event_id": 1,
        "workspace_id": WORKSPACE,
        "stream": "workspace",
        "type": "message.created",
        "actor_agent_id": "ana",
        "payload": '{"message_id": "msg_1"}',
        "visibility": "public",
        "created_at": THEN,
    },
    "handoffs": {
        "handoff_id": "hnd_1",
        "title": "Work for ana",
        "workspace_id": WORKSPACE,
        "from_agent_id": "ana",
        "target": '{"strategy": "direct", "agent_id": "ana"}',
        "visibility": "public",
        "status": "OPEN",
        "created_event_id": 1,
        "created_at": THEN,
        "updated_at": THEN,
    },
}


def steps() -> list[tuple[str, str]]:
    """The migrations of Nexus's own apps, in the order they run."""
    graph = MigrationLoader(None).graph
    plan = [key for leaf in graph.leaf_nodes() if leaf[0] in own_labels() for key in graph.forwards_plan(leaf)]
    return [key for key in dict.fromkeys(plan) if key[0] in own_labels()]


STEPS = steps()


MIGRATE = """
import json, sqlite3, sys, django
django.setup()
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
for count, step in enumerate(json.loads(sys.argv[1])):
    MigrationExecutor(connection).migrate([tuple(step)])
    connection.ensure_connection()
    with sqlite3.connect(f"{sys.argv[2]}/{count}.db") as copy:
        connection.connection.backup(copy)
"""


def migrated(folder: Path, applied: list[tuple[str, str]]) -> list[Path]:
    """The stores that there are after each of these migrations, made in one process."""
    environ = {**os.environ, "NEXUS_HOME": str(folder), "DJANGO_SETTINGS_MODULE": "nexus_site.settings"}
    subprocess.run([sys.executable, "-c", MIGRATE, json.dumps(applied), folder], cwd=ROOT, env=environ, check=True)
    return [folder / f"{count}.db" for count in range(len(applied))]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A store of every earlier schema."""
    return migrated(tmp_path_factory.mktemp("earlier"), STEPS[:-1])


def write_store(home: Home, store: Path) -> dict[str, dict[str, Any]]:
    """Take a store of an earlier schema, with a row in every table it has; those rows."""
    home.path.mkdir(mode=0o700)
    shutil.copy(store, home.database)
    written = {}
    with closing(sqlite3.connect(home.database, isolation_level=None)) as raw:
        for table, row in ROWS.items():
            columns = {name for _, name, *_ in raw.execute(f"PRAGMA table_info({table})")}
            if kept := {name: value for name, value in row.items() if name in columns}:
                raw.execute(
                    f"INSERT INTO {table} ({', '.join(kept)}) VALUES ({', '.join('?' * len(kept))})", [*kept.values()]
                )
                written[table] = kept
    home.database.chmod(0o600)
    return written


@pytest.mark.parametrize("count", range(len(STEPS) - 1), ids=lambda count: ".".join(STEPS[count]))
def test_it_migrates_a_store_of_every_earlier_schema(
    tmp_path: Path, configure: Callable[..., None], nexus: Nexus, earlier: list[Path], count: int
) -> None:
    home = Home(tmp_path / "home")
    written = write_store(home, earlier[count])

    done = home.process("export", "--workspace-id", WORKSPACE)

    assert done.returncode == 0, done.stderr
    with closing(sqlite3.connect(home.database)) as raw:
        raw.row_factory = sqlite3.Row
        for table, row in written.items():
            [now] = raw.execute(f"SELECT * FROM {table}").fetchall()
            assert {name: now[name] for name in row} == row
    configure(home=home.path, db_path=None)
    examined = nexus("doctor")
    assert examined.code == 0, examined.out


HOME, USED = "b" * 64, "c" * 64


def test_it_takes_the_operators_trail_out_of_the_workspace_that_stood_for_the_home(
    tmp_path: Path, configure: Callable[..., None], nexus: Nexus
) -> None:
    home = Home(tmp_path / "home")
    graph, there = (
        MigrationLoader(None).graph,
        [step for step in STEPS if step[0] == "coordination" and step[1] > "0004"],
    )
    before = [step for step in STEPS if not set(there) & set(graph.forwards_plan(step))]
    folder = tmp_path / "earlier"
    folder.mkdir(mode=0o700)
    write_store(home, migrated(folder, before)[-1])
    for workspace in (HOME, USED):
        home.sql(
            f"INSERT INTO workspaces VALUES ('{workspace}', NULL, '/srv/{workspace[0]}', '{THEN}', '{THEN}')",
            "INSERT INTO events (workspace_id, stream, type, payload, visibility, created_at) "
            f"VALUES ('{workspace}', 'agent', 'agent.created', '{{\"operator\": \"olga\"}}', 'private', '{THEN}')",
        )
    home.sql(f"INSERT INTO channels VALUES ('chn_2', 'general', '{THEN}', '{USED}')")
    home.sql(
        "INSERT INTO events (workspace_id, stream, type, payload, visibility, created_at) "
        f"VALUES ('{WORKSPACE}', 'agent', 'history.restored', '{{}}', 'public', '{THEN}')"
    )
    told = home.sql("SELECT event_id, type, payload, created_at FROM events ORDER BY event_id")

    assert home.process("export", "--workspace-id", WORKSPACE).returncode == 0

    assert home.sql("SELECT event_id, type, payload, created_at FROM events ORDER BY event_id") == told
    assert home.sql("SELECT workspace_id FROM events ORDER BY event_id") == [
        *((WORKSPACE,), (None,), (None,), (WORKSPACE,))
    ]
    assert home.sql("SELECT workspace_id FROM workspaces ORDER BY workspace_id") == [(WORKSPACE,), (USED,)]
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
    for name in ("nexus_client", "dashboard", *APPS):
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
