"""The writers' queue: who waits for whom, and that nobody waits for one who is gone."""

from __future__ import annotations

import fcntl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from sqlite3 import connect
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import OperationalError, connection

from coordination.models import Workspace
from nexus.core.clock import now
from nexus.core.database.sqlite import store as queues
from nexus.core.database.sqlite import store as sqlite
from nexus.core.database.sqlite.errors import beside
from nexus.core.database.store import unless_busy
from tests.acceptance.processes import environment

FAR = 60.0  # seconds; nothing here takes so long, and nothing hangs for good
WRITER = """
import sys, time, django
django.setup()
from nexus.core.database.store import write
from nexus.core.clock import now
from coordination.models import Workspace
print("ready", flush=True)
with write():
    Workspace.objects.create(workspace_id=sys.argv[1], root_realpath="/", created_at=now(), last_seen_at=now())
    if sys.argv[2:]:
        print("inside", flush=True)
        time.sleep(600)
print("done", flush=True)
"""

pytestmark = pytest.mark.usefixtures("committed")


def workspace(name: str) -> None:
    Workspace.objects.create(workspace_id=name, root_realpath="/", created_at=now(), last_seen_at=now())


def written() -> set[str]:
    return set(Workspace.objects.values_list("workspace_id", flat=True))


def queue(path: Path) -> queues.WriterQueue:
    """The queue as one process has it: two of them on one path are two processes."""
    return queues.WriterQueue(path)


def deadline() -> float:
    return time.monotonic() + FAR


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "queue"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Our connection waits for a fifth of a second."""
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "timeout", 0.2)
    connection.close()
    yield
    connection.close()


@pytest.fixture
def queued() -> Iterator[Any]:
    """Start a process that writes a workspace of this name; with another argument it stays inside for good."""
    started: list[subprocess.Popen[str]] = []
    environ = environment(django_settings.NEXUS.home, DJANGO_SETTINGS_MODULE="nexus_site.settings_agent")

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen([sys.executable, "-c", WRITER, *arguments], env=environ, text=True, stdout=-1)
        started.append(process)
        assert process.stdout and process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def is_held(path: Path) -> bool:
    """Whether somebody is the first of the queue."""
    with path.open("rb") as other:
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_it_writes_and_takes_back_also_within_another_one() -> None:
    with pytest.raises(ZeroDivisionError), sqlite.write():
        workspace("lost")
        raise ZeroDivisionError
    with sqlite.write():
        workspace("outer")
        with pytest.raises(ZeroDivisionError), sqlite.write():
            workspace("inner")
            raise ZeroDivisionError
    assert written() == {"outer"}


def test_it_keeps_its_file_beside_the_store_for_the_owner_alone() -> None:
    with sqlite.write():
        pass
    mode = beside(django_settings.NEXUS.database, ".write.lock").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


def test_it_leaves_the_busy_timeout_as_it_was(impatient: None) -> None:
    with sqlite.write(), connection.cursor() as cursor:
        assert cursor.execute("PRAGMA busy_timeout").fetchone() == (200,)


@pytest.mark.parametrize("beside", ["a process", "a thread"])
def test_it_admits_one_at_a_time(file: Path, beside: str) -> None:
    ours = queue(file)
    theirs = queue(file) if beside == "a process" else ours
    order: list[str] = []

    def come() -> None:
        with theirs.first(deadline()):
            order.append("theirs")

    other = threading.Thread(target=come)
    with ours.first(deadline()):
        other.start()
        other.join(0.2)  # time enough to push in
        order.append("ours")
    other.join()
    assert order == ["ours", "theirs"]


def test_it_waits_no_longer_than_its_patience_for_a_first_that_hangs(impatient: None) -> None:
    with sqlite.write():
        pass
    with beside(django_settings.NEXUS.database, ".write.lock").open("rb") as hung:
        fcntl.flock(hung, fcntl.LOCK_EX)
        with sqlite.write():
            workspace("past it")
    with sqlite.write():
        workspace("after it")
    assert written() == {"past it", "after it"}


def test_it_waits_but_once_for_a_first_that_hangs(file: Path) -> None:
    ours, theirs = queue(file), queue(file)
    passed = threading.Event()

    def come() -> None:
        with ours.first(deadline()):
            passed.set()

    other = threading.Thread(target=come)
    with theirs.first(deadline()):
        with ours.first(time.monotonic() + 0.05):
            pass
        other.start()
        assert passed.wait(FAR / 2), "the next write waited for its whole patience, too"
    other.join()


@pytest.mark.usefixtures("starts_processes")
def test_it_lets_a_process_end_that_waited_in_vain() -> None:
    environ = environment(
        django_settings.NEXUS.home, DJANGO_SETTINGS_MODULE="nexus_site.settings_agent", NEXUS_BUSY_TIMEOUT_MS="200"
    )
    with beside(django_settings.NEXUS.database, ".write.lock").open("wb") as hung:
        fcntl.flock(hung, fcntl.LOCK_EX)
        ended = subprocess.run(
            [sys.executable, "-c", WRITER, "past it"], env=environ, text=True, capture_output=True, timeout=FAR
        )
    assert ended.stdout == "ready\ndone\n", ended.stderr


def test_it_gives_up_as_sqlite_does_when_one_who_does_not_queue_holds_the_store(impatient: None) -> None:
    with closing(connect(django_settings.NEXUS.database, isolation_level=None)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        with pytest.raises(OperationalError) as caught, sqlite.write():
            pass
        assert sqlite.is_busy(caught.value)
        shell.execute("ROLLBACK")
    with sqlite.write():
        workspace("later")
    assert written() == {"later"}


def test_it_fails_at_once_where_nobody_is_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("waited"))
    with closing(connect(django_settings.NEXUS.database, isolation_level=None)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        with sqlite.without_waiting(), pytest.raises(OperationalError), sqlite.write():
            pass


def test_who_looks_again_is_told_nothing_of_a_store_that_is_busy_but_of_any_other_error() -> None:
    with closing(connect(django_settings.NEXUS.database, isolation_level=None)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        with unless_busy(), sqlite.without_waiting(), sqlite.write():
            workspace("not now")
    assert written() == set()
    with pytest.raises(OperationalError), unless_busy(), connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM nowhere")


def test_it_writes_where_files_cannot_be_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    queues.queue_of.cache_clear()
    monkeypatch.setattr(queues, "fcntl", None)
    with sqlite.write():
        workspace("unqueued")
    queues.queue_of.cache_clear()
    assert written() == {"unqueued"}


@pytest.mark.usefixtures("starts_processes")
def test_it_does_not_wait_for_a_first_that_was_killed(queued: Any) -> None:
    database = django_settings.NEXUS.database
    with closing(connect(database, isolation_level=None)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        first = queued("first")
        while not is_held(beside(database, ".write.lock")):
            time.sleep(0.01)
        second = queued("second")
        first.kill()
        first.wait()
        shell.execute("ROLLBACK")
    assert second.communicate(timeout=FAR)[0] == "done\n"
    assert written() == {"second"}


@pytest.mark.usefixtures("starts_processes")
def test_it_does_not_wait_for_a_writer_that_was_killed_within_its_transaction(queued: Any) -> None:
    holder = queued("killed", "and hangs")
    assert holder.stdout.readline() == "inside\n"
    waiting = queued("waiting")
    holder.kill()
    assert waiting.communicate(timeout=FAR)[0] == "done\n"
    assert written() == {"waiting"}
