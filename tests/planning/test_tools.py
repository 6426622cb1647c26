"""The eleven tools, to the letter of their contract."""

from __future__ import annotations

from typing import Any

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext

from nexus.planning import schemas
from tests.planning.conftest import Project

NOW = "2026-01-01T00:00:00.000Z"


def test_it_starts_a_plan(nexus: Project) -> None:
    with time_machine.travel("2026-01-01T00:00:00Z", tick=False):
        started = nexus.plan("Which?", "How?")
    assert started == {"created": True, "plan_id": 1, "topic": "Parser", "issueCount": 2, "previousArchived": False}
    text = (nexus.state / "plan.json").read_bytes()
    assert schemas.PLAN.parse(text) == {
        "id": 1,
        "topic": "Parser",
        "issues": [
            {"id": 1, "title": "Which?", "status": "pending"},
            {"id": 2, "title": "How?", "status": "pending"},
        ],
        "research_summary": "Read it.",
        "created_at": NOW,
    }
    assert text.startswith(b'{\n  "id": 1,\n  "topic": "Parser"')
    assert (nexus.root / ".nexus" / ".gitignore").read_text() == "state/\n"


def test_it_archives_an_active_plan_alone_when_another_starts(nexus: Project) -> None:
    nexus.plan("Which?")
    nexus.task()
    assert nexus.plan("How?")["previousArchived"]
    (cycle,) = nexus.read("history.json")["cycles"]
    assert (cycle["plan"]["id"], cycle["tasks"], cycle["branch"]) == (1, [], "_default")
    assert nexus.read("state/plan.json")["id"] == 2
    assert len(nexus.read("state/tasks.json")["tasks"]) == 1


def test_it_counts_plans_from_the_highest_in_the_history(nexus: Project) -> None:
    plan = {"id": 7, "topic": "Old", "issues": [], "created_at": NOW}
    nexus.write("history.json", {"cycles": [{"completed_at": NOW, "branch": "main", "plan": plan, "tasks": []}]})
    assert nexus.plan("Which?")["plan_id"] == 8


def test_it_takes_an_empty_research_summary_and_refuses_a_missing_one(nexus: Project) -> None:
    given: dict[str, Any] = {"topic": "Parser", "issues": ["Which?"]}
    assert nexus.refused("plan_start", **given)[0] == "VALIDATION_ERROR"
    assert nexus.read("state/plan.json") is None
    assert nexus.call("plan_start", **given, research_summary="")["created"]


def test_it_tells_how_far_a_plan_is(nexus: Project) -> None:
    assert nexus.call("plan_status") == {"active": False}
    nexus.plan("Which?", "How?")
    nexus.call("plan_decide", issue_id=1, summary="This one.")
    status = nexus.call("plan_status")
    assert status["summary"] == {"total": 2, "pending": 1, "decided": 1}
    assert status["issues"][0] == {"id": 1, "title": "Which?", "status": "decided", "decision": "This one."}
    assert status["research_summary"] == "Read it."


def test_it_changes_the_issues_of_a_plan(nexus: Project) -> None:
    nexus.plan("Which?")
    added = nexus.call("plan_update", action="add", title="How?")
    assert added == {"added": True, "issue": {"id": 2, "title": "How?", "status": "pending"}}
    edited = nexus.call("plan_update", action="edit", issue_id=2, title="How fast?")
    assert edited == {"edited": True, "issue": {"id": 2, "title": "How fast?", "status": "pending"}}
    removed = nexus.call("plan_update", action="remove", issue_id=2)
    assert removed == {"removed": True, "issue": edited["issue"]}
    assert nexus.call("plan_update", action="add", title="Who?")["issue"]["id"] == 3


def test_it_drops_a_decision_with_all_that_led_to_it_when_it_is_reopened(nexus: Project) -> None:
    nexus.plan("Which?")
    how: dict[str, Any] = {
        "how_agents": ["architect"],
        "how_summary": {"architect": "This."},
        "how_agent_ids": {"architect": "a1"},
    }
    nexus.call("plan_decide", issue_id=1, summary="This one.", **how)
    assert nexus.read("state/plan.json")["issues"][0] == {
        "id": 1,
        "title": "Which?",
        "status": "decided",
        "decision": "This one.",
        **how,
    }
    reopened = nexus.call("plan_update", action="reopen", issue_id=1)
    assert reopened == {"reopened": True, "issue": {"id": 1, "title": "Which?", "status": "pending"}}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ({"action": "remove"}, "VALIDATION_ERROR", "issue_id is required for remove"),
        ({"action": "reopen"}, "VALIDATION_ERROR", "issue_id is required for reopen"),
        ({"action": "edit", "issue_id": 1}, "VALIDATION_ERROR", "issue_id and title are required for edit"),
        ({"action": "edit", "title": "x"}, "VALIDATION_ERROR", "issue_id and title are required for edit"),
        ({"action": "add"}, "VALIDATION_ERROR", "title is required for add"),
        ({"action": "dance"}, "VALIDATION_ERROR", "Unknown action"),
        ({"action": "remove", "issue_id": 9}, "NOT_FOUND", "Issue 9 not found"),
        ({"action": "reopen", "issue_id": 0}, "NOT_FOUND", "Issue 0 not found"),
        ({"action": "reopen", "issue_id": -1}, "NOT_FOUND", "Issue -1 not found"),
    ],
)
def test_it_says_what_is_wrong_with_an_update(
    nexus: Project, arguments: dict[str, Any], code: str, message: str
) -> None:
    nexus.plan("Which?")
    assert nexus.refused("plan_update", **arguments) == (code, message)


