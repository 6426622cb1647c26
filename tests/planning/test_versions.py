"""Files that later versions of nexus-core wrote: read, kept in their version, and written back whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nexus.planning.models import Plan, Task
from tests.planning.conftest import Project

WHEN = "2026-01-01T00:00:00.000Z"
ANALYSIS = {"role": "architect", "summary": "Both work.", "recorded_at": WHEN, "agent_id": "a1"}
PLAN: dict[str, Any] = {
    "id": 3,
    "topic": "Cache",
    "issues": [
        {"id": 1, "title": "Which?", "status": "pending", "analysis": [ANALYSIS]},
        {"id": 2, "title": "Who?", "status": "decided", "decision": "All.", "mood": {"good": [1, None]}},
    ],
    "research_summary": "Read it.",
    "created_at": WHEN,
    "mood": "good",
}
OWNER = {"role": "engineer", "agent_id": "e7", "resume_tier": "bounded"}
RESULT = {"outcome": "partial", "summary": "Half.", "recorded_at": WHEN}
TASKS: dict[str, Any] = {
    "tasks": [
        {
            "id": 1,
            "title": "Write",
            "status": "in_progress",
            "context": "Why.",
            "acceptance": "It runs.",
            "owner": OWNER,
            "result": RESULT,
            "created_at": WHEN,
        },
        {
            "id": 2,
            "title": "Test",
            "status": "pending",
            "context": "Why.",
            "acceptance": "",
            "deps": [1],
            "owner": {"role": "tester"},
            "created_at": WHEN,
        },
    ],
}
HISTORY = {
    "schema_version": "1.0",
    "cycles": [
        {"schema_version": "1.0", "completed_at": WHEN, "branch": "", "tasks": TASKS["tasks"]},
        {"completed_at": WHEN, "branch": "main", "plan": PLAN, "tasks": []},
    ],
}


def test_it_writes_a_later_plan_back_with_what_it_does_not_know(nexus: Project) -> None:
    nexus.write("state/plan.json", PLAN)
    status = nexus.call("plan_status")
    assert (status["plan_id"], status["summary"]["pending"]) == (3, 1)
    assert status["issues"][0]["extra"] == {"analysis": [ANALYSIS]}
    nexus.call("plan_decide", issue_id=1, summary="This.")
    first, second = PLAN["issues"]
    assert nexus.read("state/plan.json") == {
        **PLAN,
        "issues": [{**first, "status": "decided", "decision": "This."}, second],
    }
    nexus.call("plan_update", action="reopen", issue_id=1)
    assert nexus.read("state/plan.json") == PLAN


def test_it_keeps_later_tasks_in_their_version(nexus: Project) -> None:
    nexus.write("state/tasks.json", TASKS)
    listed = nexus.call("task_list")
    assert (listed["goal"], listed["summary"]["ready"]) == ("", [])
    assert [(task["owner"], task["deps"]) for task in listed["tasks"]] == [("engineer", []), ("tester", [1])]
    assert listed["tasks"][0]["owner_agent_id"] == "e7"
    nexus.call("task_update", id=1, status="completed")
    one, two = TASKS["tasks"]
    assert nexus.read("state/tasks.json") == {"tasks": [{**one, "status": "completed"}, two]}
    added = nexus.task("More", owner="writer", owner_agent_id="w1")
    assert nexus.read("state/tasks.json")["tasks"][2] == {
        "id": 3,
        "title": "More",
        "context": "Why.",
        "status": "pending",
        "owner": {"role": "writer", "agent_id": "w1"},
        "acceptance": "",
        "created_at": added["created_at"],
    }
    nexus.task("Anybody's")
    assert nexus.read("state/tasks.json")["tasks"][3]["owner"] == {"role": ""}
    assert "owner" not in nexus.call("task_list")["tasks"][3]


def test_it_takes_in_what_a_later_version_changes_again(nexus: Project) -> None:
    nexus.write("state/tasks.json", TASKS)
    nexus.call("task_list")
    one, two = TASKS["tasks"]
    changed = {
        "goal": "Ship",
        "tasks": [{**one, "owner": {"role": "engineer"}, "result": {**RESULT, "outcome": "success"}}, two],
    }
    nexus.write("state/tasks.json", changed)
    task = nexus.call("task_list")["tasks"][0]
    assert "owner_agent_id" not in task
    nexus.task("More")
    assert nexus.read("state/tasks.json")["goal"] == "Ship"
    assert nexus.read("state/tasks.json")["tasks"][:2] == changed["tasks"]


def test_it_adds_a_cycle_of_the_version_that_the_history_has(nexus: Project) -> None:
    nexus.write("history.json", HISTORY)
    found = nexus.call("history_search")
    assert [(cycle["branch"], cycle["task_count"]) for cycle in found["cycles"]] == [("", 2), ("main", 0)]
    assert nexus.call("history_search", query="good")["total"] == 1
    assert nexus.plan("Next?")["plan_id"] == 4
    nexus.call("task_close")
    nexus.write("state/tasks.json", TASKS)
    nexus.call("task_close")
    written = nexus.read("history.json")
    assert {**written, "cycles": written["cycles"][:2]} == HISTORY
    assert "schema_version" not in written["cycles"][2]
    assert written["cycles"][3]["schema_version"] == "1.0"
    assert "plan" not in written["cycles"][3]
    assert written["cycles"][3]["tasks"] == TASKS["tasks"]
    nexus.call("task_close")  # an empty one
    assert nexus.read("history.json")["cycles"][4]["schema_version"] == "1.0"


def test_a_project_of_0_2_stays_one(nexus: Project) -> None:
    nexus.plan("Which?")
    nexus.task("Write", owner="engineer")
    assert nexus.read("state/tasks.json")["tasks"][0]["owner"] == "engineer"
    nexus.call("task_close")
    assert list(nexus.read("history.json")) == ["cycles"]
    assert list(nexus.read("history.json")["cycles"][0]) == ["completed_at", "branch", "plan", "tasks"]


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("state/tasks.json", {"tasks": [{**TASKS["tasks"][0], "owner": {"role": 7}}]}),
        ("state/tasks.json", {"tasks": [{**TASKS["tasks"][0], "owner": ["engineer"]}]}),
        ("state/plan.json", {**PLAN, "mood": "a\0b"}),
        ("state/plan.json", {**PLAN, "mood": float("nan")}),
        ("history.json", {"cycles": [{"completed_at": WHEN, "branch": "main", "plan": {**PLAN, "topic": None}}]}),
        ("state/plan.json", json.dumps(PLAN).replace('"good"', "[" * 300 + "]" * 300)),
    ],
)
def test_it_refuses_what_it_could_not_write_back(nexus: Project, name: str, document: Any) -> None:
    nexus.write(name, document)
    before = (nexus.root / ".nexus" / name).read_bytes()
    assert nexus.refused("task_list")[0] == "STATE_FILE_INVALID"
    assert (nexus.root / ".nexus" / name).read_bytes() == before
    assert not Plan.objects.exists()
    assert not Task.objects.exists()
