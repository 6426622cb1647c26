"""Tasks whose results are checked before they count: by Nexus, by a verifier, by an operator."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from coordination import debts
from coordination.toolset import run
from handoffs import check_runs
from handoffs.check_runs import MOST_SHOWN, CriterionResult, Facts
from handoffs.models import UNFINISHED, AbstractCheckRun, CheckState
from inbox.monitoring import Picture
from nexus.core.clock import now
from nexus.core.operations import dispatch
from nexus.planning import hook
from nexus.planning.attention import KINDS
from nexus.planning.models import Task, TaskCheckRun
from nexus.planning.toolset import PLANNING
from tests.conftest import LOCAL, OPERATOR, Call, at_once, examples
from tests.handoffs.conftest import mail_of
from tests.pages import shown
from tests.planning.conftest import Project

FILE = ["file:README.md"]
FACTS: Facts = {
    "directory": "/", "branch": None, "base": None, "commit": None, "uncommitted": False, "commits": 0, "subjects": [],
    "stat": "", "files": [], "cut": False, "untouched": [], "unreserved": [], "why": None,
}  # fmt: skip


def receipt(passed: bool) -> CriterionResult:
    return {
        "criterion": FILE[0], "passed": passed, "command": None, "code": None, "seconds": None, "output": None,
        "why": None if passed else "it does not exist",
    }  # fmt: skip


def take() -> AbstractCheckRun:
    """Take the run that waits, as a process that runs checks does."""
    taken = check_runs.claim(check_runs.name_of(check_runs.due(1)[0]))
    assert taken is not None
    return taken


def judge(passed: bool, taken: AbstractCheckRun | None = None) -> None:
    check_runs.settle_run(taken or take(), [receipt(passed)], FACTS)


def operates(nexus: Project, name: str, **arguments: Any) -> Any:
    return dispatch.run(PLANNING, OPERATOR, name, {"project_root": str(nexus.root), **arguments})


def status(nexus: Project, number: int = 1) -> str:
    """The status of a task, which its file says, too."""
    task: Any = nexus.call("task_list")["tasks"][number - 1]
    assert nexus.read("state/tasks.json")["tasks"][number - 1]["status"] == task["status"]
    return str(task["status"])


def needs() -> list[str]:
    kind = next(kind for kind in KINDS if kind.name == "submitted-tasks")
    return [item.detail for item in kind.find(Picture(now()), 10).needs]


def events() -> list[str]:
    from coordination.models import Event

    types = Event.objects.filter(type__startswith="task.").order_by("event_id").values_list("type", flat=True)
    return [each.removeprefix("task.") for each in types]


@pytest.fixture
def done(nexus: Project, team: None) -> Project:
    """A project whose task 1 bob submitted to its checks; task 2 depends on it."""
    nexus.task("Write", acceptance_criteria=FILE, agent="ana")
    nexus.task("Test", deps=[1])
    nexus.call("task_update", id=1, status="in_progress", agent="bob")
    answer = nexus.call("task_update", id=1, status="completed", agent="bob")
    assert (answer["task"]["status"], answer["submitted"]) == ("in_progress", True)
    return nexus


def test_it_is_completed_once_its_checks_passed(done: Project, call: Call) -> None:
    assert (status(done), done.call("task_list")["summary"]["ready"]) == ("in_progress", [])
    judge(True)
    assert (status(done), done.call("task_list")["summary"]["ready"]) == ("completed", [2])
    assert events()[-4:] == ["submitted", "checked", "completed", "ready"]
    assert "passed its checks" in mail_of(call, "bob")[-1]["body"]
    state = done.call("task_get", id=1)
    assert [run["state"] for run in state["checks"]] == ["passed"]
    assert state["task"]["acceptance_criteria"] == FILE and "submitted_at" not in state["task"]


def test_what_fails_goes_back_a_few_times_and_then_to_a_person(
    done: Project, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_runs, "RETURNS", 1)
    judge(False)
    body = mail_of(call, "bob")[-1]["body"]
    assert "file:README.md: it does not exist" in body and 'status="completed", claim_epoch=2)' in body
    assert "submitted_at" not in done.call("task_get", id=1)["task"]
    done.call("task_update", id=1, status="completed", claim_epoch=2, agent="bob")
    judge(False)
    assert done.call("task_get", id=1)["task"]["submitted_at"]
    assert needs() == ["bob says that it is done, and file:README.md failed"]
    assert status(done) == "in_progress"
    assert operates(done, "task_approve", id=1)["ok"]
    assert (status(done), done.call("task_list")["summary"]["ready"]) == ("completed", [2])


def test_a_verifier_decides_once_the_checks_passed(nexus: Project, call: Call, team: None) -> None:
    nexus.task("Write", acceptance_criteria=[*FILE, "It reads well."], agent="ana")
    nexus.call("task_update", id=1, status="completed", agent="bob")
    verdict: dict[str, Any] = {"id": 1, "agent_id": "ana", "verdict": "accept"}
    assert nexus.refused("task_review", **verdict) == ("INVALID_TRANSITION", "Its checks have not ended yet.")
    judge(True)
    assert "waits for your verdict" in mail_of(call, "ana")[-1]["subject"]
    for agent in ("bob", "cleo"):
        assert nexus.refused("task_review", **{**verdict, "agent_id": agent})[0] == "NOT_OWNER"
    assert nexus.refused("task_review", **{**verdict, "verdict": "return"})[0] == "VALIDATION_ERROR"
    nexus.call("task_review", **{**verdict, "verdict": "return"}, reasons="It does not.")
    assert "ana returned it: It does not." in mail_of(call, "bob")[-1]["body"]
    assert nexus.refused("task_review", **verdict)[0] == "INVALID_TRANSITION"
    nexus.call("task_update", id=1, status="completed", agent="bob")
    judge(True)
    nexus.call("task_review", **verdict)
    assert status(nexus) == "completed"
    assert events()[-3:] == ["checked", "accepted", "completed"]


def debts_of(agent_id: str) -> list[str]:
    """The keys of an agent's debts, as the hook finds them, too."""
    found = [debt.key for debt in debts.owed_by(agent_id)]
    if connection.vendor == "sqlite":
        connection.ensure_connection()
        assert [row[0] for row in connection.connection.execute(hook.OWED, {"agent": agent_id})] == found
    return found


