"""The store on disk: made once however many start together, and refused rather than harmed."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from filelock import FileLock

from coordination.models import Agent
from nexus.core.apps import own_labels
from nexus.core.database.migrations import SQUASHED, pending_migrations
from nexus.core.database.sqlite import errors, schema
from nexus.core.database.sqlite.errors import beside, first_bytes, refuse_damaged
from nexus.core.database.store import store
from nexus.core.operations.errors import Code, NexusError
from tests.acceptance.processes import environment, nexus
from tests.conftest import Call

ROOT = Path(__file__).resolve().parents[2]


def refusal() -> NexusError:
    """The error that preparing the store ends with."""
    with pytest.raises(NexusError) as caught:
        store().prepare()
    for text in ("Traceback", "sqlite3", "OperationalError", "file is not a database"):
        assert text not in caught.value.message
    return caught.value


def execute(database: Path, *statements: str) -> list[tuple[object, ...]]:
    """Run statements past Django; the rows of the last one."""
    with closing(sqlite3.connect(database)) as connection, connection:
        return [connection.execute(statement).fetchall() for statement in statements][-1]


class Meddled(sqlite3.Connection):
    """A connection after whose look for the migrations' table another process makes it."""

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        rows = super().execute(sql, *parameters)
        if "name = 'django_migrations'" in sql:
            database = super().execute("PRAGMA database_list").fetchone()[2]
            with closing(sqlite3.connect(database, factory=sqlite3.Connection)) as other, other:
                other.execute("CREATE TABLE IF NOT EXISTS django_migrations (id INTEGER, app TEXT, name TEXT)")
        return rows


@pytest.mark.sqlite
def test_it_takes_no_store_that_another_process_is_making_for_another_programs(
    configure: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(tmp_path / "nexus.db", "PRAGMA journal_mode = WAL")
    configure(home=tmp_path)
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Meddled))
    assert store().pending()


@pytest.mark.sqlite
def test_it_takes_no_store_whose_header_has_just_been_written_for_an_emptied_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = tmp_path / "nexus.db"
    database.touch()
    looked: list[Path] = []

    def make_after_the_first_look(path: Path, count: int) -> bytes:
        found = first_bytes(path, count)
        if not looked:
            looked.append(path)
            other.execute("PRAGMA journal_mode = WAL")
            other.execute("CREATE TABLE t (x)")
        return found

    monkeypatch.setattr(errors, "first_bytes", make_after_the_first_look)
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        refuse_damaged(database)
        assert beside(database, "-wal").exists()


STARTED_TOGETHER = """
import os, sys, threading
import django
django.setup()
from coordination.models import Agent
from nexus.core.database.store import store
import nexus.core.database.sqlite.schema, filelock

go, gone = os.pipe()
children = []
for _ in range(20):
    if not (child := os.fork()):
        os.close(gone)
        os.read(go, 1)  # until the parent lets all go
        store().prepare()
        os._exit(Agent.objects.count())
    children.append(child)
os.close(gone)
print([os.waitpid(child, 0)[1] for child in children])
"""


@pytest.mark.usefixtures("starts_processes")
def test_twenty_that_start_together_on_a_fresh_home_all_use_one_store(tmp_path: Path) -> None:
    environ = {**environment(tmp_path / "home"), "DJANGO_SETTINGS_MODULE": "nexus_site.settings_agent"}
    said = subprocess.run(
        [sys.executable, "-c", STARTED_TOGETHER], env=environ, cwd=ROOT, capture_output=True, text=True
    )
    assert said.stdout == f"{[0] * 20}\n", said.stderr
    assert said.stderr == ""
    home, database = tmp_path / "home", tmp_path / "home" / "nexus.db"
    applied = [(str(app), str(name)) for app, name in execute(database, "SELECT app, name FROM django_migrations")]
    assert len(applied) == len(set(applied))
    assert not {app for app, _ in pending_migrations(set(applied))} & set(own_labels())
    assert execute(database, "PRAGMA integrity_check") == [("ok",)]
    assert [stat.S_IMODE(place.stat().st_mode) for place in (home, database)] == [0o700, 0o600]


@pytest.mark.usefixtures("starts_processes")
def test_it_ends_with_code_1_on_a_store_it_must_not_touch(tmp_path: Path) -> None:
    database = tmp_path / "nexus.db"
    database.write_text("my diary")
    ended = nexus(tmp_path, "runmcp")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("[nexus] DB_ERROR: ") and "Traceback" not in ended.stderr
    assert database.read_text() == "my diary"


def test_it_leaves_a_store_of_this_version_as_it_is(db: None) -> None:
    store().prepare()
    before = settings.NEXUS.database.stat().st_mtime_ns
    store().prepare()
    assert settings.NEXUS.database.stat().st_mtime_ns == before


def test_it_refuses_a_store_of_a_newer_version(configure: Callable[..., None], tmp_path: Path) -> None:
    database = tmp_path / "nexus.db"
    execute(
        database,
        "CREATE TABLE django_migrations (id INTEGER PRIMARY KEY, app TEXT, name TEXT, applied TEXT)",
        "INSERT INTO django_migrations (app, name) VALUES ('inbox', '9999_future'), ('elsewhere', '9999_future')",
    )
    configure(home=tmp_path)
    error = refusal()
    assert error.code == Code.MIGRATION_ERROR
    assert error.details == {"unknown_migrations": ["inbox.9999_future"]}
    tables = execute(database, "SELECT name FROM sqlite_master WHERE type = 'table'")
    assert tables == [("django_migrations",)]


