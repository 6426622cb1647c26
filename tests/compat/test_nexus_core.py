"""`nexus runmcp --as nexus-core`: its tools over our operations and its files."""

from __future__ import annotations

import asyncio
import json
import math
import sys
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest

from nexus.compat.nexus_core.arguments import number_of
from nexus.compat.nexus_core.server import PROJECT_ROOT, call_result
from nexus.core.operations.caller import Caller
from tests.acceptance.processes import ROOT, environment
from tests.compat.programs import Program, timeless

OWNER = {"role": "engineer", "resume_tier": "bounded"}
TASK = {"title": "Write", "context": "Why.", "acceptance": "It runs.", "owner": OWNER}


class Project:
    """A project, and calls about it as the server answers them."""

    def __init__(self, root: Path) -> None:
        self.files = root / ".nexus"

    def __call__(self, name: str, **arguments: Any) -> Any:
        return self.call(f"nx_{name}", arguments)

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """What a tool answers: an object, or the text of an error."""
        answered = asyncio.run(call_result(Caller("test", connection="test:compat"), name, arguments))
        (content,) = answered["content"]
        return content["text"] if answered.get("isError") else json.loads(content["text"])

    def read(self, name: str) -> Any:
        path = self.files / name
        return json.loads(path.read_text()) if path.exists() else None

    def write(self, name: str, text: str) -> None:
        path = self.files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def nx(committed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    root = tmp_path / "project"
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    monkeypatch.setenv(PROJECT_ROOT, str(root))
    return Project(root)


def test_a_day(nx: Project) -> None:
    assert nx("plan_status") == {"exists": False}
    started = nx("plan_start", topic="Cache", issues=["Which?", "Who?"], research_summary="Read it.")
    assert started == {
        "created": True,
        "plan_id": 1,
        "topic": "Cache",
        "issueCount": 2,
        "previousArchived": False,
    }
    added = nx("plan_analysis_add", issue_id=1, role="architect", agent_id="a1", summary="Both work.")
    assert timeless(added)["total_entries"] == 1
    found = {"role": "architect", "resumable": True, "agent_id": "a1", "issue_id": 1}
    assert nx("plan_resume", role="architect") == found
    assert nx("plan_decide", issue_id="1", decision="This.")["remaining"] == [
        {"id": 2, "title": "Who?", "status": "pending"}
    ]
    assert nx("plan_decide", issue_id=1, decision="That.").startswith("이미 결정된 issue입니다.")
    assert nx("plan_decide", issue_id=2, decision="All.")["message"].startswith("모든 안건이")
    task = nx("task_add", **TASK, decisions=["This."])["task"]
    assert nx("task_add", **TASK, deps=[1, 7]) == "deps[1] does not exist: task id 7 not found"
    assert nx.read("state/tasks.json") == {"decisions": ["This."], "tasks": [task]}
    assert list(task) == ["id", "title", "status", "context", "acceptance", "owner", "created_at"]
    assert nx("task_close") == "Cannot close: tasks [1] are incomplete. Pass force:true to override."
    result = {"outcome": "success", "summary": "Done.", "artifacts": ["a.md"]}
    updated = nx("task_update", id=1, status="completed", result=result, owner={"agent_id": "e1", "resume_tier": None})
    assert timeless(updated["task"]["result"]) == {**result, "recorded_at": "<time>"}
    assert nx("task_resume", id=1) == {"task_id": 1, "resumable": False, "agent_id": "e1", "resume_tier": None}
    assert nx("task_close") == {"closed": True, "plan_id": 1, "task_count": 1, "incomplete_count": 0}
    (cycle,) = nx.read("history.json")["cycles"]
    assert list(cycle) == ["schema_version", "completed_at", "branch", "plan", "tasks"]
    assert [hit["path"] for hit in nx("history_search", query="DONE")["hits"]] == ["tasks[1].result.summary"]
    assert nx("history_search")["cycles"][0]["plan_topic"] == "Cache"


def test_the_latest_analysis_of_a_role_counts(nx: Project) -> None:
    entries = [{"role": "architect", "summary": "x", "recorded_at": f"2026-01-0{day}T00:00:00.000Z"} for day in (2, 1)]
    analysed = [[entries[0]], [entries[1]], ["x", {"role": "architect"}]]
    issues = [
        {"id": number, "title": "t", "status": "pending", "analysis": found} for number, found in enumerate(analysed, 1)
    ]
    nx.write("state/plan.json", json.dumps({"id": 1, "topic": "t", "issues": issues, "created_at": "now"}))
    assert nx("plan_resume", role="architect")["issue_id"] == 1
    assert nx("plan_resume", role="tester")["resumable"] is False


def test_it_replies_to_mistakes_in_its_words(nx: Project) -> None:
    refused = "MCP error -32602: Input validation error: Invalid arguments for tool nx_plan_decide: "
    assert nx("plan_decide", issue_id=-1.5) == refused + (
        "Expected integer, received float at issue_id\nNumber must be greater than 0 at issue_id\nRequired at decision"
    )
    assert nx("plan_decide", issue_id=3, decision="x") == "No active plan"
    assert nx("plan_analysis_add", issue_id=1, role="architect", summary="x") == "No active plan"
    assert nx.call("nope", {}) == "MCP error -32602: Tool nope not found"
    assert nx("plan_start", topic="x", issues=[], research_summary=" ").startswith("research_summary is required")
    nx("plan_start", topic="x", issues=["y"], research_summary="z")
    assert nx("plan_update", action="modify", issue_id=1) == "issue_id and title are required for modify"
    assert nx("plan_update", action="remove", issue_id=1.5) == "Issue 1.5 not found"
    assert nx("plan_analysis_add", issue_id=2, role="architect", summary="x") == "Issue 2 not found"
    assert nx("task_update", id=4, status="pending") == "Task 4 not found"
    assert nx("artifact_write", filename="../..", content="") == "Invalid filename: empty after sanitize"


@pytest.mark.parametrize(
    ("text", "number"),
    [("0x1F", 31), (" 0b11 ", 3), ("0o17", 15), ("0x" + "f" * 400, math.inf), ("1e400", math.inf), ("1_0", None),
     ("0x-1", None), ("0x 1", None), ("0x0x1", None), ("0x", None), ("0b2", None), ("\uff11", None)],
)  # fmt: skip
def test_it_reads_a_text_as_the_number_that_javascript_does(text: str, number: float | None) -> None:
    found = number_of(text)
    assert math.isnan(found) if number is None else found == number


def test_it_keeps_artifacts_inside(nx: Project) -> None:
    assert nx("artifact_write", filename="../a/../b.md", content="x")["path"] == ".nexus/state/artifacts/a/b.md"
    assert nx("artifact_write", filename="c.md", content="yy")["success"]
    (nx.files / "state" / "artifacts" / "link").symlink_to("/etc/passwd")
    assert [(each["filename"], each["size"]) for each in nx("artifact_list")["artifacts"]] == [
        ("a/b.md", 1),
        ("c.md", 2),
    ]
    assert [each["filename"] for each in nx("artifact_list", prefix="c")["artifacts"]] == ["c.md"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"tasks": [{"id": 1,', "it is no JSON"),
        ('{"tasks": {"1": {}}}', "tasks: Input should be a valid list"),
        ("x" * (33 << 20), "it is larger than 32 MiB"),
    ],
    ids=["truncated", "newer", "huge"],
)
def test_a_file_that_it_cannot_read_stays_as_it_is(nx: Project, text: str, said: str) -> None:
    nx.write("state/tasks.json", text)
    for told in (nx("task_list"), nx("task_add", **TASK), nx("task_close", force=True)):
        assert said in told
        assert "tasks.json" in told
    assert (nx.files / "state" / "tasks.json").read_text() == text


@pytest.mark.parametrize("newer", [{"schema_version": "2.0"}, {"cycles": [{"schema_version": "2.0"}]}])
def test_a_history_of_a_newer_version_stays_as_it_is(nx: Project, newer: dict[str, Any]) -> None:
    cycles = [{"completed_at": "later", "branch": "main", "plan": None, **each} for each in newer.pop("cycles", [{}])]
    text = json.dumps({**newer, "cycles": cycles})
    nx.write("history.json", text)
    for told in (nx("history_search"), nx("task_add", **TASK)):
        assert "'2.0' is newer than this Nexus knows (1.0); update Nexus" in told
    assert (nx.files / "history.json").read_text() == text


def test_a_link_in_the_place_of_its_directory_is_named(nx: Project) -> None:
    (nx.files.parent / "elsewhere").mkdir()
    nx.files.symlink_to("elsewhere")
    assert nx("task_add", **TASK).startswith(".nexus/state of this project cannot be used: it is a link")


WITHOUT_PRIVILEGE = """import ctypes, os, sys
ctypes.CDLL(None).prctl(24, 1)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"""


@pytest.mark.usefixtures("starts_processes")
def test_a_process_introduces_itself_as_that_program_and_reads_a_project_that_it_may_not_write(tmp_path: Path) -> None:
    root = tmp_path / "project"
    state = root / ".nexus" / "state"
    state.mkdir(parents=True)
    plan = {
        "id": 1,
        "topic": "Cache",
        "issues": [{"id": 1, "title": "Which?", "status": "pending"}],
        "created_at": "2026-01-01T00:00:00.000Z",
    }
    environ = environment(tmp_path / "home", NEXUS_STANDALONE="1", NEXUS_PROJECT_ROOT=str(root))
    # Root may write everywhere, unless a process gives that up for what it executes (CAP_DAC_OVERRIDE).
    command = [sys.executable, "-c", WITHOUT_PRIVILEGE, "manage.py", "runmcp", "--as", "nexus-core"]
    server = Program(Popen(command, cwd=ROOT, env=environ, stdin=PIPE, stdout=PIPE, text=True))
    try:
        assert server.hello == {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "nexus-core", "version": "0.21.0"},
        }
        tools = server.request("tools/list")["tools"]
        assert [tool["name"] for tool in tools][:2] == ["nx_plan_start", "nx_plan_status"] and len(tools) == 14
        for topic in ("Cache", "Later"):
            (state / "plan.json").write_text(json.dumps({**plan, "topic": topic}))
            for folder in (state, state.parent, root):
                folder.chmod(0o500)
            for _ in range(2):
                status = server.call("nx_plan_status")
                assert status["topic"] == topic, status
        assert server.call("nx_history_search") == {"total": 0, "showing": 0, "cycles": []}
        assert server.call("nx_plan_update", {"action": "add", "title": "Who?"}).startswith(".nexus/")
        assert server.call("nx_plan_status")["summary"]["total"] == 1
        assert sorted(path.name for path in (root / ".nexus").rglob("*")) == ["plan.json", "state"]
    finally:
        server.end()
        for folder in (root, state.parent, state):
            folder.chmod(0o700)
