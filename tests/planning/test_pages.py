"""The pages of plans, tasks and closed cycles."""

from __future__ import annotations

import re
import shutil
from concurrent.futures import Future
from typing import Any

import pytest
from django.db import connection
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext

from coordination.models import Event, Workspace
from nexus.core.operations import dispatch, outside
from nexus.planning.models import Cycle, Issue, Plan, Task
from nexus.planning.toolset import PLANNING
from tests.conftest import OPERATOR
from tests.pages import do, shown
from tests.planning.conftest import Project

HOSTILE = "<script>alert(1)</script> \u202etxt {{ 7*7 }}"
MEGABYTE = "x" * (1 << 20)


@pytest.fixture
def project(nexus: Project) -> Project:
    """A plan with one decision, and three tasks in a row."""
    nexus.plan("Which grammar?", "Which cache?")
    nexus.call(
        "plan_decide", issue_id=1, summary="PEG, **because** it is short.", how_agents=["architect"],
        how_summary={"architect": "Fewer rules"}, how_agent_ids={"architect": "a-7"},
    )  # fmt: skip
    nexus.task("Write the grammar", owner="engineer")
    nexus.task("Write the reader", deps=[1])
    nexus.task("Test both", deps=[1, 2])
    return nexus


def place() -> str:
    return Workspace.objects.get().pk


def page(browser: Browser, path: str = "") -> str:
    answer = browser.get(f"/admin/plan/{path or f'?workspace={place()}'}", follow=True)
    assert answer.status_code == 200
    return shown(answer)


def issue(number: int) -> Issue:
    return Issue.objects.get(number=number)


def task(number: int) -> Task:
    return Task.objects.get(number=number, closed_at=None)


def column(text: str, state: str) -> str:
    """What a column of the board shows."""
    return text.split(f'aria-labelledby="column-{state}"')[1].split("</section>")[0]


def send(browser: Browser, path: str, **form: Any) -> str:
    """A form is sent; the page that the person comes to."""
    answer = browser.post(f"/admin/plan/{path}", form, follow=True)
    assert answer.status_code == 200
    return shown(answer)


def task_page(browser: Browser, key: str) -> str:
    return shown(browser.get(f"/admin/planning/task/{key}/change/"))


def give(browser: Browser, row: Task, status: str) -> str:
    """The page of a task after an operator gave it another status."""
    on, back = f"{row.pk}.{row.claim_epoch}", f"/admin/planning/task/{row.pk}/change/"
    do = {"pending": "task_update", "in_progress": "task_update:begin", "completed": "task_update:complete"}[status]
    form = {"do": do, "on": on, "asked": "1", "next": back}
    return shown(browser.post("/admin/act/", form, follow=True))


# What the plan's page shows


def test_it_lists_the_workspaces_where_something_is_planned(project: Project, browser: Browser) -> None:
    text = page(browser, "?workspace=")
    row = re.sub(r"<[^>]*>", " ", text.split("<tbody>")[1].split("</tbody>")[0]).split()
    assert "Parser" in row and row[-3:] == ["1", "3", "0"] and f"?workspace={place()}" in text


def test_it_says_so_where_nothing_is_planned(nexus: Project, browser: Browser) -> None:
    assert "No plan yet, and no project" in page(browser, "?workspace=")
    do("workspace_resolve", project_root=str(nexus.root))
    assert "make them" in page(browser, "?workspace=")
    text = page(browser)
    assert "No plan is being made here" in text and "No task yet" in text
    assert not (nexus.root / ".nexus").exists()


def test_it_shows_issues_with_decision_and_who_was_asked(project: Project, browser: Browser) -> None:
    project.call("plan_decide", agent="ann", issue_id=2, summary="None.")
    text = page(browser)
    assert "2 of 2 decided" in text and "<strong>because</strong>" in text and "Fewer rules" in text
    assert re.search(r"decided by <bdi[^>]*>ann</bdi>", text) and "Read it." in text


def test_it_shows_tasks_by_state_and_what_keeps_them(project: Project, browser: Browser) -> None:
    text = page(browser)
    assert "Write the grammar" in column(text, "ready") and "for <bdi" in column(text, "ready")
    assert "waits for 1, 2" in column(text, "pending")
    project.call("task_update", id=1, status="in_progress")
    project.call("task_update", id=2, status="completed")
    text = page(browser)
    assert "Write the grammar" in column(text, "in_progress") and "Write the reader" in column(text, "completed")
    assert "waits for 1<" in column(text, "pending").replace(" <", "<")


def test_it_says_what_keeps_a_task_from_ever_beginning(project: Project, browser: Browser) -> None:
    project.task("Four", deps=[5])
    project.task("Five", deps=[4])
    project.task("Six", deps=[99])
    waiting = column(page(browser), "pending")
    assert waiting.count("in or behind a circle") == 2
    assert "waits for 99, which there is not" in " ".join(waiting.split())
    project.call("task_update", id=5, status="completed")
    assert "in or behind a circle" not in page(browser)


