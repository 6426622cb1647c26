"""A home of one's own with a store that has something of everything, and ways to damage it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from tests import warm
from tests.acceptance.hub import START_SECONDS
from tests.maintenance.server import Server

ROOT = Path(__file__).parents[2]


def entries(directory: Path) -> set[str]:
    """The names in a directory."""
    return {path.name for path in directory.iterdir()}


@dataclass(frozen=True)
class Home:
    """A home directory; its store is a file that no process of the tests has open."""

    path: Path

    @property
    def database(self) -> Path:
        return self.path / "nexus.db"

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements as another program would, schema checks off; the rows of the last one."""
        with closing(sqlite3.connect(self.database, isolation_level=None)) as connection:
            connection.execute("PRAGMA ignore_check_constraints=ON")
            return [connection.execute(statement).fetchall() for statement in statements][-1]

    def process(self, *arguments: str, root: Path = ROOT, **options: Any) -> subprocess.CompletedProcess[str]:
        """`nexus ARGUMENTS` over this home, as a user runs it from the checkout at `root`."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("NEXUS_", "DJANGO_"))}
        environ["NEXUS_HOME"] = str(self.path)
        if root == ROOT and not options:
            return warm.run(arguments, environ, timeout=START_SECONDS)
        told: dict[str, Any] = {"text": True, "capture_output": True, "input": "", "timeout": START_SECONDS, **options}
        return subprocess.run([sys.executable, "manage.py", *arguments], cwd=root, env=environ, **told)


@pytest.fixture(scope="session")
def written(made_once: Callable[..., Path]) -> Path:
    """The home that the scenario wrote; copied or read, never written to."""

    def write(home: Path) -> None:
        subprocess.run([sys.executable, "-m", "tests.maintenance.scenario", str(home)], cwd=ROOT, check=True)

    return made_once("written", write)


@pytest.fixture
def home(written: Path, tmp_path: Path, configure: Callable[..., None]) -> Home:
    """A copy of the written home, which is this process's home too."""
    path = tmp_path / "home"
    shutil.copytree(written, path, ignore=shutil.ignore_patterns("nexus.db-*"))  # somebody may be reading it
    path.chmod(0o700)
    configure(home=path, db_path=None)
    return Home(path)


@dataclass(frozen=True)
class Done:
    """What a command did."""

    code: int
    out: str
    err: str


@pytest.fixture
def nexus() -> Callable[..., Done]:
    """Run a command in this process."""

    def run(name: str, *arguments: str) -> Done:
        out, err = StringIO(), StringIO()
        try:
            call_command(name, *arguments, stdout=out, stderr=err)
        except SystemExit as end:
            return Done(int(end.code or 0), out.getvalue(), err.getvalue())
        return Done(0, out.getvalue(), err.getvalue())

    return run


@pytest.fixture
def crashed(home: Home) -> Iterator[Home]:
    """The home after a crash: commits lie in the write-ahead log."""
    writer = sqlite3.connect(home.database, isolation_level=None)
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("UPDATE agents SET role = 'latest'")
    log, index = (home.path / f"nexus.db{suffix}" for suffix in ("-wal", "-shm"))
    kept = {path: path.read_bytes() for path in (home.database, log, index)}
    writer.close()
    for path, content in kept.items():
        path.write_bytes(content)
        path.chmod(0o600)
    yield home


@pytest.fixture
def server(runs_postgres: None) -> Iterator[Server]:
    made = Server()
    yield made
    for name in made.names:
        made.drop(name)