@pytest.mark.parametrize("verifier", ["creator", {"agent_id": "cleo"}])
def test_one_agent_owes_its_verdict_on_a_task(nexus: Project, call: Call, team: None, verifier: Any) -> None:
    asked, other = ("ana", "cleo") if verifier == "creator" else ("cleo", "ana")
    nexus.task("Write", verifier=verifier, agent="ana")
    assert debts_of(asked) == []
    nexus.call("task_update", id=1, status="completed", agent="bob")
    [debt] = call("handoff_mine", agent_id=asked)["owes"]
    assert (debt["kind"], debt["what"], debt["to"]) == ("task_verdict", "Write", "bob")
    assert debts_of(asked) == [f"task_verdict {debt['id']}"] and debts_of(other) == debts_of("bob") == []
    nexus.call("task_review", id=1, agent_id=asked, verdict="accept")
    assert debts_of(asked) == []


def test_nobody_owes_a_verdict_on_its_own_task_or_as_one_of_a_role(nexus: Project, team: None) -> None:
    for number, verifier in enumerate(({"agent_id": "bob"}, {"role": "reviewer"}, "operator"), 1):
        nexus.task("Write", verifier=verifier, agent="ana")
        nexus.call("task_update", id=number, status="completed", agent="bob")
    assert [*debts.everything()] == [] and debts_of("bob") == []


def test_no_verdict_is_owed_before_the_checks_passed(done: Project) -> None:
    assert operates(done, "task_edit", id=2, acceptance_criteria=FILE, verifier={"agent_id": "cleo"})["ok"]
    judge(True)
    done.call("task_update", id=2, status="completed", agent="bob")
    assert debts.owed_by("cleo") == []
    judge(True)
    assert [debt.kind for debt in debts.owed_by("cleo")] == ["task_verdict"]


def test_nobody_verifies_work_of_its_own(nexus: Project, team: None) -> None:
    nexus.task("Write", verifier={"capability": "python"}, owner_agent_id="bob", agent="ana")
    nexus.call("task_update", id=1, status="completed")  # by a connection without a name: it is its owner's
    verdict: dict[str, Any] = {"id": 1, "verdict": "accept"}
    assert nexus.refused("task_review", agent_id="bob", **verdict)[0] == "NOT_OWNER"
    nexus.call("task_review", agent_id="cleo", **verdict)
    assert status(nexus) == "completed"


