"""The tools against a naive model of their contract, through random calls and another consumer's edits of the files."""

from __future__ import annotations

import copy
import json
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import time_machine
from django.db import transaction
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.conftest import examples
from tests.planning.conftest import Project

NOW = "2026-03-01T12:00:00.000Z"
PLAN, TASKS, HISTORY = "state/plan.json", "state/tasks.json", "history.json"
HOW = ("decision", "how_agents", "how_summary", "how_agent_ids")
Document = dict[str, Any]

texts = st.sampled_from(["Oak", "ümlaut", 'a "quote"', "two\nlines", "OAK", "😀"])
ids = st.integers(-1, 6)
statuses = st.sampled_from(["pending", "in_progress", "completed"])
hows = st.fixed_dictionaries(
    {},
    optional={
        "how_agents": st.lists(texts, max_size=2),
        "how_summary": st.dictionaries(texts, texts, max_size=2),
        "how_agent_ids": st.dictionaries(texts, texts, max_size=1),
    },
)
more_of_a_task = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("approach", "acceptance", "risk", "owner", "owner_agent_id"), texts),
        "plan_issue": ids,
        "owner_reuse_policy": st.sampled_from(["fresh", "resume_if_same_artifact", "resume"]),
    },
)
of_the_cycle = st.fixed_dictionaries({}, optional={"goal": texts, "decisions": st.lists(texts, max_size=2)})


