"""`nexus plan` and `nexus tasks`: what a person or a script sees of a project's plan, and does to it."""

from __future__ import annotations

import io
import json
from typing import Any, NamedTuple

import pytest
from django.core.management import call_command

from coordination.models import Event
from nexus.core.apps import as_commands
from tests.planning.conftest import Project

HOSTILE = 'rm "x"];\n\x1b[31m<b> `#1` \u202e漢'


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """The table below its headings."""
        return [line.split() for line in self.out.splitlines()[1:]]


class Shell:
    """Commands that are about one project."""

    def __init__(self, nexus: Project) -> None:
        self.nexus = nexus

    def __call__(self, command: str, *arguments: str) -> Ran:
        out, err = io.StringIO(), io.StringIO()
        with pytest.raises(SystemExit) as exit:
            call_command(command, *arguments, "--project", str(self.nexus.root), stdout=out, stderr=err)
        return Ran(int(exit.value.code or 0), out.getvalue(), err.getvalue())


@pytest.fixture
def shell(nexus: Project) -> Shell:
    return Shell(nexus)


@pytest.mark.parametrize(
    ("line", "said", "data"),
    [
        ("plan", "No plan is active.", {"active": False}),
        ("plan history", "none", {"total": 0, "showing": 0, "cycles": []}),
        ("tasks", "none", {"exists": False}),
        ("tasks ready", "none", {"tasks": []}),
    ],
)
def test_it_says_that_there_is_nothing(shell: Shell, line: str, said: str, data: Any) -> None:
    command, *verb = line.split()
    told = shell(command, *verb)
    assert (told.code, told.out.strip()) == (3, said)
    asked = shell(command, *(verb or ["show" if command == "plan" else "list"]), "--json")
    assert (asked.code, asked.json) == (3, data)
    assert list(shell.nexus.root.iterdir()) == []  # who asks leaves nothing behind


def test_it_shows_the_plan(shell: Shell) -> None:
    shell.nexus.plan("Which?", "How?")
    shell.nexus.call("plan_decide", issue_id=1, summary="This one.")
    shown = shell("plan")
    assert shown.code == 0
    assert "decided           1 of 2" in shown.out
    assert "1      decided  Which?  This one." in shown.out
    assert shell("plan", "show", "--json").json["summary"] == {"total": 2, "pending": 1, "decided": 1}


def test_it_searches_the_history(shell: Shell) -> None:
    for decision in ("This one.", "That one."):
        shell.nexus.plan("Which?")
        shell.nexus.call("plan_decide", issue_id=1, summary=decision)
        shell.nexus.call("task_close")
    found = shell("plan", "history", "that")
    assert found.code == 0
    assert "Which?: That one." in found.out and "This one." not in found.out
    last = shell("plan", "history", "--last", "1")
    assert "That one." in last.out and "the last 1 of 2" in last.out
    assert shell("plan", "history", "--json").json["total"] == 2
    assert shell("plan", "history", "nowhere").code == 3


def test_it_adds_and_updates_tasks(shell: Shell) -> None:
    given = ["--context", "Why.", "--owner", "engineer", "--plan-issue", "1", "--goal", "Ship", "--decision", "This."]
    assert shell("tasks", "create", "Write", *given).code == 0
    added = shell("tasks", "create", "Test", "--context", "Why.", "--dep", "1", "--json").json["task"]
    assert (added["id"], added["deps"]) == (2, [1])
    first, _ = shell.nexus.read("state/tasks.json")["tasks"]
    assert first.items() >= {"title": "Write", "context": "Why.", "owner": "engineer", "plan_issue": 1}.items()
    assert shell.nexus.read("state/tasks.json")["goal"] == "Ship"
    assert [row["id"] for row in shell("tasks", "ready", "--json").json["tasks"]] == [1]
    for _ in range(2):  # twice is once
        updated = shell("tasks", "update", "1", "completed")
        assert updated.code == 0
    assert "status      completed" in updated.out
    listed = shell("tasks", "list")
    assert listed.out.splitlines()[0] == "goal  Ship"
    assert listed.rows[1:] == [["1", "completed", "Write", "-", "engineer", "-"], ["2", "ready", "Test", "1", "-", "-"]]
    acts = Event.objects.filter(type="operator.acted").values_list("payload__operation", flat=True)
    assert sorted(acts) == ["task_add", "task_add", "task_update", "task_update"]


def test_it_reads_the_context_from_standard_input(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("Two\nlines."))
    assert shell("tasks", "create", "Write", "--context", "-", "--json").json["task"]["context"] == "Two\nlines."


def test_it_warns_of_dependencies_that_are_never_met(shell: Shell) -> None:
    added = shell("tasks", "create", "Write", "--context", "Why.", "--dep", "9")
    assert (added.code, "There is no task 9" in added.err) == (0, True)
    assert shell("tasks", "ready").code == 3


def test_it_makes_what_agents_wrote_harmless_to_a_terminal(shell: Shell) -> None:
    shell.nexus.call("plan_start", topic=HOSTILE, issues=[HOSTILE], research_summary=HOSTILE)
    shell.nexus.call("plan_decide", issue_id=1, summary=HOSTILE)
    shell.nexus.call("task_add", title=HOSTILE, context=HOSTILE, owner=HOSTILE, goal=HOSTILE)
    shell.nexus.call("task_close")
    shell.nexus.plan(HOSTILE)
    shell.nexus.call("task_add", title=HOSTILE, context=HOSTILE, owner=HOSTILE, goal=HOSTILE)
    for line in ("plan", "plan history", "tasks", "tasks update 1 completed"):
        shown = shell(*line.split())
        assert shown.code == 0
        assert "\x1b" not in shown.out and "\u202e" not in shown.out, line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["update", "1", "done"], "invalid choice"),
        (["update", "x", "completed"], "use a whole number"),
        (["update", "-1", "completed"], "use a whole number"),
        (["create", "Write"], "--context"),
    ],
)
def test_it_refuses_a_bad_command_line(
    shell: Shell, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert shell("tasks", *arguments).code == 1
    err = capsys.readouterr().err
    assert err.startswith("[nexus] CONFIG_ERROR: ") and said in err
    assert shell.nexus.read("state/tasks.json") is None


def test_it_names_the_code_of_what_is_refused(shell: Shell) -> None:
    nothing = shell("tasks", "update", "1", "completed")
    assert (nothing.code, nothing.err.strip()) == (1, "[nexus] NOT_FOUND: tasks.json not found")
    blank = shell("tasks", "create", "", "--context", "Why.")
    assert (blank.code, blank.err.startswith("[nexus] VALIDATION_ERROR: ")) == (1, True)


def test_it_says_that_there_is_no_such_directory(shell: Shell) -> None:
    shell.nexus.root = shell.nexus.root / "gone"
    for line in ("plan", "tasks", "tasks create Write --context Why."):
        told = shell(*line.split())
        assert (told.code, told.err.startswith("[nexus] WORKSPACE_UNRESOLVED: ")) == (1, True)


def test_errors_name_the_commands(shell: Shell) -> None:
    assert as_commands("Look at plan_status, then task_add.") == "Look at `nexus plan`, then `nexus tasks create`."
    assert as_commands("close it with task_close") == "close it with an agent"
