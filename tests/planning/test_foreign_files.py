"""Large files that another program wrote: read outside of the writers' turn, applied in short transactions."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from coordination.models import Agent, Event
from coordination.toolset import run
from nexus.core.database.store import write
from nexus.core.waiting import with_store
from nexus.planning import directory, documents, mirror, schemas
from nexus.planning.models import Cycle, Issue, Task
from tests.conftest import LOCAL, at_once
from tests.core.waiting import LONG
from tests.planning.conftest import Project

MANY = 4 * documents.AT_ONCE + 1

pytestmark = pytest.mark.usefixtures("committed")


def board(count: int, **more: Any) -> dict[str, Any]:
    """A file with so many tasks."""
    tasks = [
        {"id": number, "title": f"Task {number}", "context": "Why.", "status": "pending", "deps": [], **more}
        for number in range(1, count + 1)
    ]
    return {"goal": "Ship", "decisions": [], "tasks": tasks}


def cycle(number: int) -> dict[str, Any]:
    return {"completed_at": f"2026-01-01T00:00:00.{number:03}Z", "branch": "main", "plan": None, "tasks": []}


@pytest.fixture
def after_each(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], None]], None]:
    """Have something done after each transaction of a plan's call, with its number."""

    def having(done: Callable[[int], None]) -> None:
        numbers = iter(range(1, 1_000))

        @contextmanager
        def watched(*names: str) -> Iterator[None]:
            with write(*names):
                yield
            done(next(numbers))

        monkeypatch.setattr(mirror, "write", watched)

    return having


class Killed(BaseException):
    """Ends a call as the end of its process does."""


def test_others_write_while_it_is_applied(nexus: Project, after_each: Any) -> None:
    events = [Event.objects.count()]

    def register(number: int) -> None:
        events.append(Event.objects.count())
        # From a thread of its own, with a connection of its own: it would wait for a transaction that is open.
        other = threading.Thread(
            target=with_store, args=(lambda: run(LOCAL, "agent_register", {"agent_id": f"agent-{number}"}),)
        )
        other.start()
        other.join(LONG)
        assert Agent.objects.filter(pk=f"agent-{number}").exists()

    after_each(register)
    nexus.write("state/tasks.json", board(MANY))
    assert len(nexus.call("task_list")["tasks"]) == MANY
    sizes = [after - before for before, after in pairwise(events)]
    assert len(sizes) > MANY / documents.AT_ONCE
    assert max(sizes) <= documents.AT_ONCE + 2  # the other's among them
    assert Event.objects.filter(type="task.added").count() == MANY