def test_it_needs_a_person_if_nobody_else_may_verify_it(nexus: Project, team: None) -> None:
    nexus.task("Write", verifier="operator")
    nexus.call("task_update", id=1, status="completed", agent="bob")
    assert needs() == ["bob says that it is done"]
    sent = operates(nexus, "task_send_back", id=1, reasons="No.", claim_epoch=1)
    assert sent["ok"] and needs() == [] and status(nexus) == "in_progress"
    assert operates(nexus, "task_send_back", id=1, reasons="No.", claim_epoch=1)["error"]["code"] == "STALE_CLAIM"


def test_only_operators_change_what_a_task_is_measured_by(done: Project) -> None:
    assert done.refused("task_edit", id=1, acceptance_criteria=None)[0] == "NOT_OWNER"
    refused = operates(done, "task_edit", id=1, acceptance_criteria=["check:rm"])
    assert "no reviewed check" in refused["error"]["message"]
    taken = take()
    assert operates(done, "task_edit", id=1, acceptance_criteria=["file:other"])["ok"]
    judge(True, taken)  # too late, and of other criteria
    assert (status(done), TaskCheckRun.objects.get(pk=taken.pk).state) == ("in_progress", CheckState.DROPPED)
    assert operates(done, "task_edit", id=1, acceptance_criteria=None)["ok"]
    assert status(done) == "completed"


@pytest.mark.parametrize("failed", [False, True])
def test_a_verdict_minds_the_checks_of_the_submission_alone(done: Project, failed: bool) -> None:
    if failed:
        judge(False)
        assert operates(done, "task_edit", id=1, acceptance_criteria=["Read"], verifier={"agent_id": "cleo"})["ok"]
        done.call("task_update", id=1, status="completed", agent="bob")
    else:
        assert operates(done, "task_edit", id=1, acceptance_criteria=["Read"], verifier={"agent_id": "cleo"})["ok"]
    epoch = done.call("task_get", id=1)["claim_epoch"]
    done.call("task_review", id=1, verdict="accept", claim_epoch=epoch, agent_id="cleo", agent="cleo")
    assert status(done) == "completed"


@pytest.mark.parametrize("end", ["pending", "in_progress", "close", "removed"])
def test_what_ends_its_claim_ends_its_checks(done: Project, end: str) -> None:
    taken = take()
    if end == "close":
        done.call("task_close")
    elif end == "removed":
        (done.root / ".nexus/state/tasks.json").unlink()
        assert done.call("task_list") == {"exists": False}
    else:
        done.call("task_update", id=1, status=end)
    assert not check_runs.renew(taken)
    judge(True, taken)
    assert Task.objects.get(number=1).status == ("pending" if end == "pending" else "in_progress")
    assert not TaskCheckRun.objects.filter(state__in=UNFINISHED).exists()


def test_what_was_released_counts_as_nobodys_result(done: Project) -> None:
    first = take()
    assert operates(done, "task_update", id=1, status="pending", claim_epoch=1)["ok"]
    judge(True, first)
    task = Task.objects.get(number=1)
    assert (task.status, task.submitted_at, task.submitted_by) == ("pending", None, None)


def test_a_file_that_calls_it_completed_submits_it(done: Project) -> None:
    judge(False)
    document = done.read("state/tasks.json")
    document["tasks"][0]["status"] = "completed"
    done.write("state/tasks.json", document)
    assert (status(done), done.call("task_list")["summary"]["ready"]) == ("in_progress", [])
    assert events().count("ready") == 1  # of the first task, when it was added
    judge(True)
    assert status(done) == "completed"


def test_a_task_that_leaves_its_file_and_comes_back_has_its_checks(done: Project) -> None:
    document, path = done.read("state/tasks.json"), done.root / ".nexus/state/tasks.json"
    path.unlink()
    done.call("task_list")
    document["tasks"][0]["status"] = "completed"
    done.write("state/tasks.json", document)
    assert status(done) == "in_progress"
    assert done.call("task_get", id=1)["task"]["acceptance_criteria"] == FILE
    judge(True)
    assert status(done) == "completed"


