"""`nexus restore`: all of a backup, or the store as it was."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from nexus.core.operations.errors import NexusError
from nexus.maintenance import store_file
from tests.maintenance.conftest import ROOT, Done, Home, entries

pytestmark = pytest.mark.sqlite  # its subject is the file

Nexus = Callable[..., Done]
ROLES = "SELECT DISTINCT role FROM agents"


@pytest.fixture
def backup(home: Home, written: Path, tmp_path: Path) -> Path:
    """A copy from before every agent's role became `later`."""
    home.sql("UPDATE agents SET role = 'later'")
    return Path(shutil.copy(written / "nexus.db", tmp_path / "backup.db"))


def changed(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def test_it_brings_the_backup_back_and_keeps_the_store_it_replaces(home: Home, nexus: Nexus, backup: Path) -> None:
    report = json.loads(nexus("restore", str(backup), "--json").out)

    assert home.sql(ROLES) == [(None,)]
    with closing(sqlite3.connect(report["replaced"])) as replaced:
        assert replaced.execute(ROLES).fetchall() == [("later",)]
    assert Path(report["replaced"]).stat().st_mode & 0o777 == 0o600
    assert nexus("doctor").code == 0


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_it_restores_over_a_store_of_any_journal_mode_again_and_again(
    home: Home, nexus: Nexus, backup: Path, mode: str
) -> None:
    assert nexus("restore", str(backup)).code == 0
    assert home.sql(f"PRAGMA journal_mode={mode}", ROLES) == [(None,)]
    home.sql("UPDATE agents SET role = 'between'")

    report = json.loads(nexus("restore", str(backup), "--json").out)

    assert home.sql(ROLES) == [(None,)]
    with closing(sqlite3.connect(report["replaced"])) as replaced:
        assert replaced.execute(ROLES).fetchall() == [("between",)]


def test_a_copy_does_not_wait_for_a_lock_for_ever(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_file, "WAIT_SECONDS", 0)
    home.sql("PRAGMA journal_mode=DELETE")
    with closing(sqlite3.connect(home.database, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with closing(store_file.open_store(home.database)) as source, pytest.raises(NexusError) as refused:
            store_file.copy(source, tmp_path / "copy.db")
    assert refused.value.details == {"retryable": True}


def test_it_gives_out_no_event_id_twice_and_says_in_every_stream_what_happened(
    home: Home, nexus: Nexus, backup: Path
) -> None:
    [(before,)] = home.sql("SELECT seq FROM sqlite_sequence WHERE name = 'events'")
    home.sql(
        "UPDATE sqlite_sequence SET seq = seq + 40 WHERE name = 'events'"
    )  # as 40 events that were pruned leave it

    assert nexus("restore", str(backup)).code == 0

    told = home.sql("SELECT event_id, workspace_id, stream, payload FROM events WHERE type = 'history.restored'")
    workspaces = home.sql("SELECT number FROM workspaces")
    assert {(workspace, stream) for _, workspace, stream, _ in told} == {
        (workspace, stream)
        for workspace in (*(row[0] for row in workspaces), None)
        for stream in ("workspace", "agent", "handoff", "topic", "planning", "file", "pool", "forge")
    }
    assert min(event_id for event_id, *_ in told) == before + 41
    assert json.loads(told[0][3]) == {"restored_to": before, "former": before + 40}
    assert nexus("doctor").code == 0


def test_it_goes_on_far_above_a_store_that_cannot_tell_its_ids(home: Home, nexus: Nexus, backup: Path) -> None:
    [(before,)] = home.sql("SELECT seq FROM sqlite_sequence WHERE name = 'events'")
    home.database.write_bytes(b"garbage")

    assert nexus("restore", str(backup)).code == 0

    assert home.sql("SELECT min(event_id) FROM events WHERE type = 'history.restored'") == [(before + 1_000_001,)]
    assert nexus("doctor").code == 0


def test_it_keeps_what_the_replaced_store_had_in_its_log(
    crashed: Home, nexus: Nexus, written: Path, tmp_path: Path
) -> None:
    report = json.loads(nexus("restore", str(written / "nexus.db"), "--json").out)

    assert crashed.sql(ROLES) == [(None,)]
    with closing(sqlite3.connect(report["replaced"])) as replaced:
        assert replaced.execute(ROLES).fetchall() == [("latest",)]


def test_it_makes_the_store_of_an_empty_home(home: Home, nexus: Nexus, backup: Path) -> None:
    home.database.unlink()

    assert json.loads(nexus("restore", str(backup), "--json").out)["replaced"] is None
    assert home.sql(ROLES) == [(None,)]
    assert home.database.stat().st_mode & 0o777 == 0o600


def test_it_moves_a_store_beyond_reading_aside_with_its_log(home: Home, nexus: Nexus, backup: Path) -> None:
    home.database.write_bytes(b"garbage")
    log = home.path / "nexus.db-wal"
    log.write_bytes(b"of another store")

    replaced = Path(json.loads(nexus("restore", str(backup), "--json").out)["replaced"])

    assert home.sql(ROLES) == [(None,)]
    assert replaced.read_bytes() == b"garbage"
    assert replaced.with_name(f"{replaced.name}-wal").read_bytes() == b"of another store"


def test_it_refuses_a_store_that_somebody_has_open(home: Home, nexus: Nexus, backup: Path) -> None:
    with closing(sqlite3.connect(home.database)) as agent:
        agent.execute("PRAGMA journal_mode=WAL")
        done = nexus("restore", str(backup))

    assert done.code == 1
    assert "in use" in done.err
    assert home.sql(ROLES) == [("later",)]


NEWER = "INSERT INTO django_migrations (app, name, applied) VALUES ('inbox', '0999_later', '')"
TOO_OLD = "UPDATE django_migrations SET name = '0002_earlier' WHERE app = 'topics'"


@pytest.mark.parametrize("statement", [NEWER, TOO_OLD])
def test_it_refuses_a_backup_of_another_version(home: Home, nexus: Nexus, backup: Path, statement: str) -> None:
    changed(backup, statement)

    assert "MIGRATION_ERROR" in nexus("restore", str(backup)).err
    assert home.sql(ROLES) == [("later",)]


def test_it_refuses_what_is_no_store_or_a_damaged_one(home: Home, nexus: Nexus, backup: Path, tmp_path: Path) -> None:
    changed(tmp_path / "other.db", "CREATE TABLE recipes (name)")
    (tmp_path / "text").write_text("not a database")
    with backup.open("r+b") as file:
        file.seek(backup.stat().st_size // 2)
        file.write(os.urandom(8192))
    before = entries(home.path)

    for path, why in (
        (tmp_path / "other.db", "not a store of Nexus"),
        (tmp_path / "text", "not a Nexus store"),
        (tmp_path / "missing", "There is no backup"),
        (backup, "damaged"),
    ):
        assert why in nexus("restore", str(path)).err
    assert home.sql(ROLES) == [("later",)]
    assert entries(home.path) == before


@pytest.mark.usefixtures("starts_processes")
def test_it_leaves_a_store_after_a_crash_fit_to_start_when_the_disk_refuses_the_rest(
    crashed: Home, written: Path
) -> None:
    limit = ((written / "nexus.db").stat().st_size - 8192,) * 2
    backup = str(written / "nexus.db")
    crashed.process("restore", backup, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))

    assert crashed.process("doctor").returncode == 0
    assert crashed.sql(ROLES) == [("latest",)]


@pytest.mark.usefixtures("starts_processes")
def test_it_changes_nothing_when_the_disk_refuses_a_write(home: Home, backup: Path) -> None:
    limit = (backup.stat().st_size - 8192,) * 2
    done = home.process("restore", str(backup), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))

    assert done.returncode == 1
    assert "Nothing was restored" in done.stderr
    assert "Traceback" not in done.stderr
    assert home.sql(ROLES) == [("later",)]


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("sign", ["partial", "replaced"])
def test_it_leaves_one_store_or_the_other_when_it_is_killed(home: Home, backup: Path, sign: str) -> None:
    command = [sys.executable, "manage.py", "restore", str(backup)]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "NEXUS_HOME": str(home.path)})
    while process.poll() is None and not any(sign in name for name in entries(home.path)):
        time.sleep(0.0005)
    process.kill()
    process.wait()

    examined = home.process("doctor")
    assert examined.returncode == 0, examined.stdout
    assert home.sql(ROLES) in ([("later",)], [(None,)])
    assert home.process("restore", str(backup)).returncode == 0
    assert not [name for name in entries(home.path) if "partial" in name]  # nor of the one that was killed
