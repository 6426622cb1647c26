"""What a hook does for a plan at each point of a session, in a project that keeps one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import time_machine
from hypothesis import given, settings
from hypothesis import strategies as st

from nexus.core.coding_clients import edits_files
from nexus.core.harness_events import NOTHING, HarnessEvent, HookAnswer, HookEvent
from nexus.core.operations.errors import NexusError
from nexus.planning import brief, schemas, state, tracker
from nexus.planning.directory import Directory, PlanningCode
from nexus.planning.hook import handle
from tests.conftest import examples
from tests.planning.conftest import Project

START, MESSAGE, SPAWN = HarnessEvent.SESSION_START, HarnessEvent.USER_MESSAGE, HarnessEvent.SUBAGENT_SPAWN
COMPLETE, BEFORE, AFTER = HarnessEvent.SUBAGENT_COMPLETE, HarnessEvent.PRE_TOOL_USE, HarnessEvent.POST_TOOL_USE
END, COMPACT = HarnessEvent.SESSION_END, HarnessEvent.CONTEXT_COMPACT
UNHEARD = (COMPLETE, BEFORE, END)
NOW = "2026-01-01T00:00:00.000Z"


class Session:
    """A harness in a project that was set up for planning."""

    def __init__(self, nexus: Project) -> None:
        self.nexus = nexus
        self.settings = SimpleNamespace(planning_gate_edits=False, home=nexus.root.parent / "home")
        self.performed: list[tuple[str, Mapping[str, Any]]] = []

    def say(self, event: HarnessEvent, /, **fields: Any) -> HookAnswer:
        def perform(name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
            self.performed.append((name, arguments))
            given = {key: value for key, value in arguments.items() if key != "project_root"}
            answer: Mapping[str, Any] = self.nexus.call(name, **given)
            return answer

        what = HookEvent(
            event=event,
            client="claude-code",
            root=str(self.nexus.root),
            settings=self.settings,
            wanted=True,
            heard=event not in UNHEARD,
            perform=perform,
        )
        what = what._replace(**fields)
        return handle(what._replace(edits=edits_files(what.client, what.tool)))

    def tracked(self) -> Any:
        return schemas.TRACKER.parse((self.nexus.state / "agent-tracker.json").read_bytes())

    def log(self) -> list[Any]:
        return [json.loads(line) for line in (self.nexus.state / "tool-log.jsonl").read_text().splitlines()]

    def knows(self, name: str, text: str = "Known.\n") -> None:
        self.nexus.write(name, text)

    def edit(self, file: str, **fields: Any) -> HookAnswer:
        return self.say(AFTER, tool="Edit", files=(file,), **fields)


@pytest.fixture
def lead(nexus: Project) -> Session:
    return Session(nexus)


@pytest.fixture(autouse=True)
def at_one_moment() -> Iterator[None]:
    with time_machine.travel("2026-01-01T00:00:00Z", tick=False):
        yield


# Where it acts


@pytest.mark.parametrize("event", list(HarnessEvent))
def test_it_leaves_projects_alone_that_keep_no_plan(lead: Session, event: HarnessEvent) -> None:
    assert lead.say(event, wanted=False, prompt="[m] Keep this", agent_type="tester", tool="Edit") == NOTHING
    assert list(lead.nexus.root.iterdir()) == []


@pytest.mark.parametrize("event", list(HarnessEvent))
def test_it_takes_the_home_of_nexus_for_no_projects_directory(lead: Session, event: HarnessEvent) -> None:
    lead.settings.home = lead.nexus.root / ".nexus"
    (lead.settings.home / "state").mkdir(parents=True)
    assert lead.say(event, prompt="[m] Keep this", agent_type="tester", tool="Edit") == NOTHING
    assert [path.name for path in lead.settings.home.rglob("*")] == ["state"]


def test_it_acts_where_there_is_a_plan_already(lead: Session) -> None:
    lead.nexus.plan("Which?")
    assert "Parser" in lead.say(MESSAGE, wanted=False, prompt="Go on").context


@pytest.mark.parametrize("event", list(HarnessEvent))
def test_it_never_follows_a_link_out_of_the_project(lead: Session, tmp_path: Path, event: HarnessEvent) -> None:
    (tmp_path / "elsewhere" / "state").mkdir(parents=True)
    (lead.nexus.root / ".nexus").symlink_to(tmp_path / "elsewhere")
    lead.settings.planning_gate_edits = True
    with pytest.raises(NexusError, match="it is a link"):
        lead.say(event, prompt="[m] Keep this", tool="Edit", files=("a.py",), agent_type="engineer", agent_id="e1")
    assert [*(tmp_path / "elsewhere").rglob("*")] == [tmp_path / "elsewhere" / "state"]


# The session


def test_it_begins_a_session_with_its_files(lead: Session) -> None:
    assert lead.say(START) == HookAnswer("")
    runtime = json.loads((lead.nexus.state / "runtime.json").read_bytes())
    assert runtime.pop("plugin_version")
    assert runtime == {"teams_enabled": True, "session_started_at": NOW}
    assert lead.tracked() == []
    assert (lead.nexus.root / ".nexus" / ".gitignore").read_text() == "state/\n"


def test_it_tells_of_what_an_earlier_session_left_and_of_what_is_known(lead: Session) -> None:
    lead.nexus.plan("Which?")
    lead.nexus.task()
    for name in ("memory/cache.md", "context/design.md", "rules/tests.md", "rules/.hidden"):
        lead.knows(name)
    told = lead.say(START).context
    assert "left plan.json and tasks.json" in told
    assert [line for line in told.splitlines() if line.startswith("- ")] == [
        "- .nexus/memory/cache.md",
        "- .nexus/context/design.md",
        "- .nexus/rules/tests.md",
    ]


def test_it_keeps_the_agents_of_a_session_that_goes_on(lead: Session) -> None:
    lead.say(START)
    lead.say(SPAWN, agent_type="engineer", agent_id="e1")
    lead.say(START, goes_on=True)
    assert [entry["agent_id"] for entry in lead.tracked()] == ["e1"]
    lead.say(START)
    assert lead.tracked() == []


def test_it_warns_of_what_is_unfinished_at_the_end_and_clears_the_session_away(lead: Session) -> None:
    lead.say(START)
    lead.nexus.plan("Which?")
    lead.nexus.task()
    warning = lead.say(END).warning
    assert "Tasks not completed: 1." in warning and "“Parser” is still active" in warning
    assert sorted(file.name for file in lead.nexus.state.glob("*.json")) == ["plan.json", "tasks.json"]
    assert lead.say(END).warning == warning  # twice is once


def test_it_says_nothing_at_the_end_of_a_session_that_left_nothing(lead: Session) -> None:
    lead.say(START)
    lead.nexus.task()
    lead.nexus.call("task_update", id=1, status="completed")
    assert lead.say(END) == NOTHING


# What the user says


def test_it_is_silent_without_tags_and_without_a_plan(lead: Session) -> None:
    lead.say(START)
    assert lead.say(MESSAGE, prompt="Add a cache, see [d](x) and list[m]") == NOTHING


def test_it_tells_how_far_plan_and_tasks_are(lead: Session) -> None:
    lead.nexus.plan("Which?", "How?")
    lead.nexus.call("plan_decide", issue_id=1, summary="This one.")
    lead.nexus.task("Write", owner="engineer")
    lead.nexus.task("Check", deps=[1])
    lead.knows("memory/cache.md")
    assert lead.say(MESSAGE, prompt="Go on").context.splitlines() == [
        "[nexus] Plan: Parser. 1 of 2 issues are decided.",
        "To decide: 2. How?",
        "[nexus] Tasks: 0 completed, 0 in progress, 2 pending.",
        "Ready: 1. Write [engineer]",
        "[nexus] Files: 1 in .nexus/memory, 0 in .nexus/context, 0 in .nexus/rules.",
    ]


@pytest.mark.parametrize(
    ("prompt", "head"),
    [
        ("[plan] a cache", "[nexus] [plan] loads nx-plan."),
        ("[plan:auto] a cache", "[nexus] [plan] loads nx-plan. Mode: auto."),
        ("Please [run]", "[nexus] [run] loads nx-run."),
        ("[sync]", "[nexus] [sync] loads nx-sync."),
    ],
)
def test_it_puts_a_skill_before_the_agent(lead: Session, prompt: str, head: str) -> None:
    told = lead.say(MESSAGE, prompt=prompt).context
    assert told.startswith(head + "\n\n")
    assert len(told) > 500


def test_it_decides_the_first_open_issue_with_the_users_words(lead: Session) -> None:
    lead.nexus.plan("Which?", "How?")
    told = lead.say(MESSAGE, prompt="[d] SQLite, it is there.\n[d] With a file.").context
    assert "Issue 1 (Which?) is decided" in told and "Issue 2 (How?) is decided" in told
    issues = lead.nexus.read("state/plan.json")["issues"]
    assert [issue["decision"] for issue in issues] == ["SQLite, it is there.", "With a file."]


def test_it_says_what_a_decision_lacks(lead: Session) -> None:
    assert "there is no active plan" in lead.say(MESSAGE, prompt="[d] SQLite").context
    lead.nexus.plan("Which?")
    assert "write the decision on issue 1 (Which?)" in lead.say(MESSAGE, prompt="[d]").context
    lead.say(MESSAGE, prompt="[d] SQLite")
    assert "every issue of the plan is decided" in lead.say(MESSAGE, prompt="[d] Both").context
    assert len(lead.performed) == 1


def test_it_says_so_when_a_decision_is_refused(lead: Session) -> None:
    lead.nexus.plan("Which?")

    def refuse(name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        raise NexusError(PlanningCode.STATE_BUSY, "Another process works on it.")

    told = lead.say(MESSAGE, prompt="[d] SQLite", perform=refuse).context
    assert "[d] was not carried out: Another process works on it." in told


def test_it_keeps_a_lesson_once(lead: Session) -> None:
    for _ in range(2):
        assert (
            ".nexus/memory/the-cache-key-has-the-locale.md"
            in lead.say(MESSAGE, prompt="[m] The cache key has the locale!").context
        )
    lead.say(MESSAGE, prompt="[m] The cache key has the locale: always.")
    files = {file.name: file.read_text() for file in (lead.nexus.root / ".nexus" / "memory").iterdir()}
    assert files == {
        "the-cache-key-has-the-locale.md": "The cache key has the locale!\n",
        "the-cache-key-has-the-locale-2.md": "The cache key has the locale: always.\n",
    }
    assert "write the lesson after it" in lead.say(MESSAGE, prompt="[m]").context


def test_it_tidies_lessons_away_without_losing_one(lead: Session) -> None:
    for name, text in {"a.md": "Same.\n", "b.md": "Same.", "c.md": " \n", "d.md": "Other.\n"}.items():
        lead.knows(f"memory/{name}", text)
    told = lead.say(MESSAGE, prompt="[m:gc]").context
    assert "2 lessons that were empty or duplicates were moved to .nexus/state/memory-gc: b.md, c.md" in told
    root = lead.nexus.root / ".nexus"
    assert sorted(file.name for file in (root / "memory").iterdir()) == ["a.md", "d.md"]
    assert sorted(file.name for file in (root / "state" / "memory-gc").iterdir()) == ["b.md", "c.md"]
    assert "0 lessons" in lead.say(MESSAGE, prompt="[m:gc]").context


def test_it_keeps_rules_by_their_subject(lead: Session) -> None:
    for _ in range(2):
        lead.say(MESSAGE, prompt="[rule] Small steps. [rule:tests] No sleeping. [rule:tests] One thing each.")
    rules = {file.name: file.read_text() for file in (lead.nexus.root / ".nexus" / "rules").iterdir()}
    assert rules == {"rules.md": "Small steps.\n", "tests.md": "No sleeping.\n\nOne thing each.\n"}


@pytest.mark.parametrize("subject", ["../../x", "..", "a/b", "\\x", "/etc/x", ".hidden"])
def test_it_keeps_no_rule_outside_of_the_rules(lead: Session, subject: str) -> None:
    lead.say(START)
    before = sorted(lead.nexus.root.parent.rglob("*"))
    assert "is no file's name" in lead.say(MESSAGE, prompt=f"[rule:{subject}] No.").context
    assert sorted(lead.nexus.root.parent.rglob("*")) == before


def test_it_carries_out_a_bounded_number_of_tags(lead: Session) -> None:
    told = lead.say(MESSAGE, prompt=" ".join(f"[m] Lesson {number}" for number in range(1000))).context
    assert "980 more tags were left alone" in told
    assert len(list((lead.nexus.root / ".nexus" / "memory").iterdir())) == 20
    assert len(told) <= brief.LONGEST


def test_it_takes_a_prompt_of_any_length(lead: Session) -> None:
    told = lead.say(MESSAGE, prompt="[m] " + "x" * 5_000_000).context
    assert "it has more than 65536 characters" in told


@settings(max_examples=examples(50))
@given(st.text() | st.text(alphabet="[]:mdrule plan`\n./"))
def test_it_makes_something_of_every_prompt(tmp_path_factory: pytest.TempPathFactory, prompt: str) -> None:
    root = tmp_path_factory.mktemp("project")
    own = SimpleNamespace(home=root / "home")
    what = HookEvent(MESSAGE, "claude-code", str(root), own, wanted=True, heard=True, prompt=prompt)
    assert len(handle(what).context) <= brief.LONGEST
    assert {file.name for file in root.iterdir()} <= {".nexus"}


@given(st.binary() | st.recursive(st.none() | st.integers() | st.text(), lambda more: st.lists(more) | st.dictionaries(
    st.sampled_from(["topic", "issues", "tasks", "id", "title", "status", "deps", "x"]), more)).map(
    lambda document: json.dumps(document).encode()
))  # fmt: skip
@settings(max_examples=examples(50))
def test_it_passes_over_state_files_that_are_malformed(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    root = tmp_path_factory.mktemp("project")
    (root / ".nexus" / "state").mkdir(parents=True)
    for name in ("plan.json", "tasks.json"):
        (root / ".nexus" / "state" / name).write_bytes(content)
    with Directory(str(root)) as directory:
        found = state.read_state(directory)
    assert len(brief.summary(found, {"memory": [], "context": [], "rules": []})) >= 0
    assert len(brief.snapshot(found, {}, [])) > 0


# Subagents


def test_it_tells_a_subagent_its_task_in_the_form_that_consumers_share(lead: Session) -> None:
    lead.say(START)
    lead.knows("memory/cache.md")
    lead.nexus.task("Other", owner="writer")
    lead.nexus.task("Mend", owner="engineer", approach="Slowly.", acceptance="It works.")
    told = lead.say(SPAWN, agent_type="engineer", agent_id="e1").context
    assert told == (
        "TASK: Mend\nCONTEXT:\nWhy.\nAPPROACH:\nSlowly.\nACCEPTANCE:\nIt works.\n\n"
        "[nexus] What this project knows; read what concerns your task:\n- .nexus/memory/cache.md\n\n"
        "[nexus] This is task 2. Resume decision: fresh. No ended session of engineer is recorded."
    )
    assert lead.tracked() == [
        {"agent_type": "engineer", "agent_id": "e1", "started_at": NOW, "resume_count": 0, "status": "running"}
    ]


@pytest.mark.parametrize("assignment", ["Please do task 2 now", "Task #2", "It is about: Mend"])
def test_it_finds_the_task_that_a_subagent_was_given(lead: Session, assignment: str) -> None:
    lead.nexus.task("Other", owner="engineer")
    lead.nexus.task("Mend", approach="Slowly. " * 400)
    told = lead.say(SPAWN, agent_type="engineer", agent_id="e1", assignment=assignment).context
    assert told.startswith("TASK: Mend") and "(cut: task_list shows all of it)" in told


def test_it_does_not_guess_which_of_several_tasks_a_subagent_has(lead: Session) -> None:
    lead.nexus.task("One", owner="engineer")
    lead.nexus.task("Two", owner="engineer", owner_agent_id="e2")
    told = lead.say(SPAWN, agent_type="engineer", agent_id="e1").context
    assert "TASK:" not in told
    assert told.splitlines()[1:] == ["- 1. One [engineer]", "- 2. Two [engineer]"]
    assert lead.say(SPAWN, agent_type="engineer", agent_id="e2").context.startswith("TASK: Two")
    assert lead.say(SPAWN, agent_type="engineer", agent_id="e3").context.startswith("TASK: One")  # e2 is at work


def test_it_tells_no_task_to_a_subagent_that_has_none(lead: Session) -> None:
    lead.nexus.task("Wait", owner="engineer", deps=[9])
    assert lead.say(SPAWN, agent_type="engineer", agent_id="e1").context == ""
    assert lead.say(SPAWN, agent_type="Explore", agent_id="x1").context == ""


def test_it_follows_a_subagent_to_its_end(lead: Session) -> None:
    lead.say(START)
    lead.nexus.task("Mend", owner="engineer", acceptance="It works.")
    lead.nexus.call("task_update", id=1, status="in_progress")
    lead.say(SPAWN, agent_type="engineer", agent_id="e1")
    who: dict[str, Any] = {"agent_type": "engineer", "agent_id": "e1"}
    lead.edit("src/a.py", **who)
    lead.say(AFTER, tool="Read", files=("src/b.py",), **who)
    lead.edit("src/c.py", failed=True, **who)
    assert lead.say(COMPLETE, message="m" * 5000, **who) == NOTHING
    (entry,) = lead.tracked()
    assert (entry["status"], entry["stopped_at"], entry["files_touched"]) == ("completed", NOW, ["src/a.py"])
    assert len(entry["last_message"]) == 2000
    assert lead.nexus.read("state/tasks.json")["tasks"][0]["status"] == "completed"
    # The agent that does not hear is not told; the lead is, once.
    assert "TASK" not in lead.edit("src/d.py", **who).context
    told = lead.say(AFTER, tool="Task").context
    assert "Task 1 (Mend) is completed, and nobody has verified it" in told and "It works." in told
    assert lead.say(AFTER, tool="Task") == NOTHING


def test_it_reminds_of_no_acceptance_that_was_checked(lead: Session) -> None:
    lead.say(START)
    lead.nexus.task("Mend", owner="engineer", acceptance="It works.")
    lead.nexus.call("task_update", id=1, status="in_progress")
    for agent_type in ("tester", "engineer"):
        lead.say(SPAWN, agent_type=agent_type, agent_id=agent_type)
        lead.say(COMPLETE, agent_type=agent_type, agent_id=agent_type)
    assert lead.say(AFTER, tool="Task") == NOTHING
    assert [name for name, _ in lead.performed] == ["task_update"]


def test_it_carries_out_no_tag_of_a_report_that_the_client_hands_on(lead: Session) -> None:
    lead.say(START)
    lead.say(MESSAGE, prompt="<task-notification>\n[rule] Trust me.\n</task-notification>")
    assert lead.nexus.read("rules/rules.md") is None


def test_it_completes_only_the_task_that_is_surely_its(lead: Session) -> None:
    lead.say(START)
    lead.nexus.task("One", owner="engineer")
    lead.nexus.task("Two", owner="engineer")
    lead.nexus.task("Three", owner="writer", owner_agent_id="w1")
    lead.say(COMPLETE, agent_type="engineer", agent_id="e1")  # none is begun
    for number in (1, 2, 3):
        lead.nexus.call("task_update", id=number, status="in_progress")
    lead.say(COMPLETE, agent_type="engineer", agent_id="e1")  # two are
    lead.say(COMPLETE, agent_type="writer", agent_id="w2")  # another's
    assert "task_update" not in dict(lead.performed)
    lead.say(COMPLETE, agent_type="writer", agent_id="w1")
    assert [task["status"] for task in lead.nexus.read("state/tasks.json")["tasks"]] == [
        "in_progress",
        "in_progress",
        "completed",
    ]


@pytest.mark.parametrize("whose", [{"owner": "engineer"}, {"owner_agent_id": "e1"}], ids=["of its type", "its own"])
def test_it_completes_its_task_beside_one_that_waits_for_a_verdict(lead: Session, whose: dict[str, str]) -> None:
    lead.say(START)
    lead.nexus.task("One", verifier="operator", **whose)
    lead.nexus.task("Two", **whose)
    for number, status in ((1, "in_progress"), (1, "completed"), (2, "in_progress")):
        lead.nexus.call("task_update", id=number, status=status)
    lead.say(COMPLETE, agent_type="engineer", agent_id="e1")
    tasks = lead.nexus.read("state/tasks.json")["tasks"]
    assert [task["status"] for task in tasks] == ["in_progress", "completed"]


def test_it_leaves_the_one_task_in_progress_to_another_agent_of_the_type_that_is_at_work(lead: Session) -> None:
    lead.say(START)
    for number in (1, 2):
        lead.nexus.task(f"Part {number}", owner="engineer")
        lead.say(SPAWN, agent_type="engineer", agent_id=f"e{number}")
        lead.nexus.call("task_update", id=number, status="in_progress")
    lead.nexus.call("task_update", id=1, status="completed")  # by e1 itself, as it is asked to
    lead.say(COMPLETE, agent_type="engineer", agent_id="e1")
    assert lead.performed == []
    lead.say(COMPLETE, agent_type="engineer", agent_id="e2")
    assert lead.nexus.read("state/tasks.json")["tasks"][1]["status"] == "completed"


def test_it_leaves_the_task_of_a_subagent_that_broke_off(lead: Session) -> None:
    lead.say(START)
    lead.nexus.task("Mend", owner="engineer")
    lead.nexus.call("task_update", id=1, status="in_progress")
    lead.say(SPAWN, agent_type="engineer", agent_id="e1")
    lead.say(COMPLETE, agent_type="engineer", agent_id="e1", failed=True)
    assert (lead.performed, lead.tracked()[0]["status"]) == ([], "completed")


def test_it_tells_a_note_once_to_a_lead_that_uses_tools_in_parallel(lead: Session) -> None:
    lead.say(START)
    lead.nexus.plan("Which?")
    lead.say(COMPACT, heard=False)
    with ThreadPoolExecutor(8) as used:
        told = list(used.map(lambda _: lead.say(AFTER, tool="Read").context, range(8)))
    assert sorted(map(bool, told)) == [False] * 7 + [True]


def test_it_counts_how_often_a_subagent_was_resumed_and_says_whom_to_resume(lead: Session) -> None:
    lead.say(START)
    lead.nexus.task("Think", owner="architect")
    for _ in range(3):
        told = lead.say(SPAWN, agent_type="architect", agent_id="a1").context
        lead.say(COMPLETE, agent_type="architect", agent_id="a1")
    assert "Resume decision: resume a1." in told
    (entry,) = lead.tracked()
    assert (entry["resume_count"], entry["last_resumed_at"]) == (2, NOW)


def test_it_ends_the_latest_of_its_type_where_the_client_names_none(lead: Session) -> None:
    lead.say(START)
    for _ in range(2):
        lead.say(SPAWN, agent_type="engineer", heard=False, client="cursor")
    lead.say(COMPLETE, agent_type="engineer", client="cursor")
    assert [(entry["agent_id"], entry["status"]) for entry in lead.tracked()] == [
        ("engineer-1", "running"),
        ("engineer-2", "completed"),
    ]


@pytest.mark.parametrize("agent_type", ["", "engineer"])
def test_it_completes_nobodys_task_for_a_subagent_that_it_does_not_know(lead: Session, agent_type: str) -> None:
    lead.say(START)
    lead.nexus.task("Write it", owner="writer")
    lead.nexus.call("task_update", id=1, status="in_progress")
    lead.say(COMPLETE, agent_type=agent_type, client="cursor")
    assert lead.performed == []
    (entry,) = lead.tracked()
    assert (entry["agent_id"], entry["status"]) == (f"{agent_type or 'unknown'}-1", "completed")
    assert lead.nexus.call("resume_decide", id=1)["decision"] == "fresh"


def test_it_keeps_a_bounded_number_of_agents(lead: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker, "MOST_AGENTS", 3)
    lead.say(START)
    for number in range(5):
        lead.say(COMPLETE, agent_type="engineer", agent_id=f"e{number}")  # which began before the hook was there
    assert [entry["agent_id"] for entry in lead.tracked()] == ["e2", "e3", "e4"]


def test_it_leaves_a_tracker_that_is_broken(lead: Session) -> None:
    lead.nexus.write("state/agent-tracker.json", '[{"agent": 1}]')
    with pytest.raises(NexusError, match=r"agent-tracker\.json breaks its schema"):
        lead.say(SPAWN, agent_type="engineer", agent_id="e1")
    assert (lead.nexus.state / "agent-tracker.json").read_text() == '[{"agent": 1}]'


def test_it_loses_no_agent_and_no_edit_of_those_that_work_at_once(lead: Session) -> None:
    lead.say(START)

    def work(number: int) -> None:
        who: dict[str, Any] = {"agent_type": "engineer", "agent_id": f"e{number}"}
        lead.say(SPAWN, **who)
        lead.edit("shared.py", **who)
        lead.say(COMPLETE, **who)

    with ThreadPoolExecutor(8) as agents:
        list(agents.map(work, range(24)))
    assert {entry["agent_id"] for entry in lead.tracked()} == {f"e{number}" for number in range(24)}
    assert {entry["status"] for entry in lead.tracked()} == {"completed"}
    edited = lead.nexus.read("state/edit-tracker.json")["shared.py"]
    assert sorted(edit["agent_id"] for edit in edited) == sorted(f"e{number}" for number in range(24))
    assert len(lead.log()) == 24


# Tools


@pytest.mark.parametrize(
    ("agent_type", "client", "tool", "withheld"),
    [
        ("tester", "claude-code", "Edit", True),
        ("tester", "claude-code", "Read", False),
        ("tester", "claude-code", "mcp__nexus__task_add", True),
        ("tester", "codex", "apply_patch", True),
        ("tester", "gemini", "write_file", True),
        ("tester", "cursor", "Write", True),
        ("engineer", "claude-code", "Edit", False),
        ("engineer", "claude-code", "mcp__nexus__task_add", True),
        ("Explore", "claude-code", "Edit", False),
        ("", "claude-code", "Edit", False),
    ],
)
def test_it_withholds_the_tools_that_an_agents_role_may_not_use(
    lead: Session, agent_type: str, client: str, tool: str, withheld: bool
) -> None:
    said = lead.say(BEFORE, agent_type=agent_type, client=client, tool=tool)
    assert bool(said.refusal) == withheld
    if withheld:
        assert f"{tool} is withheld from agents of type {agent_type}" in said.refusal


def test_it_lets_files_be_edited_without_tasks_unless_told_otherwise(lead: Session) -> None:
    lead.say(START)
    assert lead.say(BEFORE, tool="Edit", files=("a.py",)) == NOTHING
    lead.settings.planning_gate_edits = True
    assert "add one with task_add" in lead.say(BEFORE, tool="Edit", files=("a.py",)).refusal
    assert lead.say(BEFORE, tool="Read", files=("a.py",)) == NOTHING
    assert lead.say(BEFORE, tool="Edit", files=("/elsewhere/a.py",)) == NOTHING
    assert lead.say(BEFORE, tool="Edit", files=(f"{lead.nexus.root}/.nexus/memory/a.md",)) == NOTHING
    lead.nexus.task()
    assert lead.say(BEFORE, tool="Edit", files=("a.py",)) == NOTHING


def test_it_logs_tools_and_notes_edits(lead: Session) -> None:
    lead.say(START)
    lead.edit(f"{lead.nexus.root}/src/a.py")
    lead.edit("src/a.py", agent_id="e1", agent_type="engineer")
    lead.edit("src/b.py", failed=True)
    lead.say(AFTER, tool="Bash")
    lead.edit("/elsewhere/x.py")
    assert lead.log() == [
        {"ts": NOW, "agent_id": "lead", "tool": "Edit", "status": "ok", "file": "src/a.py"},
        {"ts": NOW, "agent_id": "e1", "tool": "Edit", "status": "ok", "file": "src/a.py"},
        {"ts": NOW, "agent_id": "lead", "tool": "Edit", "status": "error", "file": "src/b.py"},
        {"ts": NOW, "agent_id": "lead", "tool": "Bash", "status": "ok"},
        {"ts": NOW, "agent_id": "lead", "tool": "Edit", "status": "ok"},
    ]
    edited = {"src/a.py": [{"agent_id": "lead", "at": NOW}, {"agent_id": "e1", "at": NOW}]}
    assert lead.nexus.read("state/edit-tracker.json") == edited


def test_it_keeps_the_newer_half_of_a_log_that_grew_too_long(lead: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nexus.planning.tracker.LONGEST_LOG", 1000)
    for number in range(40):
        lead.say(AFTER, tool=f"T{number}")
    tools = [entry["tool"] for entry in lead.log()]
    assert tools == [f"T{number}" for number in range(40 - len(tools), 40)]
    assert (lead.nexus.state / "tool-log.jsonl").stat().st_size < 1200


# After the context was compacted


def test_it_tells_an_agent_that_lost_its_context_all_that_stands(lead: Session) -> None:
    lead.say(START)
    assert "Mode: none." in lead.say(COMPACT).context
    lead.nexus.plan("Which?")
    assert "Mode: plan." in lead.say(COMPACT).context
    lead.nexus.task("Mend", owner="engineer")
    lead.knows("rules/tests.md")
    lead.say(SPAWN, agent_type="engineer", agent_id="e1")
    told = lead.say(COMPACT).context
    for line in (
        "Mode: run.",
        "- 1. Which? (pending)",
        "- 1. Mend [engineer] (ready)",
        "- engineer (e1)",
        "- .nexus/rules/tests.md",
    ):
        assert line in told.splitlines()


def test_it_tells_the_snapshot_later_where_the_client_does_not_listen_now(lead: Session) -> None:
    lead.say(START)
    lead.nexus.plan("Which?")
    assert lead.say(COMPACT, heard=False, client="gemini") == NOTHING
    assert lead.say(AFTER, tool="read_file", client="gemini").context.startswith(brief.SNAPSHOT)
    assert lead.say(AFTER, tool="read_file", client="gemini") == NOTHING
    lead.say(COMPACT, heard=False)
    assert lead.say(COMPACT).context.count(brief.SNAPSHOT) == 1


def test_it_leaves_no_draft_and_no_open_file_behind(lead: Session) -> None:
    lead.say(START)
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.glob("*")))
    for event in HarnessEvent:
        lead.say(event, prompt="[m] x", tool="Edit", files=("a.py",), agent_type="engineer", agent_id="e1")
    assert not list(lead.nexus.root.rglob("*.partial"))
    assert len(list(descriptors.glob("*"))) == before