def test_it_needs_a_plan_to_update_or_decide(nexus: Project) -> None:
    assert nexus.refused("plan_update", action="add", title="x") == ("NOT_FOUND", "No active plan session")
    assert nexus.refused("plan_decide", issue_id=1, summary="x") == ("NOT_FOUND", "No active plan session")


def test_it_says_what_is_left_to_decide(nexus: Project) -> None:
    nexus.plan("Which?", "How?")
    first = nexus.call("plan_decide", issue_id=2, summary="So.")
    left = [{"id": 1, "title": "Which?", "status": "pending"}]
    assert first == {"decided": True, "issue": "How?", "allComplete": False, "remaining": left}
    last = nexus.call("plan_decide", issue_id=1, summary="This.")
    assert last.keys() == {"decided", "issue", "allComplete", "message"}
    assert nexus.call("plan_decide", issue_id=1, summary="That.")["allComplete"]
    assert nexus.read("state/plan.json")["issues"][0]["decision"] == "That."
    assert nexus.refused("plan_decide", issue_id=3, summary="x") == ("NOT_FOUND", "Issue 3 not found")


def test_it_adds_tasks(nexus: Project) -> None:
    assert nexus.call("task_list") == {"exists": False}
    with time_machine.travel("2026-01-01T00:00:00Z", tick=False):
        task = nexus.task("Write")
    assert task == {
        "id": 1,
        "title": "Write",
        "context": "Why.",
        "status": "pending",
        "deps": [],
        "created_at": NOW,
    }
    assert nexus.read("state/tasks.json") == {"goal": "", "decisions": [], "tasks": [task]}
    full = {"approach": "a", "acceptance": "b", "risk": "c", "plan_issue": 1, "owner": "engineer"}
    more = {**full, "owner_agent_id": "e1", "owner_reuse_policy": "resume"}
    assert nexus.task("Test", deps=[1], **more).items() >= {"id": 2, "deps": [1], **more}.items()


def test_it_replaces_the_goal_and_appends_decisions(nexus: Project) -> None:
    nexus.task(goal="One", decisions=["a"])
    nexus.task(goal="Two", decisions=["b", "c"])
    nexus.task()
    found = nexus.read("state/tasks.json")
    assert (found["goal"], found["decisions"]) == ("Two", ["a", "b", "c"])


def test_it_warns_of_dependencies_that_are_never_met(nexus: Project) -> None:
    added = nexus.call("task_add", title="Write", context="c", deps=[2, 9])
    assert added["task"]["deps"] == [2, 9]
    assert "There is no task 2, 9" in added["warnings"][0]
    circle = nexus.call("task_add", title="Test", context="c", deps=[1])["warnings"]
    assert circle[0].startswith("2 → 1 → 2 is a circle")
    assert nexus.call("task_add", title="Self", context="c", deps=[3])["warnings"][0].startswith("3 → 3 is a circle")
    assert nexus.call("task_list")["summary"]["ready"] == []
    assert "warnings" not in nexus.call("task_add", title="Free", context="c")


def test_it_lists_what_is_ready(nexus: Project) -> None:
    for deps in ([], [1], [1, 2], []):
        nexus.task(deps=deps)
    nexus.call("task_update", id=4, status="in_progress")
    summary = nexus.call("task_list")["summary"]
    assert summary == {"total": 4, "completed": 0, "pending": 3, "blocked": 1, "ready": [1]}
    nexus.call("task_update", id=1, status="completed")
    assert nexus.call("task_list")["summary"]["ready"] == [2]


def test_it_gives_a_task_any_status_after_any_other(nexus: Project) -> None:
    assert nexus.refused("task_update", id=1, status="pending") == ("NOT_FOUND", "tasks.json not found")
    nexus.task()
    for status in ("completed", "pending", "in_progress", "completed", "in_progress"):
        assert nexus.call("task_update", id=1, status=status)["task"]["status"] == status
        assert nexus.read("state/tasks.json")["tasks"][0]["status"] == status
    assert nexus.refused("task_update", id=2, status="pending") == ("NOT_FOUND", "Task id 2 not found")


