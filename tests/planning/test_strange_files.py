"""What a file or a call may hold that no store or reader takes: refused with a code, and left as it is."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from nexus.planning.directory import MAX_BYTES
from tests.planning.conftest import Project

AT = "2026-01-01T00:00:00.000Z"
TASK: dict[str, Any] = {"id": 1, "title": "Write", "context": "Why.", "status": "pending", "deps": []}
ISSUE = {"id": 1, "title": "Which?", "status": "decided", "how_summary": {"@": "@"}}
PLAN = {"id": 1, "topic": "@", "issues": [ISSUE], "created_at": AT}
FILES = {
    "state/plan.json": PLAN,
    "state/tasks.json": {"goal": "@", "decisions": ["@"], "tasks": [TASK]},
    "history.json": {"cycles": [{"completed_at": AT, "branch": "@", "plan": PLAN, "tasks": [TASK]}]},
}
EVERY_READ = ("plan_status", "task_list", "history_search")


@pytest.mark.parametrize("sign", ["\\ud800", "\\u0000"])
@pytest.mark.parametrize("name", FILES)
def test_it_refuses_texts_that_no_store_takes(name: str, sign: str, nexus: Project) -> None:
    text = json.dumps(FILES[name]).replace("@", sign)
    nexus.write(name, text)
    for tool in EVERY_READ:
        code, message = nexus.refused(tool)
        assert code == "STATE_FILE_INVALID" and name in message
    assert (nexus.root / ".nexus" / name).read_text() == text


def test_it_takes_escaped_texts_that_a_store_takes(nexus: Project) -> None:
    for name, document in FILES.items():
        nexus.write(name, json.dumps(document).replace("@", "\\ud83d\\ude00"))
    assert nexus.call("task_list")["goal"] == nexus.call("plan_status")["topic"] == "😀"


@pytest.mark.parametrize("number", [2**63, -(2**70), 2**53 + 1])
@pytest.mark.parametrize("field", ["plan_issue", "deps"])
def test_it_refuses_numbers_that_not_everybody_reads(field: str, number: int, nexus: Project) -> None:
    value = [number] if field == "deps" else number
    assert nexus.refused("task_add", title="Write", context="Why.", **{field: value})[0] == "VALIDATION_ERROR"
    assert nexus.refused("plan_decide", issue_id=number, summary="x")[0] == "VALIDATION_ERROR"
    assert nexus.refused("task_update", id=number, status="pending")[0] == "VALIDATION_ERROR"
    nexus.write("state/tasks.json", {"goal": "", "decisions": [], "tasks": [TASK | {field: value}]})
    assert nexus.refused("task_list")[0] == "STATE_FILE_INVALID"


@pytest.mark.parametrize("text", ['["\\ud800"]', '["\\u0000"]', '{"decisions": [NaN]}', "[1e999]"])
def test_it_passes_over_decisions_that_cannot_be_answered(text: str, nexus: Project) -> None:
    nexus.task(decisions=["Ours"])
    nexus.write("state/decisions.json", text)
    assert nexus.call("context")["decisions"] == ["Ours"]


def test_it_passes_over_tasks_that_cannot_be_answered(nexus: Project) -> None:
    nexus.write("state/tasks.json", json.dumps(FILES["state/tasks.json"]).replace("@", "\\ud800"))
    assert nexus.call("context")["activeMode"] is None


@pytest.mark.parametrize("large", [True, False])
def test_it_closes_a_cycle_whose_edit_tracker_cannot_be_read(nexus: Project, large: bool) -> None:
    nexus.task()
    tracker = nexus.state / "edit-tracker.json"
    if large:
        tracker.touch()
        os.truncate(tracker, MAX_BYTES + 1)
    else:
        tracker.symlink_to(nexus.root / "elsewhere")
    assert nexus.call("task_close")["deleted"] == ["tasks.json", "edit-tracker.json"]
    assert not os.path.lexists(tracker)


def test_it_names_a_branch_whatever_a_worktrees_file_says(nexus: Project) -> None:
    (nexus.root / ".git").write_text("gitdir: somewhere\x00else")
    assert nexus.call("context")["branch"] == "_default"


@pytest.mark.parametrize("where", [".git/HEAD", ".git"])
@pytest.mark.parametrize("secret", ["password: hunter2", "ref: refs/heads/a secret", "ref: refs/heads/secret"])
def test_it_shows_nothing_of_a_file_that_head_is_linked_to(where: str, secret: str, nexus: Project) -> None:
    (nexus.root.parent / "secret").write_text(secret)
    link = nexus.root / where
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(nexus.root.parent / "secret")
    assert nexus.call("context")["branch"] == "_default"


@pytest.mark.parametrize("head", ["password: hunter2", "ref: refs/heads/two words", "ref: hunter2", "hunter2" * 9])
def test_it_shows_nothing_but_a_ref_or_a_commit(head: str, nexus: Project) -> None:
    (nexus.root / ".git").mkdir()
    (nexus.root / ".git" / "HEAD").write_text(head)
    assert nexus.call("context")["branch"] == "_default"


@pytest.mark.parametrize(("head", "branch"), [("ref: refs/heads/fix/it-1\n", "fix/it-1"), ("a1" * 20, "a1" * 6)])
def test_it_names_the_branch_or_the_commit(head: str, branch: str, nexus: Project) -> None:
    (nexus.root / "there").mkdir()
    (nexus.root / "there" / "HEAD").write_text(head)
    (nexus.root / ".git").write_text("gitdir: there\n")
    assert nexus.call("context")["branch"] == branch


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize(
    ("answers", "branch"),
    [({"symbolic-ref": "refs/heads/fix/it-2"}, "fix/it-2"), ({"rev-parse": "a1" * 32}, "a1" * 6), ({}, "_default")],
)
def test_it_asks_git_for_a_branch_that_no_file_holds(
    answers: dict[str, str], branch: str, nexus: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for a git that knows reftables: Debian's does not yet."""
    (nexus.root / ".git").mkdir()
    (nexus.root / ".git" / "HEAD").write_text("ref: refs/heads/.invalid\n")
    said = "".join(f"[ $1 != {question} ] || exec echo {answer}\n" for question, answer in answers.items())
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").write_text(f"#!/bin/sh\n{said}exit 128\n")
    (tmp_path / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    assert nexus.call("context")["branch"] == branch
