"""What the tools do beside the model of their contract (test_contract_machine)."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.planning.conftest import Project

NOW = "2026-01-01T00:00:00.000Z"


def test_it_takes_an_empty_research_summary_and_refuses_a_missing_one(nexus: Project) -> None:
    given: dict[str, Any] = {"topic": "Parser", "issues": ["Which?"]}
    assert nexus.refused("plan_start", **given)[0] == "VALIDATION_ERROR"
    assert nexus.read("state/plan.json") is None
    assert nexus.call("plan_start", **given, research_summary="")["created"]


def test_it_warns_of_dependencies_that_are_never_met(nexus: Project) -> None:
    added = nexus.call("task_add", title="Write", context="c", deps=[2, 9])
    assert added["task"]["deps"] == [2, 9]
    assert "There is no task 2, 9" in added["warnings"][0]
    circle = nexus.call("task_add", title="Test", context="c", deps=[1])["warnings"]
    assert circle[0].startswith("2 → 1 → 2 is a circle")
    assert nexus.call("task_add", title="Self", context="c", deps=[3])["warnings"][0].startswith("3 → 3 is a circle")
    assert nexus.call("task_list")["summary"]["ready"] == []
    assert "warnings" not in nexus.call("task_add", title="Free", context="c")


def test_it_closes_a_cycle_with_its_trackers(nexus: Project) -> None:
    nexus.task()
    nexus.write("state/edit-tracker.json", {"src/a.py": 3})
    nexus.write("state/reopen-tracker.json", {})
    nexus.call("artifact_write", filename="report.md", content="Done.")
    closed = nexus.call("task_close")
    assert closed["cycle"] and closed["memoryHint"]["hadLoopDetection"]
    assert closed["deleted"] == ["tasks.json", "edit-tracker.json", "reopen-tracker.json"]
    assert sorted(path.name for path in nexus.state.iterdir()) == [".lock", "artifacts"]


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


def test_it_tells_the_decisions_of_another_program_in_the_context(nexus: Project) -> None:
    nexus.task(decisions=["This."])
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


GITS = ["a/.git/config", "a/.GIT/x", "git~1/x", ".git ", "HEAD", "x/head", "objects/x", "refs/x"]


@pytest.mark.parametrize("name", [*GITS, "commondir"])
def test_it_makes_no_repository_of_artifacts(nexus: Project, name: str) -> None:
    assert nexus.refused("artifact_write", filename=name, content="[core]")[0] == "PATH_OUTSIDE_WORKSPACE"
    assert not (nexus.state / "artifacts").exists()


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "..", ".", "a//b", " ", "x" * 300, "a\\..\\b"])
def test_it_refuses_an_artifact_that_leads_out(nexus: Project, name: str) -> None:
    assert nexus.refused("artifact_write", filename=name, content="x")[0] == "PATH_OUTSIDE_WORKSPACE"
    assert not (nexus.state / "artifacts").exists()
