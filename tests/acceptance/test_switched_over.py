"""A PostgreSQL server that is away, hangs, recovers or is switched over: what a hub answers and logs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from nexus.reservations.guard import holdings
from tests.acceptance.hub import Hub, serving
from tests.acceptance.pool import until
from tests.acceptance.processes import nexus
from tests.acceptance.test_two_hubs import envelope
from tests.outside import program
from tests.postgres import USER, Cluster, Standby, database_of, programs

CALLS = 3  # during an outage, beside those of the hub itself
PATIENCE = ("--busy-timeout-ms", "2000")  # so long a call waits for a connection


@pytest.fixture
def primary(runs_postgres: None) -> Iterator[Cluster]:
    """A server of this test's own, since it ends."""
    if programs() is None:
        program("initdb")
    with Cluster() as started:
        yield started


def said(hub: Hub, words: str) -> list[str]:
    return [line for line in hub.lines if words in line]


def register(hub: Hub, agent_id: str) -> dict[str, Any]:
    return envelope(hub, "agent_register", agent_id=agent_id)


def test_the_log_says_once_that_the_database_is_away_and_once_that_it_is_back(primary: Cluster, tmp_path: Path) -> None:
    database = database_of(tmp_path, primary.url)
    with serving(tmp_path / "home", "--reaper", *PATIENCE, database=database) as hub:
        assert register(hub, "ana")["ok"]
        primary.stop()
        before = len(hub.lines)
        for _ in range(CALLS):
            error = register(hub, "bob")["error"]
            assert (error["code"], error["details"]) == ("DB_ERROR", {"retryable": True, "cause": "unreachable"})
            assert httpx.get(f"{hub.url}/readyz").status_code == 503
        primary.start()
        until(lambda: register(hub, "bob")["ok"] and said(hub, "The database is back"))
        lines = hub.lines[before:]
        assert len(said(hub, "The database is away (unreachable)")) == len(said(hub, "The database is back")) == 1
        assert not [line for line in lines if "connecting in" in line or "Traceback" in line], lines


def test_a_server_that_hangs_is_away(primary: Cluster, tmp_path: Path) -> None:
    address = f"{database_of(tmp_path, primary.url)}?connect_timeout=2"
    with serving(tmp_path / "home", *PATIENCE, database=address) as hub:
        assert register(hub, "ana")["ok"]
        with primary.hung():
            error = register(hub, "bob")["error"]
            assert (error["code"], error["details"]) == ("DB_ERROR", {"retryable": True, "cause": "unreachable"})
            assert said(hub, "The database is away (unreachable)")
        until(lambda: register(hub, "bob")["ok"] and said(hub, "The database is back"))
        assert not said(hub, "Traceback")


def test_of_several_hosts_it_uses_the_one_that_takes_writes(primary: Cluster, tmp_path: Path) -> None:
    name = database_of(tmp_path, primary.url).rpartition("/")[2]
    with Standby(primary) as standby:
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in (standby, primary))
        with serving(tmp_path / "home", database=f"postgresql://{USER}@{hosts}/{name}") as hub:
            assert register(hub, "ana")["ok"]
            until(lambda: agents(standby, name) == ["ana"])
            address = f"postgresql://{USER}@{hosts}/{name}"
            with holdings._of_server(address) as store:
                assert store._query("SELECT pg_is_in_recovery()", []).fetchone() == (False,)
            primary.stop()
            standby.promote()
            until(lambda: register(hub, "bob")["ok"])
            assert agents(standby, name) == ["ana", "bob"]
            primary.start()  # for its end


def test_a_standby_is_refused_as_the_store_in_one_sentence(primary: Cluster, tmp_path: Path) -> None:
    name = database_of(tmp_path, primary.url).rpartition("/")[2]
    assert nexus(tmp_path / "one", "status", NEXUS_DATABASE_URL=f"{primary.url}/{name}").returncode == 0
    with Standby(primary) as standby:
        for attributes in ("", "?target_session_attrs=any"):
            done = nexus(tmp_path / "two", "status", NEXUS_DATABASE_URL=f"{standby.url}/{name}{attributes}")
            assert (done.returncode, done.stdout) == (1, "")
            assert done.stderr.startswith("[nexus] DB_ERROR: ") and "standby" in done.stderr, done.stderr
            assert done.stderr.count("\n") == 1


def agents(server: Cluster, name: str) -> list[str]:
    with psycopg.connect(f"{server.url}/{name}") as connection:
        return [row[0] for row in connection.execute("SELECT agent_id FROM agents ORDER BY agent_id")]
