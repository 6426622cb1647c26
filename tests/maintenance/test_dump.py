"""`nexus backup`, `restore` and `doctor` of a store on PostgreSQL."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.maintenance.conftest import Home
from tests.maintenance.server import Server, rows
from tests.postgres import SERVER

pytestmark = pytest.mark.skipif(not SERVER, reason="needs a PostgreSQL server")
ROLES = "SELECT DISTINCT role FROM agents"

Nexus = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def moved(starts_processes: None, written: Path) -> Iterator[str]:
    """The name of a database that holds what the scenario wrote; copied, never used."""
    server = Server("moved")
    done = Home(written).process("migrate-store", "--to", server.database())
    assert done.returncode == 0, done.stderr
    yield server.names[0]
    server.drop(server.names[0])


@pytest.fixture
def store(moved: str, server: Server) -> str:
    """The address of a copy of it."""
    return server.database(moved)


@pytest.fixture
def nexus(home: Home, store: str) -> Nexus:
    """A command over that store."""
    return lambda name, *arguments, **options: home.process(name, *arguments, "--database-url", store, **options)


def test_it_brings_a_backup_back_gives_no_id_twice_and_tells_every_stream(
    home: Home, nexus: Nexus, store: str, tmp_path: Path
) -> None:
    dump = tmp_path / "copy.dump"
    made = nexus("backup", str(dump), "--json")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["rows"]["messages"] == rows(store, "SELECT count(*) FROM messages")[0][0]
    assert dump.stat().st_mode & 0o777 == 0o600
    [(before,)] = rows(store, "SELECT last_value FROM events_event_id_seq")
    rows(store, "UPDATE agents SET role = 'later'")
    rows(store, f"SELECT setval('events_event_id_seq', {before + 40})")

    done = nexus("restore", str(dump), "--json")

    assert done.returncode == 0, done.stderr
    assert rows(store, ROLES) == [(None,)]
    told = rows(store, "SELECT event_id, workspace_id, stream, payload FROM events WHERE type = 'history.restored'")
    assert len({(workspace_id, stream) for _, workspace_id, stream, _ in told}) == len(told) == 24
    assert min(event_id for event_id, *_ in told) == before + 41
    assert json.loads(told[0][3]) == {"restored_to": before, "former": before + 40}
    examined = nexus("doctor")
    assert examined.returncode == 0, examined.stdout

    back = nexus("restore", json.loads(done.stdout)["replaced"])
    assert back.returncode == 0, back.stderr
    assert rows(store, ROLES) == [("later",)], "the former store was kept"


def test_it_changes_nothing_for_what_is_no_whole_dump_of_this_version(
    home: Home, nexus: Nexus, store: str, tmp_path: Path
) -> None:
    newer, dump = tmp_path / "newer.dump", tmp_path / "copy.dump"
    assert nexus("backup", str(dump)).returncode == 0
    rows(store, "INSERT INTO django_migrations (app, name, applied) VALUES ('inbox', '0999_later', now())")
    assert nexus("backup", str(newer)).returncode == 0
    rows(store, "DELETE FROM django_migrations WHERE name = '0999_later'")
    rows(store, "UPDATE agents SET role = 'later'")
    cut = tmp_path / "cut.dump"
    cut.write_bytes(dump.read_bytes()[:-20_000])
    (tmp_path / "text").write_text("not a database")

    for path, why in (
        (newer, "MIGRATION_ERROR"),
        (cut, "not a complete backup"),
        (tmp_path / "text", "not a complete backup"),
        (tmp_path / "missing", "There is no backup"),
    ):
        done = nexus("restore", str(path))
        assert done.returncode == 1
        assert why in done.stderr and "Traceback" not in done.stderr
    assert rows(store, ROLES) == [("later",)]


def test_it_replaces_what_others_see_only_when_told(home: Home, nexus: Nexus, store: str, tmp_path: Path) -> None:
    import psycopg

    dump = tmp_path / "copy.dump"
    assert nexus("backup", str(dump)).returncode == 0
    with psycopg.connect(store, autocommit=True, application_name="nexus") as agent:
        agent.execute("UPDATE agents SET role = 'later'")

        refused = nexus("restore", str(dump))
        assert refused.returncode == 1 and "in use" in refused.stderr and "--into-running" in refused.stderr
        assert agent.execute(ROLES).fetchall() == [("later",)]

        done = nexus("restore", str(dump), "--into-running")
        assert done.returncode == 0, done.stderr
        assert agent.execute(ROLES).fetchall() == [(None,)]

        agent.execute("UPDATE agents SET role = 'later'")
        agent.execute("BEGIN")
        agent.execute("LOCK TABLE messages IN ACCESS SHARE MODE")
        held = nexus("restore", str(dump), "--into-running", "--busy-timeout-ms", "200")
        assert held.returncode == 1 and "try again in a moment" in held.stderr
        agent.execute("COMMIT")
        assert agent.execute(ROLES).fetchall() == [("later",)]


def test_it_says_which_program_is_missing_or_older_than_the_server(
    home: Home, nexus: Nexus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    missing = nexus("backup", str(tmp_path / "copy.dump"))
    assert missing.returncode == 1 and "pg_dump is not there" in missing.stderr

    (programs / "pg_dump").write_text("#!/bin/sh\necho 'pg_dump (PostgreSQL) 9.6.1'\n")
    (programs / "pg_dump").chmod(0o755)
    old = nexus("backup", str(tmp_path / "copy.dump"))
    assert old.returncode == 1 and "pg_dump is of PostgreSQL 9 and the server is of" in old.stderr
    assert not list(tmp_path.glob(".*")) and not (tmp_path / "copy.dump").exists()


def test_it_puts_the_password_on_no_command_line(
    home: Home, nexus: Nexus, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs, seen = tmp_path / "programs", tmp_path / "seen"
    programs.mkdir()
    for name in ("pg_dump", "pg_restore", "psql"):
        (programs / name).write_text(f'#!/bin/sh\necho "$@" >> {seen}\nPATH={os.environ["PATH"]} exec {name} "$@"\n')
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    secret = store.replace("nexus@", "nexus:geh%20eim@") + "?sslpassword=geheimer"

    made = home.process("backup", str(tmp_path / "copy.dump"), "--database-url", secret)
    back = home.process("restore", str(tmp_path / "copy.dump"), "--database-url", secret)

    assert made.returncode == 0 and back.returncode == 0, made.stderr + back.stderr
    assert "--snapshot" in seen.read_text() and "geh" not in seen.read_text()
    assert "geh" not in made.stdout + made.stderr + back.stdout + back.stderr


def test_it_mends_rows_triggers_and_indexes_and_names_what_a_file_alone_can_be_asked(
    home: Home, nexus: Nexus, store: str
) -> None:
    rows(store, "SELECT setval('events_event_id_seq', 1000)")  # ids that were burnt are no gap
    rows(store, "DROP TRIGGER events_refuse_update ON events")
    rows(store, "ALTER TABLE events DISABLE TRIGGER events_refuse_delete")
    rows(store, "DROP INDEX messages_to_nobody")
    rows(store, "DROP INDEX agents_by_age")
    rows(store, "CREATE INDEX agents_by_age ON agents (role)")
    rows(store, "INSERT INTO retention_passes DEFAULT VALUES")

    mended = json.loads(nexus("doctor", "--fix", "--json").stdout)

    assert [finding["check"] for finding in mended["findings"]] == ["schema"] * 4 + ["impossible rows"]
    assert mended["left"] == 0 and {"integrity", "event ids", "log"} <= set(mended["left_out"])
    working = "SELECT tgname FROM pg_trigger WHERE tgname ~ 'events_refuse' AND tgenabled = 'O' AND tgparentid = 0"
    assert sorted(rows(store, working)) == [("events_refuse_delete",), ("events_refuse_update",)]


def test_it_leaves_alone_what_others_keep_in_the_same_database(
    home: Home, nexus: Nexus, store: str, tmp_path: Path
) -> None:
    dump, older = tmp_path / "copy.dump", tmp_path / "older.dump"
    kept = "SELECT (SELECT oid FROM pg_publication), (SELECT string_agg(role, ',') FROM other.agents)"
    rows(store, "CREATE SCHEMA other")
    rows(store, "CREATE TABLE other.agents (role text)")
    rows(store, "CREATE TABLE other.theirs (role text)")
    rows(store, "CREATE PUBLICATION theirs FOR ALL TABLES")
    made = nexus("backup", str(dump))
    assert made.returncode == 0, made.stderr
    subprocess.run(["pg_dump", "--format=custom", f"--file={older}", f"--dbname={store}"], check=True)
    rows(store, "INSERT INTO other.agents VALUES ('later')")
    [there] = rows(store, kept)

    for backup in (dump, older):
        rows(store, "UPDATE agents SET role = 'later'")
        done = nexus("restore", str(backup))
        assert done.returncode == 0, done.stderr
        assert rows(store, ROLES) == [(None,)]
        assert rows(store, kept) == [there]


def test_it_says_what_the_server_refused(nexus: Nexus, store: str, tmp_path: Path) -> None:
    dump = tmp_path / "copy.dump"
    assert nexus("backup", str(dump)).returncode == 0
    rows(
        store,
        "CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not today'; END $$;"
        "CREATE EVENT TRIGGER refuse ON sql_drop EXECUTE FUNCTION refuse()",
    )
    refused = nexus("restore", str(dump))
    assert refused.returncode == 1 and "not today" in refused.stderr
