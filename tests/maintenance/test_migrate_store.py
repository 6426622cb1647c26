"""`nexus migrate-store`: from a file to a server and back, whole and the same, or not at all."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.hub import START_SECONDS
from tests.maintenance.conftest import ROOT, Home, entries
from tests.maintenance.server import Server, rows
from tests.postgres import SERVER

pytestmark = pytest.mark.skipif(not SERVER, reason="needs a PostgreSQL server")
PRUNE = (  # the oldest messages stay, and their events go
    "INSERT INTO retention_passes (id) VALUES (NULL)",
    "DELETE FROM events WHERE event_id < 20",
    "DELETE FROM retention_passes",
)


@pytest.fixture
def nexus(home: Home) -> Callable[..., subprocess.CompletedProcess[str]]:
    return home.process


Nexus = Callable[..., subprocess.CompletedProcess[str]]


def workspaces(home: Home) -> list[str]:
    return [workspace_id for (workspace_id,) in home.sql("SELECT workspace_id FROM workspaces")]


def test_it_moves_a_store_there_and_back_with_the_same_exports_ids_and_search(
    home: Home, nexus: Nexus, server: Server, tmp_path: Path
) -> None:
    home.sql(*PRUNE, "UPDATE sqlite_sequence SET seq = seq + 40 WHERE name = 'events'")
    home.sql("UPDATE agents SET metadata = '{\"b\":  1, \"a\": 1.0}' WHERE agent_id = 'ana'")  # as nobody writes it
    there, back = server.database(), tmp_path / "back.db"

    done = nexus("migrate-store", "--to", there, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    again = nexus("migrate-store", "--database-url", there, "--to", str(back))
    assert again.returncode == 0, again.stderr

    assert report["rows"]["messages"] == rows(there, "SELECT count(*) FROM messages")[0][0] > 40
    assert rows(there, "SELECT metadata FROM agents WHERE agent_id = 'ana'") == [('{"b":  1, "a": 1.0}',)]
    [(head,)] = home.sql("SELECT seq FROM sqlite_sequence WHERE name = 'events'")
    assert rows(there, "SELECT last_value FROM events_event_id_seq") == [(head,)]
    assert rows(there, "SELECT count(*) FROM message_documents") == rows(
        there, "SELECT count(*) FROM search_index JOIN message_documents USING (document)"
    ), "messages whose event was pruned are found, too"
    with closing(sqlite3.connect(back)) as store:
        assert store.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchall() == [(head,)]
        assert (
            store.execute("SELECT count(*) FROM search_index WHERE search_index MATCH '\"Message\"'").fetchone()
            == (home.sql("SELECT count(*) FROM search_index WHERE search_index MATCH '\"Message\"'")[0])
        )
    for workspace_id in workspaces(home):
        exports = {
            nexus("export", "--workspace-id", workspace_id, *place).stdout
            for place in ([], ["--database-url", there], ["--db-path", str(back)])
        }
        assert len(exports) == 1 and len(exports.pop()) > 100
    assert back.stat().st_mode & 0o777 == 0o600
    assert nexus("doctor", "--db-path", str(back)).returncode == 0
    assert not [name for name in entries(tmp_path) if name.startswith(".")]


def test_it_refuses_a_target_that_holds_something_or_is_the_store_itself(
    home: Home, nexus: Nexus, server: Server, tmp_path: Path
) -> None:
    used = server.database()
    rows(used, "CREATE TABLE recipes (name text)")
    (tmp_path / "precious").write_text("mine")

    for target, why in (
        (used, "is not empty (see its table recipes)"),
        (str(tmp_path / "precious"), "exists already"),
        (str(home.database), "already"),
        ("mysql://there/x", "postgresql://"),
    ):
        done = nexus("migrate-store", "--to", target)
        assert done.returncode == 1
        assert why in done.stderr and "Traceback" not in done.stderr
    assert (tmp_path / "precious").read_text() == "mine"
    assert rows(used, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(1,)]


def test_it_refuses_a_store_that_somebody_uses(home: Home, nexus: Nexus, server: Server) -> None:
    empty = server.database()
    with closing(sqlite3.connect(home.database)) as agent:
        agent.execute("SELECT count(*) FROM agents").fetchone()
        done = nexus("migrate-store", "--to", empty)

    assert done.returncode == 1 and "in use" in done.stderr
    assert rows(empty, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]


def test_it_leaves_no_table_where_a_row_does_not_fit(home: Home, nexus: Nexus, server: Server) -> None:
    home.sql(f"UPDATE agents SET role = '{'r' * 5000}' WHERE agent_id = 'ana'")
    empty = server.database()

    done = nexus("migrate-store", "--to", empty)

    assert done.returncode == 1 and "refuses a row of agents" in done.stderr
    assert rows(empty, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]


def test_it_leaves_the_target_as_it_was_when_it_is_interrupted(home: Home, server: Server) -> None:
    empty = server.database()
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("NEXUS_", "DJANGO_"))}
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys\nfrom nexus.core import progress\n"
            "def interrupted(*_): raise KeyboardInterrupt\n"
            "progress.Bar.__call__ = interrupted\n"
            "from nexus_site.launch import main\nmain(['nexus', 'migrate-store', '--to', sys.argv[1]])",
            empty,
        ],
        cwd=ROOT,
        env={**environ, "NEXUS_HOME": str(home.path)},
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
    )

    assert done.returncode == 130, done.stderr
    assert rows(empty, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]
