"""Backups and `nexus doctor` of a store on PostgreSQL."""

from __future__ import annotations

import json
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


def test_its_own_programs_back_it_up_and_bring_it_back(
    home: Home, nexus: Nexus, store: str, server: Server, tmp_path: Path
) -> None:
    dump, restored = tmp_path / "nexus.dump", server.database()
    for command in (("backup",), ("restore", str(dump))):
        refused = nexus(*command)
        assert refused.returncode == 1 and "CONFIG_ERROR" in refused.stderr and "pg_dump" in refused.stderr

    subprocess.run(["pg_dump", "--format=custom", f"--file={dump}", store], check=True)
    rows(store, "UPDATE agents SET role = 'later'")
    [(newest,)] = rows(store, "SELECT last_value FROM events_event_id_seq")
    restoring = ["pg_restore", "--no-owner", "--exit-on-error", "--dbname", restored, str(dump)]
    subprocess.run(restoring, check=True)
    rows(restored, f"SELECT setval('events_event_id_seq', {newest + 40})")

    assert rows(restored, ROLES) == [(None,)]
    examined = home.process("doctor", "--database-url", restored)
    assert examined.returncode == 0, examined.stdout


def test_it_mends_rows_triggers_and_indexes_and_names_what_a_file_alone_can_be_asked(
    home: Home, nexus: Nexus, store: str
) -> None:
    rows(store, "DROP TRIGGER events_refuse_update ON events")
    rows(store, "ALTER TABLE events DISABLE TRIGGER events_refuse_delete")
    rows(store, "DROP INDEX messages_to_nobody")
    rows(store, "DROP INDEX agents_by_age")
    rows(store, "CREATE INDEX agents_by_age ON agents (role)")
    rows(store, "INSERT INTO retention_passes DEFAULT VALUES")

    mended = json.loads(nexus("doctor", "--fix", "--json").stdout)

    assert [finding["check"] for finding in mended["findings"]] == ["schema"] * 4 + ["retention passes"]
    assert mended["left"] == 0 and {"integrity", "references", "log"} <= set(mended["left_out"])
    working = "SELECT tgname FROM pg_trigger WHERE tgname ~ 'events_refuse' AND tgenabled = 'O' AND tgparentid = 0"
    assert sorted(rows(store, working)) == [("events_refuse_delete",), ("events_refuse_update",)]
