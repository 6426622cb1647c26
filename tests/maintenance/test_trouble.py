"""A damaged store, a full disk, a directory one may not write: clear at the start, clear in an answer, no more harm."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nexus.core.database.store import store
from nexus.core.operations.errors import Code, NexusError
from tests.acceptance.hub import START_SECONDS
from tests.maintenance.conftest import ROOT, Home
from tests.maintenance.test_doctor import DAMAGE

pytestmark = pytest.mark.sqlite  # its subject is the file


@pytest.mark.parametrize("damage", ["cut short", "not SQLite", "its log gone"])
def test_it_does_not_start_on_a_damaged_store_and_leaves_it_as_it_is(home: Home, damage: str) -> None:
    DAMAGE[damage][0](home)
    before = {path.name: path.read_bytes() for path in home.path.iterdir()}

    with pytest.raises(NexusError) as refusal:
        store().prepare()

    assert refusal.value.code == Code.DB_ERROR
    assert refusal.value.details == {"cause": "damaged"}
    assert "nexus doctor" in refusal.value.message
    assert {path.name: path.read_bytes() for path in home.path.iterdir()} == before


def test_it_does_not_take_a_store_cut_to_nothing_for_a_new_one_while_its_log_is_there(crashed: Home) -> None:
    crashed.database.write_bytes(b"")

    with pytest.raises(NexusError, match="is not a Nexus store"):
        store().prepare()
    assert (crashed.path / "nexus.db-wal").stat().st_size > 0


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("command", ["runmcp", "serve", "export --workspace-id x"])
def test_it_says_so_in_one_line_whatever_the_command(home: Home, command: str) -> None:
    DAMAGE["cut short"][0](home)
    before = home.database.read_bytes()

    done = home.process(*command.split())

    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("[nexus] DB_ERROR: ")
    assert done.stderr.count("\n") == 1
    assert home.database.read_bytes() == before


def test_it_goes_on_with_what_a_crash_left_in_the_log(crashed: Home) -> None:
    store().prepare()

    assert crashed.sql("SELECT DISTINCT role FROM agents") == [("latest",)]


def trouble(home: Home, kind: str, *, within: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """The envelopes of a write and a read after the trouble began; the log's lines are dropped."""
    [(message_id,)] = home.sql("SELECT max(message_id) FROM messages")
    caller = [sys.executable, "-m", "tests.maintenance.caller", str(home.path), kind, message_id]
    done = subprocess.run([*within, *caller], cwd=ROOT, text=True, capture_output=True, timeout=START_SECONDS)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def left_whole(home: Home) -> bool:
    with closing(sqlite3.connect(home.database)) as connection:
        return bool(connection.execute("PRAGMA integrity_check").fetchone() == ("ok",))


@pytest.mark.usefixtures("starts_processes")
def test_it_names_a_full_store_and_keeps_it_whole(home: Home) -> None:
    write, read = trouble(home, "full_store")

    assert write["error"]["code"] == "DB_ERROR"
    assert write["error"]["details"] == {"cause": "disk_full"}
    assert "full" in write["error"]["message"]
    assert read["ok"]
    assert left_whole(home)


@pytest.mark.usefixtures("starts_processes")
def test_it_names_a_limit_on_the_size_of_files(home: Home) -> None:
    write, read = trouble(home, "size_limit")

    assert write["error"]["details"] == {"cause": "io_error"}
    assert "size limits" in write["error"]["message"]
    assert read["ok"]
    assert left_whole(home)


def can_mount() -> bool:
    probe = ("unshare", "--mount", "--map-root-user", "mount", "-t", "tmpfs", "none", "/mnt")
    return bool(shutil.which("unshare")) and subprocess.run(probe, capture_output=True).returncode == 0


needs_mount = pytest.mark.skipif(not can_mount(), reason="this user may not mount a small file system")


@pytest.mark.usefixtures("starts_processes")
@needs_mount
def test_it_examines_a_store_on_a_full_disk_and_writes_no_half_backup(home: Home, tmp_path: Path) -> None:
    script = """
        mount -t tmpfs -o size=2m,mode=700 none "$0" && cp -a "$1"/nexus.db "$0"; export NEXUS_HOME="$0"
        dd if=/dev/zero of="$0"/.ballast 2>/dev/null
        "$2" manage.py backup "$0"/copy.db; ls "$0"; "$2" manage.py doctor; echo "exit code $?"
    """
    (tmp_path / "mounted").mkdir()
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", script]
    arguments = [str(tmp_path / "mounted"), str(home.path), sys.executable]
    done = subprocess.run([*command, *arguments], cwd=ROOT, text=True, capture_output=True, timeout=START_SECONDS)

    assert done.stderr.startswith("[nexus] DB_ERROR: No backup was written")
    assert "is full" in done.stderr
    assert "copy.db" not in done.stdout
    assert "FOUND (disk space)" in done.stdout
    assert "exit code 1" in done.stdout


@pytest.mark.usefixtures("starts_processes")
@needs_mount
def test_it_names_a_full_disk(home: Home, tmp_path: Path) -> None:
    script = 'mount -t tmpfs -o size=8m none "$0" && cp -a "$1"/nexus.db "$0" && shift && exec "$@"'
    mounted = Home(tmp_path / "mounted")
    mounted.path.mkdir()
    shutil.copy(home.database, mounted.path)

    write, read = trouble(
        mounted,
        "full_disk",
        within=("unshare", "--mount", "--map-root-user", "sh", "-c", script, str(mounted.path), str(home.path)),
    )

    assert write["error"]["code"] == "DB_ERROR"
    assert write["error"]["details"] == {"cause": "disk_full"}
    assert read["ok"]


@pytest.mark.usefixtures("starts_processes")
def test_it_names_a_store_that_became_read_only(home: Home, tmp_path: Path) -> None:
    for directory in [home.path, *home.path.parents][:4]:
        if os.geteuid() == 0 and directory != Path("/tmp"):
            shutil.chown(directory, user=65534) if directory == home.path else directory.chmod(0o755)
    write, read = trouble(home, "read_only")
    home.path.chmod(0o700)

    assert write["error"]["code"] == "DB_ERROR"
    assert write["error"]["details"]["cause"] in ("read_only", "cannot_open")
    assert "writ" in write["error"]["message"]
    assert read["ok"] or read["error"]["details"]["cause"] in ("read_only", "cannot_open")
    assert left_whole(home)


@pytest.mark.usefixtures("starts_processes")
def test_it_names_a_damaged_page_and_does_not_ask_to_try_again(home: Home) -> None:
    write, read = trouble(home, "broken_pages")

    for envelope in (write, read):
        assert envelope["error"]["code"] == "DB_ERROR"
        assert envelope["error"]["details"] == {"cause": "damaged"}
        assert "nexus doctor" in envelope["error"]["message"]


def test_it_does_not_start_where_it_may_not_write(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., bool] = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != home.path and real(path, mode))  # modes bind not root

    with pytest.raises(NexusError) as refusal:
        store().prepare()
    assert refusal.value.details == {"cause": "read_only"}
