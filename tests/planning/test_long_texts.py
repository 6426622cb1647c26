"""Long texts of a plan's files: made outside of any transaction, so that no other writer waits for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import connection

from coordination.services import workspaces
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.planning import documents, handoff_tasks, schemas
from nexus.planning.models import Cycle, Task
from nexus.planning.services import cycles
from tests.planning.conftest import Project

LONG = 20_000  # characters

pytestmark = pytest.mark.usefixtures("committed")


def hand_over(nexus: Project, status: str) -> None:
    """Change a task as a handoff does, which holds no lock of the files."""
    place, task = workspaces.locate(str(nexus.root)), Task.objects.get()
    with write():
        if status == "in_progress":
            handoff_tasks.started(task.pk, place, "bob", now())
        else:
            handoff_tasks.returned(task.pk, place, "bob", None, now())


@pytest.fixture
def made_inside(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the texts that are made inside a transaction."""
    real, lengths = schemas.text_of, []

    def watched(document: Any) -> bytes:
        text = real(document)
        if connection.in_atomic_block:
            lengths.append(len(text))
        return text

    monkeypatch.setattr(schemas, "text_of", watched)
    return lengths


def test_no_long_text_is_made_inside_a_transaction(nexus: Project, made_inside: list[int]) -> None:
    nexus.plan("Which?")
    tasks = [{"id": 1, "title": "Write", "context": "x" * LONG, "status": "pending", "deps": []}]
    nexus.write("state/tasks.json", {"goal": "", "decisions": [], "tasks": tasks})
    nexus.call("task_list")
    nexus.call("task_update", id=1, status="completed")
    hand_over(nexus, "in_progress")
    assert nexus.read("state/tasks.json")["tasks"][0]["status"] == "in_progress"
    nexus.task("Test")
    nexus.call("task_close")
    assert len(nexus.read("history.json")["cycles"][0]["tasks"]) == 2
    assert max(made_inside, default=0) < LONG


def test_a_file_is_made_again_where_a_handoff_changes_a_task_meanwhile(
    nexus: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    nexus.task("Write")
    real, changes = schemas.text_of, [partial(hand_over, nexus, "in_progress")]

    def watched(document: Any) -> bytes:
        text = real(document)
        if "tasks" in document and changes:
            changes.pop()()
        return text

    monkeypatch.setattr(schemas, "text_of", watched)
    nexus.plan("Which?")
    assert nexus.read("state/tasks.json")["tasks"][0]["status"] == "in_progress"
    assert nexus.call("task_list")["tasks"][0]["held_by"] == "bob"


@pytest.fixture
def while_made(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Have something done each time that a cycle was made, before it is archived."""

    def having(done: Callable[[], None]) -> None:
        real = documents.cycle_row

        def watched(*given: Any) -> Cycle:
            cycle = real(*given)
            done()
            return cycle

        monkeypatch.setattr(documents, "cycle_row", watched)

    return having


def test_a_cycle_is_made_again_where_a_handoff_changes_a_task_meanwhile(nexus: Project, while_made: Any) -> None:
    nexus.task("Write")
    changes = [partial(hand_over, nexus, "in_progress")]
    while_made(lambda: changes.pop()() if changes else None)
    nexus.call("task_close")
    assert nexus.read("history.json")["cycles"][0]["tasks"][0]["status"] == "in_progress"


def test_a_cycle_is_made_again_where_another_program_changes_a_file_meanwhile(nexus: Project, while_made: Any) -> None:
    nexus.task("Write")
    document = nexus.read("state/tasks.json")
    document["tasks"][0]["title"] = "Rewrite"
    changes = [partial(nexus.write, "state/tasks.json", document)]
    while_made(lambda: changes.pop()() if changes else None)
    nexus.call("task_close")
    assert nexus.read("history.json")["cycles"][0]["tasks"][0]["title"] == "Rewrite"


def test_a_cycle_that_others_change_without_end_stays_open(nexus: Project, while_made: Any) -> None:
    nexus.task("Write")
    statuses = iter(["in_progress", "completed", "in_progress", "completed"])
    while_made(lambda: hand_over(nexus, next(statuses)))
    error = nexus.body("task_close")["error"]
    assert (error["code"], error["details"]) == ("STATE_BUSY", {"retryable": True})
    assert nexus.call("task_list")["summary"]["total"] == 1
    assert nexus.call("history_search")["total"] == 0


def test_a_history_does_not_get_more_cycles_than_are_read(nexus: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycles, "MOST_CYCLES", 1)
    nexus.plan("Which?")
    nexus.call("task_close")
    nexus.task("Write")
    code, message = nexus.refused("task_close")
    assert code == "CONTENT_TOO_LARGE" and "another name" in message
    assert nexus.call("task_list")["summary"]["total"] == 1
    (nexus.root / ".nexus/history.json").rename(nexus.root / ".nexus/history-2025.json")
    nexus.call("task_close")
    assert len(nexus.read("history.json")["cycles"]) == 1
