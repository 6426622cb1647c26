"""Stores of other versions: earlier ones are migrated, newer and much older ones refused, a killed step is undone."""

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

from tests.core.test_migrations import KEPT
from tests.maintenance.conftest import ROOT, Done, Home

pytestmark = [pytest.mark.sqlite, pytest.mark.usefixtures("starts_processes")]  # its subject is the file

Nexus = Callable[..., Done]
SCHEMA = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"


@pytest.fixture
def kept(tmp_path: Path) -> Home:
    """A home with a store that the replaced migrations made."""
    home = Home(tmp_path / "kept")
    home.path.mkdir(mode=0o700)
    home.database.write_bytes(gzip.decompress((KEPT / "store.db.gz").read_bytes()))
    home.database.chmod(0o600)
    return home


@pytest.fixture
def behind(home: Home) -> Home:
    """A home whose store lacks a migration of this version."""
    home.sql("DROP TABLE imported_ids", "DROP TABLE imported_stores")
    home.sql("DELETE FROM django_migrations WHERE app = 'compat'")
    return home


def test_it_keeps_the_content_of_a_store_that_the_replaced_migrations_made(
    kept: Home, configure: Callable[..., None], nexus: Nexus
) -> None:
    workspaces = dict(kept.sql("SELECT number, workspace_id FROM workspaces"))
    subjects = dict(kept.sql("SELECT message_id, subject FROM messages"))
    events = {event_id: workspaces[number] for event_id, number in kept.sql(
        "SELECT event_id, workspace_id FROM events WHERE workspace_id IS NOT NULL"
    )}  # fmt: skip
    assert len(set(events.values())) > 1 and len(subjects) > 40
    assert kept.sql("SELECT count(*) FROM mcp_tasks") == [(2,)]

    assert kept.process("migrate").returncode == 0
    read: dict[str, dict[Any, str]] = {"event": {}, "message": {}}
    for workspace_id in workspaces.values():
        done = kept.process("export", "--workspace-id", workspace_id)
        assert done.returncode == 0 and not done.stderr
        for record in map(json.loads, done.stdout.split("\n")[:-1]):
            if record["kind"] in read:
                row = record["row"]
                read[record["kind"]][row[f"{record['kind']}_id"]] = row.get("subject", row["workspace_id"])

    assert read == {"event": events, "message": subjects}
    assert kept.sql("SELECT name FROM sqlite_master WHERE name LIKE 'mcp_tasks%'") == []
    configure(home=kept.path, db_path=None)
    examined = nexus("doctor")
    assert examined.code == 0, examined.out


def test_what_waits_for_a_webhook_is_sent_from_the_log(kept: Home) -> None:
    kept.sql(
        """INSERT INTO webhooks (webhook_id, url, secret, allow_private, cursor, created_at, failures)
        VALUES ('w', 'https://example.com', 's', 0, 40, '2026-01-01', 0)""",
        """INSERT INTO webhook_deliveries
        (delivery_id, webhook_id, event_id, body, status, attempts, next_attempt_at, created_at)
        VALUES ('a', 'w', 12, '{}', 'pending', 1, '2026-01-01', '2026-01-01'),
        ('b', 'w', 9, '{}', 'dead', 8, '2026-01-01', '2026-01-01')""",
    )

    assert kept.process("migrate").returncode == 0

    assert kept.sql("SELECT cursor, given_up FROM webhooks WHERE webhook_id = 'w'") == [(11, 1)]


# Of each app the first migration alone, and an app less.
EARLIER = """
    DELETE FROM django_migrations WHERE app = 'compat'
    OR app NOT IN ('admin', 'auth', 'contenttypes', 'sessions') AND name NOT IN ('0001_initial', '0001_webhooks')
"""


@pytest.mark.parametrize("command", ["runmcp", "export --workspace-id x", "serve", "migrate"])
def test_it_refuses_a_store_whose_next_migration_this_version_has_no_more(kept: Home, command: str) -> None:
    kept.sql(EARLIER)
    before = kept.database.read_bytes()

    done = kept.process(*command.split())

    assert done.returncode == 1
    assert "is too old for this version and was left as it is. Start commit" in done.stderr
    assert command == "migrate" or done.stderr.startswith("[nexus] MIGRATION_ERROR: ")
    assert kept.database.read_bytes() == before
    assert not (kept.path / "backups").exists()