@pytest.mark.usefixtures("committed", "team")
def test_a_completed_handoff_submits_its_task(nexus: Project, call: Call) -> None:
    nexus.task("Write", acceptance_criteria=FILE)
    where = {"project_root": str(nexus.root)}
    offer = {"from_agent_id": "ana", "target": {"strategy": "broadcast"}, "visibility": "public"}
    at = {**where, "handoff_id": call("handoff_create", **where, **offer, task_id=1)["handoff_id"]}
    call("handoff_claim", **at, agent_id="bob")
    assert call("handoff_complete", **at, agent_id="bob")["status"] == "COMPLETED"
    assert status(nexus) == "in_progress"
    judge(False)
    assert "was returned to you" in mail_of(call, "bob")[-1]["subject"]
    nexus.call("task_update", id=1, status="completed", agent="bob")
    judge(True)
    assert nexus.read("state/tasks.json")["tasks"][0]["status"] == "completed"  # before any call of planning


def test_its_page_shows_the_receipts_and_takes_the_verdict(done: Project, browser: Client) -> None:
    task = Task.objects.get(number=1)
    judge(False)
    done.call("task_update", id=1, status="completed", agent="bob")
    address = reverse("admin:planning_task_change", args=[task.pk])
    page = shown(browser.get(address))
    assert "Being checked" in page and "it does not exist" in page and FILE[0] in page
    task.refresh_from_db()
    sent = {"do": "task_approve", "on": f"{task.pk}.{task.claim_epoch}", "next": address}
    assert "accepted" in shown(browser.post("/admin/act/", sent, follow=True))
    assert status(done) == "completed"


def test_of_many_results_the_newest_are_shown(done: Project, browser: Client) -> None:
    task, first = Task.objects.get(number=1), TaskCheckRun.objects.get()
    for number in range(MOST_SHOWN + 1):
        run = TaskCheckRun(task=task, claim_epoch=task.claim_epoch, why=f"result {number}", created_at=now())
        run.state, run.due_at = CheckState.DROPPED, now()
        run.save()
    data, address = done.call("task_get", id=1), reverse("admin:planning_task_change", args=[task.pk])
    assert [row["why"] for row in data["checks"]] == [f"result {number}" for number in range(1, MOST_SHOWN + 1)]
    assert data["checks_left_off"] == 2
    page = shown(browser.get(address))
    assert page.count("result ") == page.count("<h2>Checks</h2>") == MOST_SHOWN
    assert "The checks of 2 older results are not shown." in page
    out = StringIO()
    with pytest.raises(SystemExit, match="0"):
        call_command("tasks", "show", "1", "--project", str(done.root), stdout=out)
    said = out.getvalue()
    assert "2, not shown" in said and "checks 22 " in said and "checks 2 " not in said
    TaskCheckRun.objects.filter(pk__lte=first.pk + 1).delete()
    assert "checks_left_off" not in done.call("task_get", id=1)


@pytest.mark.usefixtures("committed", "team")
def test_of_completion_release_and_verdict_one_comes_last(nexus: Project) -> None:
    nexus.task("Write", acceptance_criteria=FILE)
    finished = 0
    for _ in range(3):
        nexus.call("task_update", id=1, status="in_progress", agent="bob")
        nexus.call("task_update", id=1, status="completed", agent="bob")
        epoch, taken = Task.objects.get(number=1).claim_epoch, take()

        calls: list[Callable[[], Any]] = [
            partial(judge, True, taken),
            partial(nexus.body, "task_update", id=1, status="pending", claim_epoch=epoch),
            partial(nexus.body, "task_update", id=1, status="completed", claim_epoch=epoch, agent="bob"),
        ]
        at_once(calls)

        task, ended = Task.objects.get(number=1), TaskCheckRun.objects.get(pk=taken.pk)
        going = TaskCheckRun.objects.filter(state__in=UNFINISHED)
        assert status(nexus) == task.status != "completed", "the release came before or after, and is not undone"
        assert (task.is_submitted, going.count()) in [(False, 0), (True, 1)], "completed anew, it is checked anew"
        assert ended.state in (CheckState.PASSED, CheckState.DROPPED)
        finished += ended.state == CheckState.PASSED
        assert events().count("completed") == finished
        nexus.call("task_update", id=1, status="pending")