def test_it_shows_who_holds_a_task_by_which_handoff(project: Project, browser: Browser) -> None:
    for agent in ("planner", "ann"):
        do("agent_register", agent_id=agent)
    root = {"project_root": str(project.root)}
    handoff = do(
        "handoff_create", **root, from_agent_id="planner", target={"strategy": "broadcast"}, visibility="public",
        payload="x", task_id=1,
    )["handoff_id"]  # fmt: skip
    do("handoff_claim", **root, handoff_id=handoff, agent_id="ann")
    assert re.search(r"held by <bdi[^>]*>ann</bdi>", column(page(browser), "in_progress"))
    assert f"/admin/handoffs/handoff/{handoff}/change/" in task_page(browser, task(1).pk)


@pytest.mark.parametrize("harm", ["invalid", "gone", "link"])
def test_it_shows_the_rows_and_what_is_wrong_where_the_files_cannot_be_read(
    project: Project, browser: Browser, harm: str
) -> None:
    code = (
        "STATE_FILE_INVALID" if harm == "invalid" else "WORKSPACE_UNRESOLVED" if harm == "gone" else "STATE_UNAVAILABLE"
    )
    key = task(1).pk
    if harm == "invalid":
        project.write("state/tasks.json", '{"goal": 7}')
    else:
        shutil.rmtree(project.root / ".nexus" if harm == "link" else project.root)
    if harm == "link":
        (project.root / ".nexus").symlink_to(project.root.parent)
    for text in (page(browser), task_page(browser, key)):
        assert "Write the grammar" in text and code in text and "files cannot be read" in text
    assert code in give(browser, Task.objects.get(pk=key), "completed")
    assert Task.objects.get(pk=key).status == "pending"


def test_it_does_not_wait_for_a_directory_that_did_not_answer(project: Project, browser: Browser) -> None:
    outside._silent[str(project.root)] = Future()
    try:
        text = page(browser)
        assert "Write the grammar" in text and "does not answer" in text
        assert "does not answer" in send(browser, f"issues/{issue(2).pk}/", summary="x")
    finally:
        outside._silent.clear()
    assert issue(2).decision is None


@pytest.mark.usefixtures("counted_alone")
def test_it_asks_no_more_queries_of_more_tasks(project: Project, browser: Browser) -> None:
    few = asked(browser)
    for number in range(10):
        project.task(f"More {number}", deps=[number])
    assert asked(browser) == few


def asked(browser: Browser) -> int:
    """How many queries of plans and handoffs the page makes."""
    with CaptureQueriesContext(connection) as queries:
        page(browser)
    return sum("plan" in query["sql"] or "handoffs" in query["sql"] for query in queries)


# Deciding


def acted() -> list[str]:
    """The operations that the log says operators did, in order."""
    return [event.payload["operation"] for event in Event.objects.filter(type="operator.acted").order_by("event_id")]


def test_it_decides_an_issue_as_the_operator_and_notes_who_did(project: Project, browser: Browser) -> None:
    text = send(browser, f"issues/{issue(2).pk}/", summary="The **digest**.")
    assert "The issue is decided." in text and "<strong>digest</strong>" in text
    assert re.search(r"decided by <bdi[^>]*>operator</bdi>", text)
    assert project.read("state/plan.json")["issues"][1]["decision"] == "The **digest**."
    assert acted() == ["plan_decide"]
    send(browser, f"issues/{issue(2).pk}/", summary="The **digest**.")
    assert Issue.objects.filter(status="decided").count() == 2


def test_it_shows_an_issue_with_those_who_were_asked_and_its_tasks(project: Project, browser: Browser) -> None:
    project.task("From it", plan_issue=1)
    text = page(browser, f"issues/{issue(1).pk}/")
    assert "Fewer rules" in text and "a-7" in text and "From it" in text and "Decide again" in text


def test_it_shows_what_roles_found_about_an_issue(project: Project, browser: Browser) -> None:
    plan = project.read("state/plan.json")
    plan["issues"][1]["analysis"] = [{"role": "tester", "summary": f"It is slow. {HOSTILE}"}]
    project.write("state/plan.json", plan)
    for path in (f"?workspace={place()}", f"issues/{issue(2).pk}/"):
        text = browser.get(f"/admin/plan/{path}").content.decode()
        assert "tester" in text and "It is slow. &lt;script&gt;alert" in text and "<script>alert" not in text


