"""Workers on several machines over PostgreSQL, two of them with clocks that are an hour off: nothing runs twice, and
only a machine that is killed counts as lost."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.hub import ROOT
from tests.acceptance.pool import Pool, end_whole, inner_worker, until
from tests.acceptance.processes import environment
from tests.outside import program
from tests.postgres import Cluster, database_of

RUNNERS = """
default = "rehearsal"
[runners.farm]
kind = "rehearsal"
labels = ["linux"]
script = [{ when = "stall", wait = 3600 }, { say = "did {content}" }]
[runners.first]
kind = "rehearsal"
labels = ["one"]
script = [{ when = "stall", wait = 3600 }]
[runners.rare]
kind = "rehearsal"
labels = ["gpu", "linux"]
"""
MACHINES = ("one", "two", "three")
AGENTS, MESSAGES = 9, 3
OFF = {"two": 1, "three": -1}  # machines, and the hours that their clocks are ahead


@contextmanager
def working(
    home: Path,
    name: str,
    database: str,
    *,
    runners: str = RUNNERS,
    python: str = sys.executable,
    within: Sequence[str] = (),
    **more: str,
) -> Iterator[subprocess.Popen[str]]:
    """The worker of a machine, once it works: over a Python of its own, within a command."""
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "runners.toml").write_text(runners)
    command = [*within, python, str(ROOT / "manage.py"), "run-pool", "--labels", "linux", "--name", name]
    environ = environment(home, NEXUS_DATABASE_URL=database, **more)
    process = subprocess.Popen(
        command, cwd=ROOT, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        assert process.stdout is not None
        yield process
    finally:
        process.kill()
        process.wait()


def begun(process: subprocess.Popen[str]) -> str:
    """The line that says that the machine works, or why it does not."""
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.fixture
def database(cluster: Cluster, tmp_path: Path) -> str:
    return database_of(tmp_path / "db", cluster.url)


def python_whose_clock_is_off(home: Path, hours: int) -> str:
    """A Python that shows its processes another time, and those that they start: so a whole machine has one clock."""
    program("faketime")
    (library,) = Path("/usr/lib").glob("*/faketime/libfaketime.so.1")
    python = home / "bin" / "python"
    python.parent.mkdir(parents=True)
    (home / "lib").symlink_to(Path(sys.prefix) / "lib")
    shutil.copy(Path(sys.prefix) / "pyvenv.cfg", home)
    clock = f"LD_PRELOAD={library} FAKETIME={hours:+}h FAKETIME_DONT_FAKE_MONOTONIC=1"
    python.write_text(f'#!/bin/bash\nexport {clock}\nexec -a "$0" {sys.executable} "$@"\n')
    python.chmod(0o755)
    return str(python)


@pytest.mark.long  # test_scaled_out.py kills machines, and tests/control/test_machines.py plays their clocks
def test_three_machines_run_each_turn_once_and_one_that_is_killed_is_noticed(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "hub"
    home.mkdir(mode=0o700)
    clocks = {name: python_whose_clock_is_off(tmp_path / f"python-{name}", hours) for name, hours in OFF.items()}
    shown = subprocess.run([clocks["two"], "-c", "import sys, time; print(time.time(), sys.executable)"], stdout=-1)
    assert float(shown.stdout.split()[0]) > time.time() + 3000 and shown.stdout.split()[1].decode() == clocks["two"]
    with ExitStack() as stack:
        pool = Pool(home, database=database, runners=RUNNERS)
        stack.callback(pool.close)
        lonely = pool.call("create_agent", agent_id="lonely", model="farm", cwd="/")
        assert "start one with `nexus run-pool --labels`" in lonely["error"]["message"]
        machines = {
            name: stack.enter_context(working(tmp_path / name, name, database, python=clocks.get(name, sys.executable)))
            for name in MACHINES
        }
        for name, process in machines.items():
            assert begun(process).startswith(f"[nexus] Machine {name} works; labels: linux")
        with working(tmp_path / "second", "one", database) as second:
            assert "CONFIG_ERROR: A worker called 'one' works already: process " in begun(second)
            assert second.wait() == 1
        rare = pool.call("create_agent", agent_id="rare", model="rare", cwd="/")
        assert "one lacks gpu; three lacks gpu; two lacks gpu" in rare["error"]["message"]

        names = [f"agent-{number}" for number in range(AGENTS)]
        for name in names:
            pool.create(name, model="farm", cwd="/")
        pool.create("first", model="first", cwd="/")
        for number in range(MESSAGES):
            for name in names:
                pool.result("send", f"/agent/{name}", content=f"work {number}", timeout_seconds=0)
        with psycopg.connect(database, autocommit=True) as store:

            def rows(query: str) -> list[tuple[object, ...]]:
                return store.execute(query.encode()).fetchall()

            until(lambda: rows("SELECT count(*) FROM pool_turns WHERE status = 'done'") == [(AGENTS * MESSAGES,)])
            where = Counter(machine for (machine,) in rows("SELECT machine FROM pool_agents WHERE agent_id <> 'first'"))
            assert where == dict.fromkeys(MACHINES, AGENTS // len(MACHINES))
            minute = "interval '1 minute'"
            assert rows(
                f"SELECT bool_and(started_at > now() - {minute} * 10 AND ended_at < now() + {minute}),"
                f" bool_and(queued_at <= started_at + {minute} AND started_at <= ended_at) FROM pool_turns"
            ) == [(True, True)], "they go by the database's clock"
            assert rows("SELECT count(*) FROM pool_machines WHERE is_lost OR epoch > 1") == [(0,)]

            pool.result("send", "/agent/first", content="stall", timeout_seconds=0)
            joined = "pool_turns t JOIN pool_agents a ON pool_agent_id = t.agent_id"
            running = f"SELECT machine FROM {joined} WHERE status = "
            until(lambda: rows(f"{running}'running'") == [("one",)])
            end_whole(machines["one"].pid)
            until(lambda: rows(f"{running}'interrupted'") == [("one",)])
            assert rows("SELECT why, needs_person_since IS NOT NULL FROM pool_turns WHERE status = 'interrupted'") == [
                ("its machine, one, was lost", True)
            ]
            assert rows("SELECT name, is_lost FROM pool_machines WHERE name <> 'hub' ORDER BY name") == [
                ("one", True), ("three", False), ("two", False)
            ]  # fmt: skip
            started = Counter(rows("SELECT payload::json->>'turn_id' FROM events WHERE type = 'turn.started'"))
            assert len(started) == AGENTS * MESSAGES + 1
            assert set(started.values()) == {1}, "nothing ran twice"
            with working(tmp_path / "one", "one", database) as again:
                assert begun(again).startswith("[nexus] Machine one works"), "at once: it is known to be lost"
                pool.result("send", "/agent/first", content="go", timeout_seconds=0)
                until(lambda: rows(f"{running}'done' AND a.agent_id = 'first'") == [("one",)])
                again.terminate()
                assert again.wait() == 0
            assert rows("SELECT is_lost, ended_at IS NOT NULL FROM pool_machines WHERE name = 'one'") == [(False, True)]


def test_a_machine_outlives_a_database_that_is_away_longer_than_its_worker(tmp_path: Path) -> None:
    with Cluster() as cluster, ExitStack() as stack:
        database = database_of(tmp_path / "db", cluster.url)
        machine = stack.enter_context(working(tmp_path / "one", "one", database))
        assert begun(machine).startswith("[nexus] Machine one works")
        worker = inner_worker(machine.pid)
        cluster.stop()
        worker.kill()
        assert machine.stdout is not None
        while "The end of the machine 'one' could not be stored" not in (line := machine.stdout.readline()):
            assert line, "it ended"
        cluster.start()

        with psycopg.connect(database, autocommit=True) as store:
            begins = "SELECT epoch FROM pool_machines WHERE ended_at IS NULL"
            until(lambda: store.execute(begins).fetchone() == (2,))