class Contract(RuleBasedStateMachine):
    """One project: its files as the contract has them, beside those that the tools leave."""

    def __init__(self) -> None:
        super().__init__()
        self.atomic = transaction.atomic()
        self.atomic.__enter__()
        self.travel = time_machine.travel(NOW, tick=False)
        self.travel.start()
        self.place = tempfile.TemporaryDirectory()
        self.project = Project(Path(self.place.name).resolve())
        self.plan: Document | None = None
        self.tasks: Document | None = None
        self.cycles: list[Document] = []
        self.next_issue = 1
        self.epochs: dict[int, int] = {}  # how often each task of the cycle was begun

    def teardown(self) -> None:
        self.place.cleanup()
        self.travel.stop()
        transaction.set_rollback(True)
        self.atomic.__exit__(None, None, None)

    def refusal(self, tool: str, **arguments: Any) -> str:
        return self.project.refused(tool, **arguments)[1]

    def begin(self, number: int, before: str, after: str) -> None:
        self.epochs[number] = self.epochs.get(number, 0) + (before != after == "in_progress")

    def issue(self, issue_id: int) -> Document | None:
        assert self.plan is not None
        return next((issue for issue in self.plan["issues"] if issue["id"] == issue_id), None)

    def archive(self, tasks: list[Document]) -> None:
        cycle = {"completed_at": NOW, "branch": "_default", "plan": self.plan, "tasks": tasks}
        self.cycles.append(copy.deepcopy(cycle))
        self.plan = None

    @rule(topic=texts, issues=st.lists(texts, max_size=3), research=st.sampled_from(["", "Read it."]))
    def start(self, topic: str, issues: list[str], research: str) -> None:
        told = self.project.call("plan_start", topic=topic, issues=issues, research_summary=research)
        archived = self.plan is not None
        if archived:
            self.archive([])
        number = max([0, *(cycle["plan"]["id"] for cycle in self.cycles if cycle["plan"])]) + 1
        fresh = [{"id": n, "title": title, "status": "pending"} for n, title in enumerate(issues, 1)]
        self.plan = {"id": number, "topic": topic, "issues": fresh, "research_summary": research, "created_at": NOW}
        self.next_issue = len(issues) + 1
        assert told == {
            "created": True,
            "plan_id": number,
            "topic": topic,
            "issueCount": len(issues),
            "previousArchived": archived,
        }

    @rule(
        action=st.sampled_from(["add", "remove", "edit", "reopen", "merge"]),
        given=st.fixed_dictionaries({}, optional={"issue_id": ids, "title": texts}),
    )
    def update(self, action: str, given: Document) -> None:
        number, title = given.get("issue_id"), given.get("title")
        wrong = None
        if self.plan is None:
            wrong = "No active plan session"
        elif action == "merge":
            wrong = "Unknown action"
        elif action == "add" and title is None:
            wrong = "title is required for add"
        elif action == "edit" and (number is None or title is None):
            wrong = "issue_id and title are required for edit"
        elif action in ("remove", "reopen") and number is None:
            wrong = f"issue_id is required for {action}"
        elif action != "add" and self.issue(int(str(number))) is None:
            wrong = f"Issue {number} not found"
        if wrong:
            assert self.refusal("plan_update", action=action, **given) == wrong
            return
        assert self.plan is not None
        if action == "add":
            issue: Document = {"id": self.next_issue, "title": title, "status": "pending"}
            self.plan["issues"].append(issue)
            self.next_issue += 1
        else:
            found = self.issue(int(str(number)))
            assert found is not None
            issue = found
        if action == "remove":
            self.plan["issues"].remove(issue)
        elif action == "edit":
            issue["title"] = title
        elif action == "reopen":
            issue["status"] = "pending"
            for name in HOW:
                issue.pop(name, None)
        done = {"add": "added", "remove": "removed", "edit": "edited", "reopen": "reopened"}[action]
        assert self.project.call("plan_update", action=action, **given) == {done: True, "issue": issue}

    @rule(issue_id=ids, summary=texts, how=hows)
    def decide(self, issue_id: int, summary: str, how: Document) -> None:
        given = {"issue_id": issue_id, "summary": summary, **how}
        issue = self.issue(issue_id) if self.plan else None
        if self.plan is None or issue is None:
            wrong = f"Issue {issue_id} not found" if self.plan else "No active plan session"
            assert self.refusal("plan_decide", **given) == wrong
            return
        issue.update(status="decided", decision=summary, **how)
        told = self.project.call("plan_decide", **given)
        left = [
            {"id": each["id"], "title": each["title"], "status": "pending"}
            for each in self.plan["issues"]
            if each["status"] == "pending"
        ]
        assert (told.pop("message", None) is None) == bool(left)
        remaining = {"remaining": left} if left else {}
        assert told == {"decided": True, "issue": issue["title"], "allComplete": not left, **remaining}

    @rule(title=texts, deps=st.lists(ids, max_size=2), more=more_of_a_task, cycle=of_the_cycle)
    def add(self, title: str, deps: list[int], more: Document, cycle: Document) -> None:
        told = self.project.call("task_add", title=title, context="Why.", deps=deps, **more, **cycle)
        self.tasks = self.tasks or {"goal": "", "decisions": [], "tasks": []}
        number = max([0, *(task["id"] for task in self.tasks["tasks"])]) + 1
        task = {"id": number, "title": title, "context": "Why.", "status": "pending", "deps": deps, **more}
        task["created_at"] = NOW
        self.tasks["goal"] = cycle.get("goal", self.tasks["goal"])
        self.tasks["decisions"] += cycle.get("decisions", [])
        self.tasks["tasks"].append(task)
        assert told["task"] == task

    @rule(number=ids, status=statuses)
    def work(self, number: int, status: str) -> None:
        task = next((task for task in self.tasks["tasks"] if task["id"] == number), None) if self.tasks else None
        if task is None:
            wrong = f"Task id {number} not found" if self.tasks else "tasks.json not found"
            assert self.refusal("task_update", id=number, status=status) == wrong
            return
        self.begin(number, task["status"], status)
        task["status"] = status
        epoch = {"claim_epoch": self.epochs[number]} if status == "in_progress" else {}
        assert self.project.call("task_update", id=number, status=status) == {"task": task, **epoch}

    @rule()
    def close(self) -> None:
        told = self.project.call("task_close")
        plan, tasks = self.plan, self.tasks
        done = tasks["tasks"] if tasks else []
        decided = sum(issue["status"] == "decided" for issue in plan["issues"]) if plan else 0
        self.archive(done)
        self.tasks, self.epochs = None, {}
        assert told["archived"] == {"plan": bool(plan), "decisions": decided, "tasks": len(done)}
        assert told["deleted"] == ["plan.json"] * bool(plan) + ["tasks.json"] * bool(tasks)
        assert told["total_cycles"] == len(self.cycles)
        assert told["memoryHint"] == {
            "taskCount": len(done),
            "decisionCount": decided,
            "hadLoopDetection": False,
            "cycleTopics": [topic for topic in (plan and plan["topic"], tasks and tasks["goal"]) if topic],
        }

    @precondition(lambda self: self.tasks)
    @rule(number=st.integers(1, 9), status=statuses, drop=st.integers(0, 4))
    def another_consumer_edits_the_tasks(self, number: int, status: str, drop: int) -> None:
        assert self.tasks is not None
        before = {task["id"]: task["status"] for task in self.tasks["tasks"]}
        del self.tasks["tasks"][drop : drop + 1]
        if number not in [task["id"] for task in self.tasks["tasks"]]:
            other = {"id": number, "title": "Theirs", "context": "Why.", "status": status, "deps": []}
            self.tasks["tasks"].insert(0, other)
        self.project.write(TASKS, self.tasks)
        after = {task["id"]: task["status"] for task in self.tasks["tasks"]}
        self.epochs = {each: epoch for each, epoch in self.epochs.items() if each in after}
        for each, now in after.items():
            self.begin(each, before.get(each, "pending"), now)

    @precondition(lambda self: self.plan)
    @rule(number=st.integers(1, 9), title=texts)
    def another_consumer_edits_the_plan(self, number: int, title: str) -> None:
        assert self.plan is not None
        self.plan["issues"] = [issue for issue in self.plan["issues"] if issue["id"] != number]
        self.plan["issues"].insert(0, {"id": number, "title": title, "status": "decided", "decision": "Theirs."})
        self.next_issue = max(self.next_issue, number + 1)
        self.project.write(PLAN, self.plan)

    @rule(name=st.sampled_from([PLAN, TASKS]))
    def another_consumer_removes_a_file(self, name: str) -> None:
        (self.project.root / ".nexus" / name).unlink(missing_ok=True)
        if name == PLAN:
            self.plan = None
        else:
            self.tasks, self.epochs = None, {}

    @rule(query=st.none() | texts | st.sampled_from(["theirs", "how_agents"]), last_n=st.integers(1, 3))
    def search(self, query: str | None, last_n: int) -> None:
        asked = {} if query is None else {"query": query}
        if (query is not None and not query.isprintable()) or query == 'a "quote"':
            return  # how such a text stands in JSON is left open
        told = self.project.call("history_search", **asked, last_n=last_n)
        found = [
            cycle for cycle in self.cycles if (query or "").lower() in json.dumps(cycle, ensure_ascii=False).lower()
        ]
        assert (told["total"], told["showing"]) == (len(found), len(found[-last_n:]))
        assert [cycle.get("topic") for cycle in told["cycles"]] == [
            cycle["plan"] and cycle["plan"]["topic"] for cycle in found[-last_n:]
        ]

    @invariant()
    def it_tells_of_the_plan_what_the_contract_does(self) -> None:
        if self.plan is None:
            assert self.project.call("plan_status") == {"active": False}
            return
        decided = sum(issue["status"] == "decided" for issue in self.plan["issues"])
        total = len(self.plan["issues"])
        research = {name: self.plan[name] for name in ("research_summary",) if name in self.plan}
        assert self.project.call("plan_status") == {
            "active": True,
            "plan_id": self.plan["id"],
            "topic": self.plan["topic"],
            "issues": self.plan["issues"],
            **research,
            "summary": {"total": total, "pending": total - decided, "decided": decided},
        }

    @invariant()
    def it_tells_of_the_tasks_what_the_contract_does(self) -> None:
        if self.tasks is None:
            assert self.project.call("task_list") == {"exists": False}
            assert self.project.call("context") == {"branch": "_default", "activeMode": None, "decisions": []}
            return
        status = {task["id"]: task["status"] for task in self.tasks["tasks"]}
        counts = {each: list(status.values()).count(each) for each in ("pending", "in_progress", "completed")}
        ready = [
            task["id"]
            for task in self.tasks["tasks"]
            if task["status"] == "pending" and all(status.get(needed) == "completed" for needed in task["deps"])
        ]
        counted = {"total": len(status), "completed": counts["completed"], "pending": counts["pending"]}
        assert self.project.call("task_list") == {
            "goal": self.tasks["goal"],
            "tasks": self.tasks["tasks"],
            "summary": {**counted, "blocked": counts["in_progress"], "ready": ready},
        }
        assert self.project.call("context") == {
            "branch": "_default",
            "activeMode": "team",
            "goal": self.tasks["goal"],
            "tasksSummary": counted,
            "decisions": self.tasks["decisions"],
        }

    @invariant()
    def it_leaves_the_files_that_the_contract_has(self) -> None:
        assert self.project.read(PLAN) == self.plan
        assert self.project.read(TASKS) == self.tasks
        history = self.project.read(HISTORY)
        assert (history["cycles"] if history else []) == self.cycles


