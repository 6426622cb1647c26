"""A store or a backup with a damaged byte anywhere: a command works, or says what to do, and a good backup restores."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from nexus.core.database.store import store
from nexus.core.operations.errors import Code, NexusError
from tests.acceptance.hub import start
from tests.maintenance.conftest import Done, Home

pytestmark = pytest.mark.sqlite  # its subject is the file

Nexus = Callable[..., Done]
PAGE = 4096
SERVED_EACH = 6  # a server starts over each sixth damaged store: that takes longest


def damage_schema(path: Path) -> None:
    """Make the text of a CREATE TABLE no UTF-8."""
    content = bytearray(path.read_bytes())
    content[content.index(b"CREATE TABLE") + 3] = 0xFF
    path.write_bytes(content)


def flip(path: Path, offset: int, bits: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= bits
    path.write_bytes(content)


def offsets(size: int, count: int) -> list[int]:
    """Of the header, of the schema's pages, of the beginnings of pages, of anywhere: alike in every run."""
    chosen = random.Random(4096)
    return [
        *(chosen.randrange(100) for _ in range(count)),
        *(chosen.randrange(100, 3 * PAGE) for _ in range(count)),
        *(chosen.randrange(size // PAGE) * PAGE + chosen.randrange(12) for _ in range(count)),
        *(chosen.randrange(size) for _ in range(count)),
    ]


def says_what_to_do(done: Done) -> bool:
    return "Traceback" not in done.err and (done.code == 0 or bool(done.out) or done.err.startswith("[nexus] "))


def lines_of_server(home: Home) -> list[str]:
    """What `serve` prints over this store until it is ready, or ends."""
    try:
        hub = start(home.path)
    except AssertionError as ended:
        return [str(ended)]
    assert hub.stop() == 0
    return hub.lines


def check(home: Home, written: Path, nexus: Nexus, count: int) -> None:
    good = written / "nexus.db"
    for number, offset in enumerate(offsets(good.stat().st_size, count)):
        for path in home.path.glob("nexus.db*"):
            path.unlink()
        shutil.copy(good, home.database)
        flip(home.database, offset, 0xFF)
        for command in (["doctor"], ["doctor", "--fix"], ["backup", str(home.path / "copy.db")]):
            done = nexus(*command)
            assert says_what_to_do(done), (offset, command, done)
        try:
            store().pending()
        except NexusError as error:
            assert error.code in (Code.DB_ERROR, Code.MIGRATION_ERROR), offset
        empty = home.path / "other.db"
        for command in (["status"], ["export", "--workspace-id", "a" * 64], ["migrate-store", "--to", str(empty)]):
            ended = home.process(*command)
            assert says_what_to_do(Done(ended.returncode, ended.stdout, ended.stderr)), (offset, command, ended)
        assert ended.returncode == 0 or not empty.exists(), offset
        if number % SERVED_EACH == 0:
            assert "Traceback" not in "".join(lines_of_server(home)), offset
        for made in (*home.path.glob("copy.db*"), *home.path.glob("other.db*")):
            made.unlink()
        flipped = Path(shutil.copy(good, home.path / "flipped.db"))
        flip(flipped, offset, 0xFF)
        done = nexus("restore", str(flipped))
        assert says_what_to_do(done), (offset, done)
        done = nexus("restore", str(good))
        assert done.code == 0, (offset, done)


@pytest.mark.usefixtures("starts_processes")
def test_every_command_works_or_says_what_to_do(home: Home, written: Path, nexus: Nexus) -> None:
    check(home, written, nexus, 3)


@pytest.mark.long
def test_every_command_works_or_says_what_to_do_wherever_the_damage_is(home: Home, written: Path, nexus: Nexus) -> None:
    check(home, written, nexus, 40)


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize(
    "command", ["status", "runmcp", "serve", "export --workspace-id x", "migrate-store --to other.db", "doctor --fix"]
)
def test_a_damaged_schema_is_said_in_one_line_whatever_the_command(home: Home, command: str) -> None:
    damage_schema(home.database)

    done = home.process(*command.replace("other.db", str(home.path / "other.db")).split())

    assert done.returncode > 0
    assert "Traceback" not in done.stderr
    assert "stop" in (done.stdout + done.stderr).lower(), done  # and what to do after that


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("where", ["the format in the header", "a table that the command reads itself"])
def test_damage_is_said_in_one_line(home: Home, where: str) -> None:
    [(page,)] = home.sql("SELECT rootpage FROM sqlite_master WHERE name = 'message_deliveries'")
    flip(home.database, 47 if where == "the format in the header" else (page - 1) * PAGE, 0xFF)
    done = home.process("status")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("[nexus] DB_ERROR") and "damaged" in done.stderr, done


def test_a_good_backup_restores_over_a_damaged_schema(home: Home, written: Path, nexus: Nexus) -> None:
    damage_schema(home.database)
    assert nexus("restore", str(written / "nexus.db")).code == 0
    assert nexus("doctor").code == 0