class Checked(RuleBasedStateMachine):
    """A task with checks through random histories, with processes that are killed in the middle of them."""

    @initialize()
    def begin(self) -> None:
        self.transaction = transaction.atomic()
        self.transaction.__enter__()
        self.folder = tempfile.TemporaryDirectory()
        self.nexus = Project(Path(self.folder.name).resolve())
        for agent in ("ana", "bob"):
            assert run(LOCAL, "agent_register", {"agent_id": agent, "role": "coder"})["ok"]
        self.nexus.task("Write", acceptance_criteria=FILE, agent="ana")
        self.nexus.task("Test", deps=[1])
        self.status, self.submitted, self.failures = "pending", False, 0
        self.running: AbstractCheckRun | None = None
        self.killed: AbstractCheckRun | None = None  # until another process takes its run
        self.lost: list[AbstractCheckRun] = []

    def teardown(self) -> None:
        if hasattr(self, "transaction"):
            transaction.set_rollback(True)
            self.transaction.__exit__(None, None, None)
            self.folder.cleanup()

    def leave(self) -> None:
        self.lost += [run for run in (self.running, self.killed) if run]
        self.running = self.killed = None

    @rule(wanted=st.sampled_from(["pending", "in_progress", "completed"]))
    def update(self, wanted: str) -> None:
        self.nexus.call("task_update", id=1, status=wanted, agent="bob")
        if wanted == "completed":
            self.submitted = self.status != "completed"
            self.status = "in_progress" if self.submitted else "completed"
        else:
            self.leave()
            self.status, self.submitted = wanted, False

    @precondition(lambda self: self.submitted and self.running is None)
    @rule()
    def take(self) -> None:
        if self.failed_too_often:
            assert check_runs.due(1) == []
        else:
            self.leave()
            self.running = take()

    @property
    def failed_too_often(self) -> bool:
        last = TaskCheckRun.objects.order_by("-pk").first()
        return last is not None and last.state == CheckState.FAILED

    @precondition(lambda self: self.running is not None)
    @rule()
    def kill(self) -> None:
        """The process is gone: the run is due again once its lease ended."""
        self.killed, self.running = self.running, None
        TaskCheckRun.objects.filter(state=CheckState.RUNNING).update(due_at=now())

    @precondition(lambda self: self.running is not None)
    @rule(passed=st.booleans())
    def verdict(self, passed: bool) -> None:
        assert self.running is not None
        judge(passed, self.running)
        self.lost.append(self.running)
        self.running = None
        self.failures += not passed
        if passed:
            self.status, self.submitted = "completed", False
        elif self.failures <= 3:
            self.submitted = False

    @precondition(lambda self: self.lost)
    @rule(data=st.data(), passed=st.booleans())
    def late_verdict(self, data: st.DataObject, passed: bool) -> None:
        """Of a process that lost its run: it changes nothing."""
        late = data.draw(st.sampled_from(self.lost))
        assert not check_runs.renew(late)
        judge(passed, late)
        check_runs.put_off(late, "late")

    @precondition(lambda self: self.submitted)
    @rule(accepts=st.booleans())
    def operator(self, accepts: bool) -> None:
        self.leave()
        more = {} if accepts else {"reasons": "No."}
        assert operates(self.nexus, "task_approve" if accepts else "task_send_back", id=1, **more)["ok"]
        self.submitted, self.status = False, "completed" if accepts else "in_progress"

    @invariant()
    def it_is_as_the_model_says(self) -> None:
        if not hasattr(self, "status"):
            return
        assert status(self.nexus) == self.status
        task = Task.objects.get(number=1)
        assert task.is_submitted == self.submitted
        ready = self.nexus.call("task_list")["summary"]["ready"]
        assert (2 in ready) == (self.status == "completed"), "a dependent waits for the checks"
        going = TaskCheckRun.objects.filter(state__in=UNFINISHED).count()
        assert going == (self.submitted and not self.failed_too_often)


def test_its_life_is_as_the_model_says(db: None) -> None:
    run_state_machine_as_test(Checked, settings=settings(max_examples=examples(40), stateful_step_count=25))