def test_it_backs_a_store_up_before_it_migrates_it(behind: Home, nexus: Nexus) -> None:
    whole, roles = behind.sql(SCHEMA), behind.sql("SELECT agent_id, role FROM agents")

    migrated = behind.process("migrate")

    assert migrated.returncode == 0, migrated.stderr
    [backup] = (behind.path / "backups").iterdir()
    assert str(backup) in migrated.stderr
    with closing(sqlite3.connect(backup)) as former:
        assert former.execute(SCHEMA).fetchall() == whole
    assert behind.sql("SELECT agent_id, role FROM agents") == roles
    assert behind.sql("SELECT count(*) FROM imported_ids") == [(0,)]
    examined = nexus("doctor")
    assert examined.code == 0, examined.out


def test_it_backs_up_no_store_that_only_lacks_djangos_own_tables(tmp_path: Path) -> None:
    home = Home(tmp_path / "made-by-a-command")
    home.path.mkdir(mode=0o700)
    assert home.process("workspaces").stdout == "none\n"
    assert home.sql("SELECT name FROM sqlite_master WHERE name LIKE 'auth_%'") == [], "no command for agents needs them"

    migrated = home.process("migrate")

    assert migrated.returncode == 0 and "earlier version" not in migrated.stderr, migrated.stderr
    assert home.sql("SELECT count(*) FROM auth_user") == [(0,)]
    assert not (home.path / "backups").exists()


KILLED = """
import itertools, os, signal, sys
import django
django.setup()
from nexus.core.database.store import store
from nexus.core.progress import Bar
numbers = itertools.count(1)
def told(*_):
    if next(numbers) == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
Bar.__call__ = Bar.still = told
store().prepare()
"""


def test_a_backup_that_is_killed_again_and_again_leaves_nothing_beside_the_whole_one(behind: Home) -> None:
    whole = behind.sql(SCHEMA)
    environ = {**os.environ, "NEXUS_HOME": str(behind.path), "DJANGO_SETTINGS_MODULE": "nexus_site.settings"}

    ends = []
    for number in (1, 2, 10_000):  # of what it tells
        done = subprocess.run([sys.executable, "-c", KILLED, str(number)], cwd=ROOT, env=environ, check=False)
        ends.append(done.returncode)

    assert ends == [-9, -9, 0]
    [backup] = (behind.path / "backups").iterdir()
    with closing(sqlite3.connect(backup)) as former:
        assert former.execute(SCHEMA).fetchall() == whole
    assert behind.sql("PRAGMA integrity_check") == [("ok",)]


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
DEATHS = {"raise ValueError('no')": 1, "os.kill(os.getpid(), signal.SIGKILL)": -signal.SIGKILL}


def test_it_keeps_the_old_store_when_a_step_dies_half_way(home: Home, nexus: Nexus, tmp_path: Path) -> None:
    after = max(path.stem for path in (ROOT / "coordination/migrations").glob("0*.py"))
    before = (home.sql("SELECT * FROM message_deliveries"), home.sql("SELECT * FROM sqlite_master"))
    later = tmp_path / "later"  # the next version, with a step that dies
    skip = shutil.ignore_patterns("static", "locale")
    for name in ("nexus", "coordination", "inbox", "handoffs", "mcp_bridge", "nexus_site"):
        shutil.copytree(ROOT / name, later / name, ignore=skip)
    step = later / "coordination/migrations/0990_half.py"
    (later / "manage.py").write_text((ROOT / "manage.py").read_text())

    for death, code in DEATHS.items():
        step.write_text(HALF.format(death=death, after=after))
        died = home.process("export", "--workspace-id", "x", root=later)
        assert died.returncode == code
        assert "MIGRATION_ERROR" in died.stderr or code < 0
        assert (home.sql("SELECT * FROM message_deliveries"), home.sql("SELECT * FROM sqlite_master")) == before
        examined = nexus("doctor")
        assert examined.code == 0, examined.out
        assert json.loads(nexus("backup", "--json").out)["checked"]

    step.write_text(HALF.format(death="pass", after=after))  # its repair
    assert "not in this store" in home.process("export", "--workspace-id", "x", root=later).stderr
    assert home.sql("SELECT count(*) FROM half_done") == [(0,)]