@pytest.mark.parametrize("content", [b"not a database", b"\0" * 4096, b"SQLite format 3\0" + b"\xff" * 4096])
def test_it_refuses_a_file_that_is_no_store_and_leaves_it_alone(
    configure: Callable[..., None], tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "nexus.db").write_bytes(content)
    configure(home=tmp_path)
    assert refusal().code == Code.DB_ERROR
    assert (tmp_path / "nexus.db").read_bytes() == content


def test_it_refuses_the_database_of_another_program_and_leaves_it_alone(
    configure: Callable[..., None], tmp_path: Path
) -> None:
    execute(tmp_path / "nexus.db", "CREATE TABLE bookmarks (url TEXT)")
    content = (tmp_path / "nexus.db").read_bytes()
    configure(home=tmp_path)
    error = refusal()
    assert error.code == Code.DB_ERROR and "is not a Nexus store" in error.message
    assert (tmp_path / "nexus.db").read_bytes() == content


def test_it_refuses_places_where_no_store_can_be(configure: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    homes = [{"home": tmp_path / "file"}, {"home": tmp_path / "file" / "below"}]
    files = [tmp_path / name for name in ("directory", "pipe", "missing/nexus.db")]
    for wrong in (*homes, *({"home": tmp_path, "db_path": file} for file in (*files, Path(os.devnull)))):
        configure(**wrong)
        assert refusal().code == Code.DB_ERROR, wrong
        configure(db_path=None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["directory", "file", "pipe"]


def test_it_does_not_wait_for_a_migration_for_ever(
    configure: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "LOCK_SECONDS", 0)
    configure(home=tmp_path)
    with FileLock(f"{settings.NEXUS.database}.migrate.lock"):
        error = refusal()
    assert error.code == Code.MIGRATION_ERROR
    assert "Another process" in error.message


@pytest.mark.sqlite
@pytest.mark.usefixtures("committed")  # the connection is closed then, and may keep what it has not committed
def test_a_row_whose_text_is_not_utf_8_is_damage(call: Call, refused: Call) -> None:
    call("agent_register", agent_id="ann")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE agents SET role = CAST(x'ff' AS TEXT)")
    error = refused("agent_list")
    assert (error["code"], error["details"]) == (Code.DB_ERROR, {"cause": "damaged"})


def test_the_schemas_version_counts_what_was_replaced_and_rises_with_each_migration(call: Call) -> None:
    before = call("nexus_info")["schema_version"]
    applied = MigrationRecorder.Migration.objects
    applied.filter(name__contains=SQUASHED).delete()  # as a store has it that the replaced ones made
    assert call("nexus_info")["schema_version"] == before > len(own_labels())
    newest = max(applied.filter(app="coordination").values_list("name", flat=True))
    applied.create(app="coordination", name=f"{int(newest[:4]) + 1:04}_later")
    assert call("nexus_info")["schema_version"] == before + 1


def test_it_sees_one_state_throughout_a_snapshot_and_stops_no_writer(committed: None, call: Call) -> None:
    call("agent_register", agent_id="ann")
    with store().snapshot():
        assert Agent.objects.count() == 1
        execute(
            settings.NEXUS.database,
            "INSERT INTO agents (agent_id, created_at, updated_at) VALUES ('bob', '2026-01-01', '2026-01-01')",
        )
        assert Agent.objects.count() == 1
    assert Agent.objects.count() == 2


@pytest.mark.usefixtures("starts_processes")
def test_it_looks_at_a_store_in_use_without_taking_its_locks_away(tmp_path: Path) -> None:
    database = tmp_path / "nexus.db"
    visit = "import sqlite3, sys; store = sqlite3.connect(sys.argv[1]); store.execute('SELECT * FROM t'); store.close()"
    with closing(sqlite3.connect(database, isolation_level=None)) as ours:
        ours.execute("PRAGMA journal_mode = WAL")
        ours.execute("CREATE TABLE t (x)")
        refuse_damaged(database)
        subprocess.run([sys.executable, "-c", visit, database], check=True)
        assert beside(database, "-wal").exists()  # a visitor that sees our lock leaves the log to us
        ours.execute("INSERT INTO t VALUES (1)")


MOVED = """
import sys, threading
from pathlib import Path
from typing import Any
import django
django.setup()
from django.conf import settings
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from nexus.core.database.store import store
from nexus.core.operations.errors import NexusError

def open_one():
    try:
        connection.ensure_connection()
    except NexusError as error:
        print(error.details["cause"])

store().prepare()
store().guard()
home = settings.NEXUS.home
home.rename(home.with_name("away"))
home.mkdir()
thread = threading.Thread(target=open_one)  # which was past the look at the place when the home went
thread.start()
thread.join()
print(sorted(path.name for path in home.iterdir()))
"""


@pytest.mark.usefixtures("starts_processes")
def test_it_makes_no_store_where_a_moved_one_was(tmp_path: Path) -> None:
    environ = {**os.environ, "NEXUS_HOME": str(tmp_path / "home"), "DJANGO_SETTINGS_MODULE": "nexus_site.settings"}
    said = subprocess.run([sys.executable, "-c", MOVED], env=environ, cwd=ROOT, capture_output=True, text=True)
    assert said.stdout.splitlines() == ["moved", "[]"], said.stderr
    assert "Traceback" not in said.stderr
