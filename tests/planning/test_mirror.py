"""The files and the rows: what others write is imported, what crashed heals, nothing outside `.nexus` is touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from coordination.models import Event
from nexus.core.database.store import write
from nexus.core.operations.errors import Code, NexusError
from nexus.planning import directory, mirror
from nexus.planning.models import Cycle, Plan, Task
from nexus.planning.services import tasks
from tests.conftest import at_once
from tests.planning.conftest import Project

WHEN = "2026-01-01T00:00:00.000Z"


def types() -> list[str]:
    """The events of planning so far."""
    return list(Event.objects.filter(stream="planning").order_by("event_id").values_list("type", flat=True))


def test_it_takes_in_a_task_that_another_consumer_added(nexus: Project) -> None:
    nexus.task("Write", deps=[2])
    document = nexus.read("state/tasks.json")
    added = {"id": 2, "title": "Test", "context": "By hand.", "status": "completed", "deps": []}
    nexus.write("state/tasks.json", {**document, "goal": "Ship", "tasks": [*document["tasks"], added]})
    listed = nexus.call("task_list")
    assert (listed["goal"], listed["summary"]["ready"], listed["tasks"][1]) == ("Ship", [1], added)
    assert nexus.task("More")["id"] == 3
    assert [task["id"] for task in nexus.read("state/tasks.json")["tasks"]] == [1, 2, 3]
    assert types().count("task.added") == 3


def test_it_takes_in_what_another_consumer_changed_and_removed(nexus: Project) -> None:
    for title in ("One", "Two", "Three"):
        nexus.task(title)
    document = nexus.read("state/tasks.json")
    one, _, three = document["tasks"]
    nexus.write("state/tasks.json", {**document, "tasks": [three, {**one, "status": "completed", "owner": "ana"}]})
    changed = nexus.call("task_update", id=3, status="in_progress")
    assert changed["task"]["status"] == "in_progress"
    tasks = nexus.read("state/tasks.json")["tasks"]
    assert [(task["id"], task["status"]) for task in tasks] == [(3, "in_progress"), (1, "completed")]
    assert tasks[1]["owner"] == "ana"
    assert {"task.completed", "task.removed", "task.updated"} <= set(types())


def test_it_takes_in_a_plan_and_its_removal(nexus: Project) -> None:
    issues = [{"id": 4, "title": "Which?", "status": "decided", "decision": "This."}]
    nexus.write("state/plan.json", {"id": 9, "topic": "Old", "issues": issues, "created_at": WHEN})
    assert nexus.call("plan_status")["plan_id"] == 9
    assert nexus.call("plan_update", action="add", title="How?")["issue"]["id"] == 5
    (nexus.state / "plan.json").unlink()
    assert nexus.call("plan_status") == {"active": False}
    assert not Plan.objects.exists()


def test_it_takes_the_removal_right_after_its_own_write(nexus: Project) -> None:
    nexus.plan("Which?")
    (nexus.state / "plan.json").unlink()
    assert nexus.call("plan_status") == {"active": False}
    assert nexus.read("state/plan.json") is None


def test_it_removes_no_history_that_is_empty(nexus: Project) -> None:
    nexus.write("history.json", {"cycles": []})
    nexus.plan("Which?")
    assert nexus.call("history_search")["total"] == 0
    assert nexus.read("history.json") == {"cycles": []}
    nexus.call("task_close")
    assert len(nexus.read("history.json")["cycles"]) == 1


def test_it_knows_what_another_machine_wrote_into_the_same_directory(
    nexus: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    nexus.plan("Which?")
    nexus.task()
    nexus.call("task_close")
    nexus.task("Next")
    told = len(types())
    monkeypatch.setattr(directory, "machine", lambda: "another")
    assert nexus.call("task_list")["tasks"][0]["title"] == "Next"
    assert nexus.call("history_search")["total"] == 1
    assert len(types()) == told


def test_it_follows_the_history_of_the_branch(nexus: Project) -> None:
    for topic in ("One", "Two"):
        nexus.call("plan_start", topic=topic, issues=[], research_summary="")
        nexus.call("task_close")
    both = (nexus.root / ".nexus" / "history.json").read_text()
    nexus.write("history.json", {"cycles": json.loads(both)["cycles"][:1]})  # another branch
    assert nexus.call("history_search")["total"] == 1
    assert nexus.plan("x")["plan_id"] == 2
    nexus.call("task_close")
    nexus.write("history.json", both)  # and back
    assert [cycle["topic"] for cycle in nexus.call("history_search")["cycles"]] == ["One", "Two"]
    assert Cycle.objects.count() == 3  # nothing is lost


@pytest.mark.parametrize(
    ("name", "document", "fault"),
    [
        ("state/plan.json", "{", "no JSON"),
        ("state/plan.json", "[" * 100_000, "no JSON"),
        ("state/plan.json", b'{"topic": "\xed\xa0\x80"}', "no JSON"),
        ("state/plan.json", "[]", "valid dictionary"),
        ("state/plan.json", {"id": 1, "topic": None, "issues": [], "created_at": WHEN}, "topic"),
        ("state/plan.json", {"id": 0, "topic": "x", "issues": [], "created_at": WHEN}, "id"),
        ("state/tasks.json", {"goal": "", "decisions": []}, "tasks"),
        (
            "state/tasks.json",
            {
                "goal": "",
                "decisions": [],
                "tasks": [{"id": 1, "title": "x", "context": "y", "status": "done", "deps": []}],
            },
            "tasks[0].status",
        ),
        (
            "state/tasks.json",
            {
                "goal": "",
                "decisions": [],
                "tasks": 2 * [{"id": 1, "title": "x", "context": "y", "status": "pending", "deps": []}],
            },
            "twice",
        ),
        ("state/tasks.json", {"goal": 10**30, "decisions": [], "tasks": []}, "goal"),
    ],
)
def test_it_leaves_a_file_that_breaks_its_schema_as_it_is(nexus: Project, name: str, document: Any, fault: str) -> None:
    nexus.plan("Which?")
    nexus.task()
    nexus.write(name, document)
    before = (nexus.root / ".nexus" / name).read_bytes()
    for tool in ("plan_status", "task_list", "task_close", "history_search"):
        code, message = nexus.refused(tool)
        assert code == "STATE_FILE_INVALID"
        assert f".nexus/{name}" in message
        assert fault in message
    assert (nexus.root / ".nexus" / name).read_bytes() == before
    assert (Plan.objects.count(), Task.objects.count()) == (1, 1)
    (nexus.root / ".nexus" / name).unlink()  # as the message says, which loses nothing
    assert nexus.call("plan_status")["issues"][0]["title"] == "Which?"
    assert nexus.call("task_list")["tasks"][0]["title"] == "Write"
    assert len(nexus.read("state/plan.json")["issues"]) == len(nexus.read("state/tasks.json")["tasks"]) == 1
    (nexus.state / "tasks.json").unlink()  # and another time it is meant
    assert nexus.call("task_list") == {"exists": False}


def test_a_history_that_broke_and_went_comes_back(nexus: Project) -> None:
    nexus.plan("Which?")
    nexus.call("task_close")
    nexus.write("history.json", "{")
    nexus.refused("history_search")
    (nexus.root / ".nexus" / "history.json").unlink()
    assert nexus.call("history_search")["total"] == 1
    assert len(nexus.read("history.json")["cycles"]) == 1


def test_a_file_that_was_broken_is_taken_in_once_it_is_right(nexus: Project) -> None:
    nexus.task()
    document = nexus.read("state/tasks.json")
    nexus.write("state/tasks.json", "{")
    nexus.refused("task_list")
    document["tasks"][0]["title"] = "Corrected"
    nexus.write("state/tasks.json", document)
    assert nexus.call("task_list")["tasks"][0]["title"] == "Corrected"


def test_it_heals_what_a_crash_between_commit_and_files_left(nexus: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    nexus.plan("Which?")
    nexus.task("One")
    before = {name: (nexus.state / name).read_bytes() for name in ("plan.json", "tasks.json")}

    class Killed(BaseException):
        pass

    def die(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(mirror, "_bring", die)
        nexus.call("task_add", title="Two", context="c")
    assert {name: (nexus.state / name).read_bytes() for name in before} == before
    assert len(nexus.call("task_list")["tasks"]) == 2
    assert len(nexus.read("state/tasks.json")["tasks"]) == 2
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(mirror, "_bring", die)
        nexus.call("task_close")
    assert nexus.call("plan_status") == {"active": False}
    assert (nexus.read("state/plan.json"), nexus.read("state/tasks.json")) == (None, None)
    assert len(nexus.read("history.json")["cycles"]) == 1


def test_it_keeps_what_was_committed_when_the_commits_end_is_not_known(
    nexus: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    nexus.task("One")

    @contextmanager
    def in_doubt(*names: str) -> Iterator[None]:
        with write(*names):
            yield
        raise NexusError(Code.DB_ERROR, "The connection was lost while it committed.")

    with monkeypatch.context() as patched:
        patched.setattr(mirror, "write", in_doubt)
        assert nexus.refused("task_add", title="Two", context="c")[0] == "DB_ERROR"
    assert [task["title"] for task in nexus.call("task_list")["tasks"]] == ["One", "Two"]
    assert len(nexus.read("state/tasks.json")["tasks"]) == 2


def test_it_knows_its_own_file_however_large_it_is(nexus: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    nexus.task()
    monkeypatch.setattr(directory, "MAX_BYTES", 10)
    assert len(nexus.call("task_list")["tasks"]) == 1
    nexus.write("state/tasks.json", {"goal": "Somebody else's", "decisions": [], "tasks": []})
    assert nexus.refused("task_list")[0] == "STATE_UNAVAILABLE"


def test_it_keeps_what_was_committed_when_the_files_cannot_follow(
    nexus: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    nexus.task("One")

    def full(self: directory.Directory, path: str, content: bytes, **_: Any) -> None:
        with self._explained(path):
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(directory.Directory, "write", full)
        assert nexus.call("task_update", id=1, status="completed")["task"]["status"] == "completed"
    assert nexus.call("task_list")["summary"]["completed"] == 1
    assert nexus.read("state/tasks.json")["tasks"][0]["status"] == "completed"


@pytest.mark.parametrize("what", [".nexus", ".nexus/state", ".nexus/state/plan.json", ".nexus/state/tasks.json"])
def test_it_follows_no_link(nexus: Project, tmp_path: Path, what: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    secret = outside / "secret.json"
    secret.write_text("{}")
    link = nexus.root / what
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(secret if what.endswith(".json") else outside)
    for tool, given in (("plan_status", {}), ("task_close", {}), ("artifact_write", {"filename": "x", "content": "y"})):
        if tool == "artifact_write" and what.endswith(".json"):
            continue  # it has nothing to do with that file
        code, message = nexus.refused(tool, **given)
        assert (code, "link" in message) == ("STATE_UNAVAILABLE", True)
    assert sorted(path.name for path in outside.iterdir()) == ["secret.json"]
    assert secret.read_text() == "{}"


@pytest.mark.parametrize("what", [".nexus", ".nexus/state"])
def test_it_says_that_a_file_stands_where_a_directory_should(nexus: Project, what: str) -> None:
    (nexus.root / what).parent.mkdir(exist_ok=True)
    (nexus.root / what).write_text("mine")
    code, message = nexus.refused("plan_status")
    assert (code, "no directory" in message) == ("STATE_UNAVAILABLE", True)
    assert (nexus.root / what).read_text() == "mine"


def test_it_writes_no_artifact_through_a_link(nexus: Project, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    nexus.task()
    (nexus.state / "artifacts").mkdir()
    (nexus.state / "artifacts" / "out").symlink_to(outside)
    assert nexus.refused("artifact_write", filename="out/x", content="y")[0] == "STATE_UNAVAILABLE"
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("make", [lambda path: os.mkfifo(path), lambda path: path.mkdir()])
def test_it_reads_nothing_that_is_no_plain_file(nexus: Project, make: Callable[[Path], None]) -> None:
    nexus.task()
    (nexus.state / "plan.json").unlink(missing_ok=True)
    make(nexus.state / "plan.json")
    assert nexus.refused("plan_status")[0] == "STATE_UNAVAILABLE"


def test_it_reads_no_file_without_end(nexus: Project) -> None:
    nexus.task()
    with (nexus.state / "plan.json").open("wb") as file:
        file.truncate(directory.MAX_BYTES + 1)
    code, message = nexus.refused("plan_status")
    assert (code, "larger" in message) == ("STATE_UNAVAILABLE", True)


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed, who may not write")
def test_it_says_that_a_project_cannot_be_written(nexus: Project) -> None:
    nexus.root.chmod(0o755)
    for path in (nexus.root, *nexus.root.parents):
        path.chmod(path.stat().st_mode | 0o055)
    program = (
        "import os\n"
        "from nexus.planning.directory import Directory\n"
        "from nexus.core.operations.errors import NexusError\n"
        "os.setuid(65534)\n"
        f"d = Directory({str(nexus.root)!r})\n"
        "try:\n with d.locked(): pass\n"
        "except NexusError as error: print(error.code, error.message)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout.startswith("STATE_UNAVAILABLE .nexus/"), done.stderr
    assert not (nexus.root / ".nexus").exists()


def test_it_says_when_another_process_holds_the_plan(nexus: Project, waits: list[float]) -> None:
    nexus.task()
    with directory.Directory(str(nexus.root)) as held, held.locked():
        body = nexus.body("task_add", title="x", context="y")
        assert (body["error"]["code"], body["error"]["details"]["retryable"]) == ("STATE_BUSY", True)
        assert len(nexus.call("task_list")["tasks"]) == 1  # who only reads does not wait
    assert len(nexus.call("task_list")["tasks"]) == 1


def test_calls_do_not_wait_in_a_row_for_a_plan_that_is_held(nexus: Project, waits: list[float]) -> None:
    def waited() -> int:
        before = len(waits)
        assert nexus.refused("task_add", title="x", context="y")[0] == "STATE_BUSY"
        return len(waits) - before

    nexus.task()
    with directory.Directory(str(nexus.root)) as held, held.locked():
        with pytest.raises(NexusError), directory.Directory(str(nexus.root)) as hasty, hasty.locked(2):
            pass
        assert (waited(), waited(), waited()) == (5, 0, 0)
        waits.extend([0.0] * int(directory.TIME_LIMIT_SECONDS))
        assert waited() == 5  # perhaps it is free by then
    nexus.task("At once")
    with directory.Directory(str(nexus.root)) as held, held.locked():
        assert waited() == 5


@pytest.mark.usefixtures("committed")
def test_it_gives_every_task_an_id_of_its_own(nexus: Project) -> None:
    nexus.task("First")
    at_once([lambda: [nexus.task("More")["id"] for _ in range(5)] for _ in range(6)])
    listed = nexus.call("task_list")["tasks"]
    assert [task["id"] for task in listed] == list(range(1, 32))
    assert nexus.read("state/tasks.json")["tasks"] == listed


def test_it_keeps_two_worktrees_apart(nexus: Project, tmp_path: Path) -> None:
    other = tmp_path / "worktree"
    other.mkdir()
    there = Project(other.resolve())
    nexus.task("Here")
    assert there.call("task_list") == {"exists": False}
    there.plan("Which?")
    assert nexus.call("plan_status") == {"active": False}


def test_it_tells_the_log_of_every_step(nexus: Project) -> None:
    nexus.plan("Which?")
    nexus.call("plan_update", action="add", title="How?")
    for summary in ("This.", "That."):
        nexus.call("plan_decide", issue_id=1, summary=summary)
    nexus.call("plan_update", action="reopen", issue_id=1)
    nexus.task()
    for status in ("in_progress", "completed"):
        nexus.call("task_update", id=1, status=status)
    nexus.call("artifact_write", filename="notes.md", content="x")
    nexus.call("task_close")
    plan = ["plan.started", "plan.updated", "plan.decided", "plan.decided", "plan.reopened"]
    tasks = ["task.added", "task.ready", "task.updated", "task.completed"]
    assert types() == [*plan, *tasks, "artifact.written", "cycle.closed"]


def test_it_tells_the_owner_that_a_task_is_ready(nexus: Project, call: Any) -> None:
    call("agent_register", agent_id="bob")
    nexus.task("Write")
    nexus.task("Test", deps=[1], owner="tester", owner_agent_id="bob")
    assert call("inbox_count", agent_id="bob")["unread"] == 0
    nexus.call("task_update", id=1, status="completed")
    (letter,) = call("inbox_pull", agent_id="bob")["messages"]
    assert letter["subject"] == "Task 2 is ready: Test"
    assert types()[-1] == "task.ready"
    nexus.task("Own", owner="bob", agent="bob")
    assert call("inbox_count", agent_id="bob")["unread"] == 0  # who adds it knows


def test_it_tells_an_owner_of_many_ready_tasks_once(nexus: Project, call: Any) -> None:
    call("agent_register", agent_id="bob")
    nexus.task("Write")
    for number in range(30):
        nexus.task(f"Test {number}", deps=[1], owner="bob")
    nexus.task("Tell", deps=[1], owner="nobody-here")
    nexus.call("task_update", id=1, status="completed")
    (letter,) = call("inbox_pull", agent_id="bob")["messages"]
    assert letter["subject"] == "30 tasks are ready, the first: Test 0"
    listed = letter["body"].splitlines()
    assert (listed[0], listed[19], listed[20]) == ("2. Test 0", "21. Test 19", "and 10 more")
    assert types().count("task.ready") == 31 + 1  # the first task was ready when it was added


def test_it_tells_what_a_file_made_ready(nexus: Project, call: Any) -> None:
    call("agent_register", agent_id="bob")
    nexus.task("Write")
    nexus.task("Test", deps=[1], owner="bob")
    document = nexus.read("state/tasks.json")
    document["tasks"][0]["status"] = "completed"
    nexus.write("state/tasks.json", document)
    nexus.call("task_list")
    assert [letter["subject"] for letter in call("inbox_pull", agent_id="bob")["messages"]] == ["Task 2 is ready: Test"]
    assert types()[-2:] == ["task.completed", "task.ready"]


def test_it_refuses_a_task_too_many(nexus: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MOST_TASKS", 2)
    nexus.task()
    nexus.task()
    assert nexus.refused("task_add", title="x", context="y")[0] == "VALIDATION_ERROR"
    assert nexus.refused("task_add", title="x", context="y" * 3_000_000)[0] == "CONTENT_TOO_LARGE"