def test_it_is_read_outside_of_any_transaction(nexus: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    parse, inside = schemas.StateFile.parse, []

    def watched(self: Any, content: bytes) -> Any:
        inside.append(connection.in_atomic_block)
        return parse(self, content)

    monkeypatch.setattr(schemas.StateFile, "parse", watched)
    nexus.write("state/tasks.json", board(3))
    assert nexus.call("task_list")["summary"]["total"] == 3
    assert inside == [False]


def test_who_asks_while_it_is_applied_gets_no_half_of_it(
    nexus: Project, after_each: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Any] = []

    def ask(number: int) -> None:
        asking = threading.Thread(target=with_store, args=(lambda: answers.append(nexus.body("task_list")),))
        asking.start()
        asking.join(LONG)

    after_each(ask)
    nexus.write("state/tasks.json", board(MANY))
    monkeypatch.setattr(mirror.import_changes, "__defaults__", (0.0,))  # who asks does not wait
    nexus.call("task_list")
    told = Counter(body["error"]["code"] if not body["ok"] else body["data"]["summary"]["total"] for body in answers)
    assert told.keys() <= {"STATE_BUSY", MANY} and told["STATE_BUSY"] > 2


def test_a_crash_in_the_middle_loses_nothing_and_does_nothing_twice(nexus: Project, after_each: Any) -> None:
    nexus.task("Ours")
    document = board(MANY, status="completed")
    nexus.write("state/tasks.json", document)

    def die(number: int) -> None:
        if number == 3:
            raise Killed

    after_each(die)
    with pytest.raises(Killed):
        nexus.call("task_list")
    assert 0 < Task.objects.filter(status="completed").count() < MANY
    assert nexus.read("state/tasks.json") == document
    after_each(lambda number: None)
    assert nexus.call("task_list")["tasks"] == document["tasks"]
    assert nexus.read("state/tasks.json") == document
    types = Counter(Event.objects.values_list("type", flat=True))
    assert (types["task.added"], types["task.completed"]) == (MANY, 1)


def test_a_file_that_changes_while_it_is_applied_is_not_written_over(nexus: Project, after_each: Any) -> None:
    newer = board(2, context="Newer.")

    def change(number: int) -> None:
        if number == 2:
            nexus.write("state/tasks.json", newer)

    after_each(change)
    nexus.write("state/tasks.json", board(MANY))
    nexus.call("task_list")
    assert nexus.read("state/tasks.json") == newer
    assert nexus.call("task_list")["tasks"] == newer["tasks"]
    assert nexus.read("state/tasks.json") == newer


def test_what_a_handoff_moved_on_meanwhile_stays(nexus: Project, after_each: Any) -> None:
    for number in range(1, 4):
        nexus.task(f"Task {number}")
    document = nexus.read("state/tasks.json")
    for task in document["tasks"]:
        task["context"] = "Else."
    nexus.write("state/tasks.json", document)

    def claim(number: int) -> None:
        if number == 1:
            Task.objects.filter(number=3).update(status="in_progress", held_by="ann")

    after_each(claim)
    listed = nexus.call("task_list")["tasks"]
    assert [(task["context"], task["status"]) for task in listed] == [
        ("Else.", "pending"),
        ("Else.", "pending"),
        ("Else.", "in_progress"),
    ]


def test_two_that_find_it_at_once_apply_it_once(nexus: Project) -> None:
    nexus.write("state/tasks.json", board(MANY))
    answers = at_once([lambda: nexus.body("task_list")] * 3)
    assert all(body["ok"] or body["error"]["code"] == "STATE_BUSY" for body in answers)
    assert nexus.call("task_list")["summary"]["total"] == MANY
    assert Counter(Event.objects.values_list("type", flat=True))["task.added"] == MANY


def test_new_cycles_are_seen_all_at_once(nexus: Project, after_each: Any) -> None:
    nexus.write("history.json", {"cycles": [cycle(number) for number in range(5)]})
    assert nexus.call("history_search")["total"] == 5
    seen: list[tuple[int, int]] = []
    after_each(lambda number: seen.append((Cycle.objects.count(), Cycle.objects.in_history().count())))
    nexus.write("history.json", {"cycles": [cycle(number) for number in range(1, MANY)]})
    assert nexus.call("history_search")["total"] == MANY - 1
    assert len(seen) > 4 and [listed for _, listed in seen[:-2]] == [5] * (len(seen) - 2)
    rows = [rows for rows, _ in seen]
    assert max(after - before for before, after in pairwise(rows)) <= documents.AT_ONCE
    assert seen[-2:] == [(MANY, MANY - 1)] * 2  # the last one notes the file


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"[" * 100_000, "it is no JSON"),
        (b'{"goal": ' * 100_000, "it is no JSON"),
        (b"[" + b"1," * (schemas.MOST_VALUES + 1) + b"1]", "it holds more than"),
        (b'{"goal": "", "decisions": [], "tasks": [%s]}' % b",".join([b"{}"] * 10_001), "more than 10000 entries"),
    ],
)
def test_a_file_without_measure_is_refused(nexus: Project, content: bytes, fault: str) -> None:
    nexus.write("state/tasks.json", content)
    code, message = nexus.refused("task_list")
    assert code == "STATE_FILE_INVALID" and fault in message


def test_a_history_without_measure_is_refused(nexus: Project) -> None:
    nexus.write("history.json", {"cycles": [cycle(1)] * (schemas.MOST_CYCLES + 1)})
    code, message = nexus.refused("history_search")
    assert code == "STATE_FILE_INVALID" and f"more than {schemas.MOST_CYCLES} entries" in message


def test_issues_are_applied_a_part_at_a_time(nexus: Project, after_each: Any) -> None:
    rows = [0]
    after_each(lambda number: rows.append(Issue.objects.filter(title="Which?").count()))
    issues = [{"id": number, "title": "Which?", "status": "pending"} for number in range(1, MANY + 1)]
    plan = {"id": 1, "topic": "Parser", "issues": issues, "created_at": "2026-01-01T00:00:00.000Z"}
    for title in ("Which?", "How?"):  # new ones, and ones that change
        for issue in issues:
            issue["title"] = title
        nexus.write("state/plan.json", plan)
        assert nexus.call("plan_status")["issues"] == issues
    nexus.write("state/plan.json", {**plan, "issues": issues[:1]})
    assert nexus.call("plan_status")["summary"]["total"] == 1
    assert max(abs(after - before) for before, after in pairwise(rows)) == documents.AT_ONCE


