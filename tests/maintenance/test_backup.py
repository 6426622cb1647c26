"""`nexus backup`: a checked copy under a new name, or nothing."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from nexus.core import progress
from nexus.maintenance import store_file
from tests.maintenance.conftest import Done, Home, entries

pytestmark = pytest.mark.sqlite  # its subject is the file

Nexus = Callable[..., Done]


def rows(database: Path, table: str) -> int:
    with closing(sqlite3.connect(f"{database.as_uri()}?immutable=1", uri=True)) as connection:
        count: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        return count


def test_it_copies_every_row_and_says_how_many(home: Home, nexus: Nexus, tmp_path: Path) -> None:
    done = nexus("backup", str(tmp_path / "copy.db"), "--json")

    report = json.loads(done.out)
    assert report["path"] == str(tmp_path / "copy.db")
    assert report["rows"]["messages"] == rows(home.database, "messages") == rows(tmp_path / "copy.db", "messages") > 40
    assert report["rows"]["events"] == rows(tmp_path / "copy.db", "events")


def test_it_writes_one_file_that_only_its_owner_may_read(home: Home, nexus: Nexus, tmp_path: Path) -> None:
    before = entries(tmp_path)
    nexus("backup", str(tmp_path / "copy.db"))

    assert entries(tmp_path) - before == {"copy.db"}
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600


def test_it_takes_what_lies_in_the_log_along(crashed: Home, nexus: Nexus, tmp_path: Path) -> None:
    nexus("backup", str(tmp_path / "copy.db"))

    with closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
        assert copy.execute("SELECT DISTINCT role FROM agents").fetchall() == [("latest",)]


def test_it_names_the_copy_by_the_time_in_a_directory_and_by_default_in_the_home(home: Home, nexus: Nexus) -> None:
    nexus("backup")
    nexus("backup", str(home.path / "backups"))

    assert (home.path / "backups").stat().st_mode & 0o777 == 0o700
    assert len(list((home.path / "backups").glob("nexus-20*Z.db"))) == 2


def test_it_never_writes_over_a_file(home: Home, nexus: Nexus, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")

    done = nexus("backup", str(tmp_path / "precious"))

    assert done.code == 1
    assert "VALIDATION_ERROR" in done.err
    assert (tmp_path / "precious").read_text() == "mine"


def test_it_leaves_nothing_of_a_damaged_store(home: Home, nexus: Nexus, tmp_path: Path) -> None:
    with home.database.open("r+b") as file:
        file.seek(home.database.stat().st_size // 2)
        file.write(os.urandom(8192))
    before = entries(tmp_path)

    done = nexus("backup", str(tmp_path / "copy.db"))

    assert done.code == 1
    assert "damaged" in done.err
    assert entries(tmp_path) == before


def test_it_refuses_a_home_without_a_store(home: Home, nexus: Nexus, tmp_path: Path) -> None:
    home.database.unlink()

    assert "There is no store" in nexus("backup", str(tmp_path / "copy.db")).err
    assert not home.database.exists()


def test_it_tells_how_far_a_long_one_is(home: Home, nexus: Nexus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0)

    monkeypatch.setattr(store_file, "STEPS_A_LOOK", 10)

    told = nexus("backup").err

    assert "backup: 100 %" in told
    assert re.search(r"backup: integrity of events, table \d+ of \d+, 0 s so far", told)
