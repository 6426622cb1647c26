"""Whose a task is, for what agents owe and for what wakes them: the instance's that it names, else its owner's."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from nexus.core.operations import dispatch
from nexus.dashboard.views.agents import works
from nexus.planning.attention import calling
from nexus.planning.models import Task, TaskStatus
from nexus.planning.selectors import task_debts
from nexus.planning.toolset import PLANNING
from tests.conftest import OPERATOR
from tests.planning.conftest import Project
from tests.store import plans


def _owed(agent: str) -> list[str]:
    return [debt.what for debt in task_debts([agent], datetime.now(UTC))]


def _wakes(agent: str) -> list[str]:
    return [waits.said["title"] for waits in calling(agent, [])]


def _tasks(nexus: Project) -> None:
    nexus.plan()
    nexus.task("Of a role", owner="coder")
    nexus.task("Of an instance", owner="coder", owner_agent_id="coder-7")


def test_a_task_wakes_the_instance_that_it_names(nexus: Project) -> None:
    _tasks(nexus)
    assert (_wakes("coder"), _wakes("coder-7"), _wakes("tester")) == (["Of a role"], ["Of an instance"], [])
    assert _owed("coder") == _owed("coder-7") == []  # nobody began them


def test_a_task_in_progress_is_owed_by_the_instance_that_it_names(nexus: Project) -> None:
    _tasks(nexus)
    Task.objects.update(status=TaskStatus.IN_PROGRESS)
    assert (_owed("coder"), _owed("coder-7"), _owed("tester")) == (["Of a role"], ["Of an instance"], [])
    assert _wakes("coder") == _wakes("coder-7") == []


def test_what_a_handoff_carries_is_the_handoffs(nexus: Project) -> None:
    _tasks(nexus)
    Task.objects.update(held_by="bob")
    assert _wakes("coder") == _wakes("coder-7") == []
    Task.objects.update(status=TaskStatus.IN_PROGRESS)
    assert _owed("coder") == _owed("coder-7") == []


def test_a_closed_cycle_asks_nobody_for_anything(nexus: Project) -> None:
    _tasks(nexus)
    Task.objects.update(status=TaskStatus.IN_PROGRESS, closed_at=datetime.now(UTC))
    assert _owed("coder") == _owed("coder-7") == []


@pytest.mark.sqlite  # whose plans say so; the index is the same
def test_nobody_goes_through_the_tasks_of_closed_cycles(nexus: Project) -> None:
    _tasks(nexus)
    moment = datetime.now(UTC)
    looked = plans(lambda: (_owed("coder"), list(task_debts(None, moment)), _wakes("coder"), works(moment)))
    assert sum("plan_tasks_by_status (status=?" in plan for plan in looked) == 4, looked
    assert not any("SCAN plan_tasks" in plan or "autoindex_plan_tasks" in plan for plan in looked), looked


def test_who_names_an_owner_that_is_nobody_learns_it(nexus: Project) -> None:
    nexus.plan()
    call = {"project_root": str(nexus.root), "title": "Write", "context": "Why."}
    assert "warnings" not in nexus.call("task_add", **call, owner="engineer")  # of the catalog
    [warning] = nexus.call("task_add", **call, owner="nobody", owner_agent_id="nobody-1")["warnings"]
    assert warning == "No agent has the id or the role nobody-1 or nobody: nobody gets a notice of this task."
    refused = dispatch.run(PLANNING, OPERATOR, "task_add", {**call, "owner_agent_id": "nobody-1"})
    assert (refused["error"]["code"], refused["error"]["details"]) == ("NOT_FOUND", {"agent": "nobody-1"})