# What is written


def test_nothing_is_written_that_would_not_be_read(nexus: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "MAX_BYTES", 2_000)
    for number in range(20):
        body = nexus.body("task_add", title=f"Task {number}", context="Why.")
        if not body["ok"]:
            break
    error, there = body["error"], nexus.read("state/tasks.json")
    assert error["code"] == "CONTENT_TOO_LARGE" and "task_close" in error["message"]
    assert error["details"]["bytes"] > error["details"]["max_bytes"]
    assert len(there["tasks"]) == number == len(nexus.call("task_list")["tasks"])
    nexus.write("state/tasks.json", {**there, "goal": "Another's"})  # what is there can be read
    assert nexus.call("task_list")["goal"] == "Another's"


def test_a_foreign_file_that_could_not_be_written_is_refused(nexus: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "MAX_BYTES", 2_000)
    nexus.write("state/tasks.json", str(board(16)).replace("'", '"').replace(" ", ""))
    before = (nexus.state / "tasks.json").read_bytes()
    assert len(before) < 2_000
    code, message = nexus.refused("task_list")
    assert code == "STATE_FILE_INVALID" and "MiB" in message
    assert (nexus.state / "tasks.json").read_bytes() == before


def test_a_line_is_added_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write

    def full(descriptor: int, data: bytes) -> int:
        if len(data) > 3:
            return real(descriptor, data[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    with directory.Directory(str(tmp_path)) as opened, opened.locked():
        opened.append(directory.LOG, b"first\n")
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(Exception, match="No space left"):
            opened.append(directory.LOG, b"second\n")
        assert opened.read(directory.LOG) == b"first\n"


@pytest.mark.usefixtures("starts_processes")
def test_it_starts_without_fcntl_and_says_what_is_not_locked(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['fcntl'] = None\n"
        "from nexus.planning.directory import Directory\n"
        "from nexus.core.operations.errors import NexusError\n"
        f"with Directory({str(tmp_path)!r}) as one, one.locked():\n"
        f"  with Directory({str(tmp_path)!r}) as two:\n"
        "    try:\n"
        "      with two.locked(0): print('both')\n"
        "    except NexusError as error: print(error.code)\n"
        f"with Directory({str(tmp_path)!r}) as one, one.locked(): print('again')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False
    )
    assert done.stdout.split() == ["STATE_BUSY", "again"], done.stderr
    assert done.stderr.count("not locked between processes") == 1


def test_it_waits_for_programs_of_nexus_core(nexus: Project, waits: list[float]) -> None:
    """They create a file beside each file that they write."""
    nexus.task()
    lock = nexus.state / "tasks.json.lock"
    lock.touch()
    assert nexus.refused("task_add", title="x", context="y")[0] == "STATE_BUSY"
    assert len(waits) == 5
    assert len(nexus.call("task_list")["tasks"]) == 1  # who only reads does not wait
    left = lock.stat().st_mtime - directory.STALE_SECONDS
    os.utime(lock, (left, left))
    assert nexus.task("Second")["id"] == 2
    assert not list(nexus.root.rglob("*.json.lock"))


@pytest.mark.usefixtures("starts_processes")
def test_locks_that_a_killed_process_left_hold_up_nobody(nexus: Project) -> None:
    nexus.task()
    program = (
        "import os\n"
        "from nexus.planning.directory import HISTORY, TASKS, Directory\n"
        f"with Directory({str(nexus.root)!r}) as held, held.locked(files=[TASKS, HISTORY]): os._exit(9)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == 9 and len(list(nexus.root.rglob("*.json.lock"))) == 2
    assert nexus.task("Second")["id"] == 2
    assert not list(nexus.root.rglob("*.json.lock"))


def test_it_locks_files_on_a_disk_without_links(nexus: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with directory.Directory(str(nexus.root)) as held, held.locked(files=[directory.TASKS]):
        assert (nexus.state / "tasks.json.lock").read_bytes() == b""
    assert nexus.task()["id"] == 1