def test_it_reopens_an_issue(project: Project, browser: Browser) -> None:
    reopen = {"do": f"plan_update {issue(1).pk}"}
    assert "Which grammar?" in shown(browser.post("/admin/act/", reopen, follow=True))
    assert issue(1).decision is not None, "asked first"
    assert "was reopened" in shown(browser.post("/admin/act/", {**reopen, "asked": "1"}, follow=True))
    assert issue(1).decision is None and "how_agents" not in project.read("state/plan.json")["issues"][0]
    assert acted() == ["plan_update"]


def test_it_closes_the_cycle_after_asking_and_once(project: Project, browser: Browser) -> None:
    form = page(browser, f"{place()}/close/")
    assert "1 issue not decided" in form and "3 are not completed" in form
    seen = re.search(r'name="seen" value="([^"]+)"', form)
    assert seen and Cycle.objects.count() == 0
    assert "The cycle is closed." in send(browser, f"{place()}/close/", seen=seen[1])
    assert "has changed since" in send(browser, f"{place()}/close/", seen=seen[1])
    assert Cycle.objects.count() == 1 and not Plan.objects.exists() and acted() == ["task_close"]


# Tasks


def run_edit(project: Project, **arguments: Any) -> dict[str, Any]:
    """An operator's edit of a task beside the pages."""
    return dispatch.run(PLANNING, OPERATOR, "task_edit", {"project_root": str(project.root), **arguments})


def test_it_lets_operators_alone_edit_tasks(project: Project) -> None:
    assert project.refused("task_edit", id=1, title="x")[0] == "NOT_OWNER"
    assert run_edit(project, id=9, title="x")["error"]["message"] == "Task id 9 not found"
    assert run_edit(project, id=1, title=None, owner=None)["data"]["task"]["title"] == "Write the grammar"
    assert task(1).owner is None


def test_it_tells_the_new_owner_of_a_ready_task_and_the_holder_of_a_change(project: Project) -> None:
    for agent in ("ann", "bob"):
        do("agent_register", agent_id=agent)
    run_edit(project, id=1, owner="ann")
    assert [row["subject"] for row in do("inbox_pull", agent_id="ann")["messages"]] == [
        "Task 1 is ready: Write the grammar"
    ]
    Task.objects.filter(number=2).update(held_by="bob")
    run_edit(project, id=2, deps=[])
    subjects = [row["subject"] for row in do("inbox_pull", agent_id="bob")["messages"]]
    assert subjects == ["Your task 2 was changed (deps): Write the reader"]
    ready = Event.objects.filter(type="task.ready").values_list("payload", flat=True)
    assert 2 in [payload["task_id"] for payload in ready]


def test_it_gives_a_task_another_status(project: Project, browser: Browser) -> None:
    assert "“Write the grammar” was completed" in give(browser, task(1), "completed")
    assert project.read("state/tasks.json")["tasks"][0]["status"] == "completed"
    assert "Write the reader" in column(page(browser), "ready")
    give(browser, task(1), "pending")
    assert task(1).status == "pending"
    give(browser, task(1), "in_progress")
    assert task(1).status == "in_progress"
    offered = re.findall('value="(task_[a-z_:]+) ', task_page(browser, task(1).pk))
    assert offered == ["task_update:complete", "task_update"]


def test_it_shows_a_task_of_a_closed_cycle_without_forms(project: Project, browser: Browser) -> None:
    key = task(1).pk
    project.call("task_close")
    text = task_page(browser, key)
    assert "it can no longer be changed" in text and "Completed" not in text
    project.task("Another of that number")
    assert "task_update" not in text
    assert "was not completed" in give(browser, Task.objects.get(pk=key), "completed")
    assert (task(1).title, task(1).status) == ("Another of that number", "pending")


# Every form, with what its operation refuses and with what it must not run


def forms(project: Project) -> list[tuple[str, str]]:
    """Each form's path and a field of it that takes text."""
    return [
        (f"issues/{issue(2).pk}/", "summary"),
        (f"{place()}/comment/", "text"),
    ]


FILLED = {"summary": "S", "text": "T"}


def state() -> list[Any]:
    return [list(model.objects.order_by("pk").values()) for model in (Plan, Issue, Task, Cycle)]


def test_it_takes_no_form_that_is_empty(project: Project, browser: Browser) -> None:
    before = state()
    for path in dict.fromkeys(path for path, _ in forms(project)):
        assert 'role="alert"' in send(browser, path), path
    assert state() == before


def test_it_takes_no_form_with_a_megabyte(project: Project, browser: Browser) -> None:
    before = state()
    for path, field in forms(project):
        text = send(browser, path, **{**FILLED, field: MEGABYTE})
        assert 'role="alert"' in text or "CONTENT_TOO_LARGE" in text, (path, field)
    assert state() == before


