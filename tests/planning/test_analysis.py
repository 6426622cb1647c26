"""What roles found about an issue, the role that goes on, and the artifacts of a cycle."""

from __future__ import annotations

from tests.planning.conftest import Project


def test_an_analysis_stays_with_its_issue(nexus: Project) -> None:
    nexus.plan("Which?", "Who?")
    assert nexus.call("plan_resume", role="architect") == {"resumable": False}
    first = nexus.call("plan_analysis_add", issue_id=1, role="architect", summary="Both.", agent_id="a1")
    assert (first["added"], first["total"]) == (True, 1)
    nexus.call("plan_analysis_add", issue_id=1, role="tester", summary="Neither.")
    entries = nexus.read("state/plan.json")["issues"][0]["analysis"]
    assert [(each["role"], each["summary"], each.get("agent_id")) for each in entries] == [
        ("architect", "Both.", "a1"),
        ("tester", "Neither.", None),
    ]
    assert nexus.call("plan_resume", role="architect") == {"resumable": True, "issue_id": 1, "agent_id": "a1"}
    assert nexus.call("plan_resume", role="tester") == {"resumable": True, "issue_id": 1}
    nexus.call("plan_decide", issue_id=1, summary="This.")
    nexus.call("plan_update", action="reopen", issue_id=1)
    assert nexus.read("state/plan.json")["issues"][0]["analysis"] == entries


def test_an_analysis_needs_an_issue(nexus: Project) -> None:
    analysis = {"role": "architect", "summary": "Both."}
    assert nexus.refused("plan_analysis_add", issue_id=1, **analysis) == ("NOT_FOUND", "No active plan session")
    nexus.plan("Which?")
    assert nexus.refused("plan_analysis_add", issue_id=2, **analysis) == ("NOT_FOUND", "Issue 2 not found")


def test_the_latest_analysis_of_a_role_counts(nexus: Project) -> None:
    entries = [{"role": "architect", "summary": "x", "recorded_at": f"2026-01-0{day}T00:00:00.000Z"} for day in (2, 1)]
    issues = [
        {"id": number, "title": "t", "status": "pending", "analysis": [entry]}
        for number, entry in enumerate(entries, start=1)
    ]
    broken = {"id": 3, "title": "t", "status": "pending", "analysis": ["x", {"role": "architect"}]}
    nexus.write("state/plan.json", {"id": 1, "topic": "t", "issues": [*issues, broken], "created_at": "now"})
    assert nexus.call("plan_resume", role="architect") == {"resumable": True, "issue_id": 1}


def test_it_lists_the_artifacts_of_the_cycle(nexus: Project) -> None:
    assert nexus.call("cycle_artifacts") == {"total": 0, "artifacts": []}
    nexus.call("artifact_write", filename="notes/api.md", content="abc")
    nexus.call("artifact_write", filename="a.md", content="")
    (nexus.state / "artifacts" / "link").symlink_to("/etc/passwd")
    found = nexus.call("cycle_artifacts")["artifacts"]
    assert [(each["filename"], each["size"]) for each in found] == [("a.md", 0), ("notes/api.md", 3)]
    assert nexus.call("cycle_artifacts", prefix="notes/")["total"] == 1