HOW_IT_WAS_DECIDED = {"how_agents": ["Oak"], "how_summary": {"Oak": "OAK"}, "how_agent_ids": {"Oak": "ümlaut"}}
HISTORIES: dict[str, list[tuple[Any, ...]]] = {
    "a plan": [
        *(("update", "add", {"title": "Oak"}), ("decide", 1, "Oak", {}), ("search", None, 3)),
        *(("start", "Oak", ["Oak", "ümlaut"], "Read it."), ("update", "add", {"title": "OAK"})),
        *(("update", action, {}) for action in ("add", "edit", "remove", "reopen", "merge")),
        *(("update", "edit", {"issue_id": 1}), ("update", "edit", {"title": "Oak"})),
        *(("update", action, {"issue_id": number, "title": "Oak"})
          for action in ("edit", "remove", "reopen") for number in (9, 0, -1)),
        *(("update", "edit", {"issue_id": 3, "title": "ümlaut"}), ("update", "remove", {"issue_id": 3})),
        *(("update", "add", {"title": "OAK"}), ("decide", 2, "Oak", HOW_IT_WAS_DECIDED), ("decide", 2, "OAK", {})),
        *(("decide", 1, "Oak", {}), ("decide", 4, "Oak", {}), ("decide", 3, "Oak", {})),
        *(("update", "reopen", {"issue_id": 2}), ("add", "Oak", [], {}, {}), ("start", "OAK", [], ""), ("close",)),
        *(("search", "theirs", 3), ("search", "oak", 1), ("start", "Oak", ["Oak"], "")),
    ],
    "tasks": [
        *(("work", 1, "pending"), ("add", "Oak", [], {}, {"goal": "Oak", "decisions": ["Oak"]})),
        ("work", 2, "pending"),
        ("add", "OAK", [1], {"approach": "Oak", "plan_issue": 1, "owner": "Oak", "owner_reuse_policy": "resume"}, {}),
        *(("add", "ümlaut", [1, 2], {}, {"goal": "OAK", "decisions": ["OAK"]}), ("add", "😀", [9], {}, {})),
        *(("work", 1, status) for status in ("completed", "pending", "in_progress", "completed", "in_progress")),
        *(("work", 1, "completed"), ("work", 2, "completed"), ("close",), ("close",), ("add", "Oak", [], {}, {})),
    ],
}  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize("history", HISTORIES)
def test_it_behaves_so_in_each_history_that_is_known_to_matter(history: str) -> None:
    machine = Contract()
    try:
        for step, *given in HISTORIES[history]:
            getattr(machine, step)(*given)
            machine.it_tells_of_the_plan_what_the_contract_does()
            machine.it_tells_of_the_tasks_what_the_contract_does()
            machine.it_leaves_the_files_that_the_contract_has()
    finally:
        machine.teardown()


@pytest.mark.hypothesis
@pytest.mark.django_db
def test_it_behaves_as_the_naive_model_of_the_contract_does() -> None:
    run_state_machine_as_test(
        Contract, settings=settings(max_examples=examples(15), stateful_step_count=25, deadline=None)
    )