def test_it_runs_nothing_of_what_is_typed_and_shows_it_as_text(project: Project, browser: Browser) -> None:
    for path, field in forms(project):
        answer = browser.post(f"/admin/plan/{path}", {**FILLED, field: HOSTILE}, follow=True)
        assert answer.status_code == 200 and "<script>alert" not in answer.content.decode(), path
    for path in (
        "",
        "?workspace=",
        f"{place()}/close/",
        *(f"../planning/task/{row.pk}/change/" for row in Task.objects.all()),
    ):
        answer = browser.get(f"/admin/plan/{path or f'?workspace={place()}'}")
        text = re.sub(r"<textarea.*?</textarea>|<input[^>]*>", "", answer.content.decode(), flags=re.DOTALL)
        assert "<script>alert" not in answer.content.decode() and "\u202e" not in text, path


def test_it_answers_a_form_about_what_is_gone_with_not_found(project: Project, browser: Browser) -> None:
    for path in (
        "issues/999/",
        "none/comment/",
    ):
        assert browser.post(f"/admin/plan/{path}", {}).status_code == 404, path


# History and search


def close(project: Project, topic: str, *tasks: str) -> None:
    project.call("plan_start", topic=topic, issues=["Why?"], research_summary="")
    project.call("plan_decide", issue_id=1, summary=f"For {topic}.")
    for title in tasks:
        project.task(title, deps=[1] if title != tasks[0] else [])
    project.call("task_close")


def cycles(browser: Browser, query: str = "") -> str:
    """The list of closed cycles."""
    return shown(browser.get(f"/admin/planning/cycle/{query}"))


def test_it_finds_cycles_by_any_words_of_them(nexus: Project, browser: Browser) -> None:
    close(nexus, "Alpha", "Write the lexer")
    close(nexus, "Beta", "Write the ÜBERSICHT")
    text = cycles(browser)
    assert text.index("Beta") < text.index("Alpha")
    text = cycles(browser, "?q=the+Übersicht")
    assert "Beta" in text and "Alpha" not in text
    assert "Alpha" not in cycles(browser, "?q=nowhere")
    here = f"?workspace={place()}"
    assert "Alpha" in cycles(browser, here) and here in page(browser)


def test_it_shows_a_cycle_with_decisions_tasks_and_branch(project: Project, browser: Browser) -> None:
    project.call("task_update", id=1, status="completed")
    project.call("task_close")
    text = shown(browser.get(f"/admin/planning/cycle/{Cycle.objects.get().pk}/change/"))
    assert "<strong>because</strong>" in text and "Fewer rules" in text and "_default" in text
    assert "1 of 3 completed" in text and 'id="task-2"' in text and "after 1, 2" in text


def test_it_shows_a_foreign_cycle_whose_times_are_none(nexus: Project, browser: Browser) -> None:
    for when in (HOSTILE, "0001-01-01T00:00:00+14:00", ""):
        nexus.write("history.json", {"cycles": [
            {"completed_at": when, "branch": HOSTILE, "plan": None,
             "tasks": [{"id": 1, "title": HOSTILE, "context": HOSTILE, "status": "pending", "deps": [1, 7]}]}
        ]})  # fmt: skip
        nexus.call("plan_status")
        for path in ("planning/cycle/", f"planning/cycle/{Cycle.objects.get(position=1).pk}/change/"):
            answer = browser.get(f"/admin/{path}")
            assert answer.status_code == 200 and "<script>alert" not in answer.content.decode()


def test_it_finds_tasks_and_cycles_from_anywhere(project: Project, browser: Browser) -> None:
    for path in ("/admin/find/?q=reader", "/admin/search/?s=reader&extended=1"):
        assert f"/admin/planning/task/{task(2).pk}/change/" in shown(browser.get(path))
    project.call("task_close")
    for path in ("/admin/find/?q=because", "/admin/search/?s=because&extended=1"):
        assert f"/admin/planning/cycle/{Cycle.objects.get().pk}/change/" in shown(browser.get(path))


def test_it_leads_from_an_event_to_the_plan(project: Project, browser: Browser) -> None:
    event = Event.objects.filter(type="task.added").latest("event_id")
    text = shown(browser.get(f"/admin/coordination/event/{event.pk}/change/"))
    assert f"/admin/plan/?workspace={place()}" in text
    assert f"/admin/plan/?workspace={place()}" in shown(browser.get("/admin/coordination/event/?stream=planning"))


def test_it_keeps_tasks_and_cycles_as_records(project: Project, browser: Browser) -> None:
    project.call("task_close")
    assert f"/admin/planning/cycle/{Cycle.objects.get().pk}/change/" in cycles(browser, "?q=pars")
    project.task("Of the next cycle")
    rest = f"workspace={place()}&closed_at__isempty=1"
    text = shown(browser.get(f"/admin/planning/task/?{rest}"))
    assert "Of the next cycle" in text and "Write the grammar" not in text
    assert f"/admin/plan/?workspace={place()}" in shown(browser.get(f"/admin/coordination/workspace/{place()}/change/"))