def test_it_closes_a_cycle(nexus: Project) -> None:
    nexus.plan("Which?", "How?")
    nexus.call("plan_decide", issue_id=1, summary="This.")
    nexus.task(goal="Ship")
    nexus.write("state/edit-tracker.json", {"src/a.py": 3})
    nexus.write("state/reopen-tracker.json", {})
    nexus.call("artifact_write", filename="report.md", content="Done.")
    closed = nexus.call("task_close")
    assert closed.pop("cycle")
    assert closed == {
        "closed": True,
        "branch": "_default",
        "archived": {"plan": True, "decisions": 1, "tasks": 1},
        "deleted": ["plan.json", "tasks.json", "edit-tracker.json", "reopen-tracker.json"],
        "total_cycles": 1,
        "memoryHint": {
            "taskCount": 1,
            "decisionCount": 1,
            "hadLoopDetection": True,
            "cycleTopics": ["Parser", "Ship"],
        },
    }
    assert sorted(path.name for path in nexus.state.iterdir()) == [".lock", "artifacts"]
    (cycle,) = nexus.read("history.json")["cycles"]
    assert cycle.keys() == {"completed_at", "branch", "plan", "tasks"}
    again = nexus.call("task_close")
    assert (again["archived"], again["deleted"], again["total_cycles"]) == (
        {"plan": False, "decisions": 0, "tasks": 0},
        [],
        2,
    )
    assert nexus.read("history.json")["cycles"][1]["plan"] is None
    assert nexus.task()["id"] == 1


def test_it_searches_the_history(nexus: Project) -> None:
    assert nexus.call("history_search") == {"total": 0, "showing": 0, "cycles": []}
    for topic in ("Änderung", "Parser", "Lexer"):
        nexus.call("plan_start", topic=topic, issues=["Which?"], research_summary="")
        nexus.call("plan_decide", issue_id=1, summary=f"{topic} it is.")
        nexus.task(topic)
        nexus.call("task_close")
    found = nexus.call("history_search", last_n=2)
    assert (found["total"], found["showing"]) == (3, 2)
    assert [cycle["topic"] for cycle in found["cycles"]] == ["Parser", "Lexer"]
    (only,) = nexus.call("history_search", query="ÄNDERUNG IT")["cycles"]
    only.pop("completed_at")
    decisions = [{"title": "Which?", "decision": "Änderung it is."}]
    assert only == {"branch": "_default", "topic": "Änderung", "decisions": decisions, "task_count": 1}
    assert nexus.call("history_search", query="nowhere")["total"] == 0
    assert nexus.call("history_search", query="%")["total"] == 0


def test_it_reads_the_texts_of_the_history_once(nexus: Project) -> None:
    nexus.plan("Which?")
    nexus.task()
    nexus.call("task_close")
    with CaptureQueriesContext(connection) as asked:
        assert nexus.call("history_search", query="parser")["total"] == 1
    assert len([each for each in asked.captured_queries if "LIKE" in each["sql"].upper()]) == 1


def test_it_tells_the_context(nexus: Project) -> None:
    assert nexus.call("context") == {"branch": "_default", "activeMode": None, "decisions": []}
    nexus.task(goal="Ship", decisions=["This."])
    nexus.task()
    nexus.task()
    nexus.call("task_update", id=1, status="completed")
    nexus.call("task_update", id=2, status="in_progress")
    assert nexus.call("context") == {
        "branch": "_default",
        "activeMode": "team",
        "goal": "Ship",
        "tasksSummary": {"total": 3, "completed": 1, "pending": 1},
        "decisions": ["This."],
    }
    nexus.write("state/decisions.json", {"decisions": ["That."]})
    assert nexus.call("context")["decisions"] == ["That."]
    nexus.write("state/decisions.json", "nonsense")
    nexus.write("state/tasks.json", "{")
    assert nexus.call("context") == {"branch": "_default", "activeMode": None, "decisions": []}


def test_it_writes_artifacts(nexus: Project) -> None:
    for content in ("One.", "Two."):
        written = nexus.call("artifact_write", filename="notes/api.md", content=content)
    path = nexus.state / "artifacts" / "notes" / "api.md"
    assert written == {"success": True, "path": str(path)}
    assert path.read_text() == "Two."


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "..", ".", "a//b", " ", "x" * 300, "a\\..\\b"])
def test_it_refuses_an_artifact_that_leads_out(nexus: Project, name: str) -> None:
    assert nexus.refused("artifact_write", filename=name, content="x")[0] == "PATH_OUTSIDE_WORKSPACE"
    assert not (nexus.state / "artifacts").exists()


def test_it_knows_the_branch(nexus: Project) -> None:
    git = nexus.root / ".git"
    git.mkdir()
    (git / "HEAD").write_text("ref: refs/heads/feature/parser\n")
    assert nexus.call("context")["branch"] == "feature/parser"
    (git / "HEAD").write_text("0123456789abcdef0123456789abcdef01234567\n")
    assert nexus.call("context")["branch"] == "0123456789ab"
