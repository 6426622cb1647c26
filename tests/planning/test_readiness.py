"""Tasks that can begin once another changed: told at once, and found without a look at every task of the cycle."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from coordination.models import Event
from coordination.services.workspaces import locate
from coordination.shared_md import SECTIONS
from handoffs.dependencies import count_waiting
from nexus.planning import handoff_tasks, monitoring, schemas, selectors
from nexus.planning.models import Issue, Task
from tests.planning.conftest import Project


def ready() -> list[int]:
    """The tasks of which the log told that they can begin, in order."""
    events = Event.objects.filter(type="task.ready").order_by("event_id")
    return [payload["task_id"] for payload in events.values_list("payload", flat=True)]


def test_it_tells_of_the_tasks_that_waited_for_it_alone(nexus: Project) -> None:
    for number in range(1, 13):
        nexus.task(f"Task {number}")
    for deps in ([1], [11], [12, 1], [1, 11], [21, 1]):
        nexus.task("Later", deps=deps)
    began = len(ready())
    for number in (11, 12, 1):
        nexus.call("task_update", id=number, status="completed")
    assert ready()[began:] == [14, 13, 15, 16]
    nexus.call("task_update", id=13, status="in_progress")
    nexus.call("task_update", id=13, status="pending")
    assert ready()[began + 4 :] == [13]


def test_many_dependencies_are_held_against_what_is_completed(nexus: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selectors, "AT_ONCE", 2)
    for number in range(1, 5):
        nexus.task(f"Task {number}")
    nexus.task("Last", deps=[1, 2, 3, 4])
    for number in range(1, 5):
        assert ready() == [1, 2, 3, 4]
        nexus.call("task_update", id=number, status="completed")
    assert ready() == [1, 2, 3, 4, 5]


@pytest.mark.usefixtures("committed")
def test_no_transaction_reads_the_dependencies_of_all_tasks(nexus: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    real, inside = selectors.dependencies, []

    def watched(workspace_id: str) -> Any:
        inside.append(connection.in_atomic_block)
        return real(workspace_id)

    monkeypatch.setattr(selectors, "dependencies", watched)
    nexus.task("Write", deps=[1])
    nexus.task("Test", deps=[1])
    nexus.call("task_update", id=1, status="completed")
    assert not any(inside)


@given(
    st.dictionaries(st.integers(1, 8), st.lists(st.integers(1, 12), max_size=4), max_size=8),
    st.dictionaries(st.integers(9, 11), st.sampled_from("ab")),
)
def test_what_waits_is_counted_as_if_each_way_was_walked(pending: dict[int, list[int]], named: dict[int, str]) -> None:
    def before(task: int) -> set[int]:
        found, left = set[int](), [task]
        while left:
            new = set(pending.get(left.pop(), ())) - found
            found |= new
            left += new
        return found

    behind = {task: before(task) for task in pending}
    circular = {task for task in pending if task in behind[task]}
    can_begin = [needed for task, needed in behind.items() if not circular & {task, *needed}]
    counted = count_waiting(pending, named)
    for name in set(named.values()):
        those = {task for task, each in named.items() if each == name}
        assert counted[name] == sum(bool(those & needed) for needed in can_begin)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """The rows of tasks that are read whole."""
    found: list[Task] = []
    real = Task.from_db

    def watched(cls: type[Task], *row: Any, **how: Any) -> Task:
        found.append(real(*row, **how))
        return found[-1]

    monkeypatch.setattr(Task, "from_db", classmethod(watched))
    return found


def test_what_is_completed_is_neither_parsed_nor_read_for_a_summary(
    nexus: Project, monkeypatch: pytest.MonkeyPatch, read: list[Task]
) -> None:
    for title in ("Write", "Test", "Tell"):
        nexus.task(title, deps=[1] if title == "Test" else [])
    nexus.call("task_update", id=1, status="completed")
    monkeypatch.setattr(schemas.StateFile, "parse", None)
    read.clear()
    assert nexus.call("context")["tasksSummary"] == {"total": 3, "completed": 1, "pending": 2}
    workspace_id = locate(str(nexus.root)).workspace_id
    assert SECTIONS[2][1](workspace_id, 1) == ["- 2. Test (ready, nobody)", "- 3. Tell (ready, nobody)"]
    assert handoff_tasks.ready(workspace_id) == set(Task.objects.exclude(number=1).values_list("pk", flat=True))
    assert {task.status for task in read} == {"pending"}


def test_a_task_is_shown_with_those_that_it_is_linked_to_alone(nexus: Project, read: list[Task]) -> None:
    for number in range(1, 11):
        nexus.task(f"Task {number}")
    nexus.task("Here", deps=[3, 99])
    nexus.task("After", deps=[11], plan_issue=7)
    read.clear()
    found = monitoring.standing(Task.objects.get(number=11))
    linked = [[each.task.number for each in those] for those in (found.needs, found.needed_by)]
    assert linked == [[3], [12]]
    assert (found.work.unknown, found.work.stuck) == ([99], False)
    assert [each.task.number for each in monitoring.for_issue(Issue(plan_id=read[0].workspace_id, number=7))] == [12]
    assert {task.number for task in read} == {3, 11, 12}
