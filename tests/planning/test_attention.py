"""Tasks in progress with an agent that is gone need a person."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import time_machine
from django.test import Client

from inbox.monitoring import Picture
from nexus.core.apps import needs
from nexus.core.clock import now
from nexus.core.contributions import AttentionItem
from nexus.core.operations import runner
from nexus.planning.models import Task
from nexus.planning.toolset import PLANNING
from tests.conftest import OPERATOR, Call, at_once, does
from tests.planning.conftest import Project

LATER = timedelta(hours=2)


def left() -> list[AttentionItem]:
    found = {kind.name: these for kind, these in needs(Picture(now()), 3)}
    return list(found["left-tasks"].needs) if "left-tasks" in found else []


def begun(nexus: Project, owner: str) -> None:
    nexus.call("task_update", id=nexus.task("Read the log", owner=owner)["id"], status="in_progress")


def test_it_tells_of_a_task_whose_owner_is_gone(nexus: Project, team: None) -> None:
    begun(nexus, "bob")
    task = Task.objects.get()
    assert left() == []  # it may come back
    with time_machine.travel(now() + LATER, tick=False):
        [need] = left()
        assert (need.title, need.page_of, need.since) == ("Read the log", task.task_key, task.updated_at)
        assert need.detail == "bob has it in progress and is gone"
        page = Client(headers={"host": "127.0.0.1:8420"}).get("/admin/attention/").text
        assert f"/admin/plan/tasks/{task.task_key}/" in page
        nexus.call("task_update", id=task.number, status="pending")
        assert left() == []


def test_it_is_silent_while_the_owner_is_there(nexus: Project, team: None, call: Call) -> None:
    begun(nexus, "bob")
    with time_machine.travel(now() + LATER, tick=False):
        workspace = call("workspace_resolve", project_root=str(nexus.root))["workspace_id"]
        call("session_open", agent_id="bob", workspace_id=workspace)
        assert left() == []


def test_it_is_silent_about_an_owner_that_no_agent_is(nexus: Project, team: None) -> None:
    begun(nexus, "engineer")  # whom a client starts for a task, and Nexus does not know
    with time_machine.travel(now() + LATER, tick=False):
        assert left() == []


def test_it_tells_of_a_task_whose_owner_was_deleted(nexus: Project, team: None) -> None:
    begun(nexus, "bob")
    assert does("agent_delete", agent_id="bob")["ok"]
    with time_machine.travel(now() + LATER, tick=False):
        assert [need.detail for need in left()] == ["bob has it in progress and is gone"]


def test_an_operator_releases_it_right_there_unless_another_agent_began_it(nexus: Project, team: None) -> None:
    begun(nexus, "bob")
    browser = Client(headers={"host": "127.0.0.1:8420"})
    with time_machine.travel(now() + LATER, tick=False):
        [need] = left()
        release = {"do": f"task_update {need.subject}", "next": "/admin/"}
        assert f'value="task_update {need.subject}"' in browser.get("/admin/attention/").text
        task = Task.objects.get()
        for status in ("pending", "in_progress"):  # another agent begins it
            nexus.call("task_update", id=task.number, status=status)
        assert "STALE_CLAIM" in browser.post("/admin/act/", release, follow=True).text
        release = {"do": f"task_update {task.task_key}.{task.claim_epoch + 1}", "next": "/admin/"}
        assert "“Read the log” was released" in browser.post("/admin/act/", release, follow=True).text
        assert Task.objects.get().status == "pending" and left() == []


def test_what_names_no_task_is_refused(nexus: Project, team: None) -> None:
    browser = Client(headers={"host": "127.0.0.1:8420"})
    for subject in ("tsk_gone.1", "x", ".", "tsk_gone." + "9" * 400):
        page = browser.post("/admin/act/", {"do": "task_update", "on": subject, "next": "/admin/"}, follow=True)
        assert page.status_code == 200 and "was not released" in page.text


def operates(nexus: Project, tool: str, **arguments: Any) -> dict[str, Any]:
    """The answer to an operator's call about task 1."""
    return runner.run(PLANNING, OPERATOR, tool, {"project_root": str(nexus.root), "id": 1, **arguments})


def released(nexus: Project) -> Task:
    """A task of bob's that an operator released."""
    begun(nexus, "bob")
    operates(nexus, "task_update", status="pending", claim_epoch=1)
    return Task.objects.get()


def undo(nexus: Project) -> dict[str, Any]:
    return operates(nexus, "task_release_undo", claim_epoch=1)


def test_an_operator_takes_a_release_back_right_there(nexus: Project, team: None, call: Call) -> None:
    begun(nexus, "bob")
    browser = Client(headers={"host": "127.0.0.1:8420"})
    subject = f"{Task.objects.get().task_key}.1"
    page = browser.post("/admin/act/", {"do": f"task_update {subject}", "next": "/admin/"}, follow=True).text
    assert 'value="task_release_undo"' in page and f'value="{subject}"' in page
    page = browser.post("/admin/act/", {"do": "task_release_undo", "on": subject, "next": "/admin/"}, follow=True).text
    assert "“Read the log” was given back to whom it was taken from" in page
    task = Task.objects.get()
    assert (task.status, task.claim_epoch) == ("in_progress", 1)  # the claim that bob knows
    assert call("inbox_peek", agent_id="bob")["messages"][-1]["subject"] == "Task 1 is yours again: Read the log"
    nexus.call("task_update", id=1, status="completed", claim_epoch=1)
    assert nexus.read("state/tasks.json")["tasks"][0]["status"] == "completed"


def test_a_release_is_taken_back_within_a_minute_and_once(nexus: Project, team: None) -> None:
    task = released(nexus)
    with time_machine.travel(task.updated_at + timedelta(seconds=61), tick=False):
        assert undo(nexus)["error"]["code"] == "INVALID_TRANSITION"
    with time_machine.travel(task.updated_at + timedelta(seconds=60), tick=False):
        assert undo(nexus)["ok"]
        assert undo(nexus)["error"]["code"] == "INVALID_TRANSITION"


def test_a_release_of_a_task_that_was_never_begun_is_none(nexus: Project, team: None) -> None:
    nexus.task("Read the log")
    assert operates(nexus, "task_release_undo", claim_epoch=0)["error"]["code"] == "VALIDATION_ERROR"


@pytest.mark.usefixtures("committed")
def test_who_begins_a_released_task_keeps_it(nexus: Project, team: None) -> None:
    nexus.task("Read the log", owner="bob")
    for _ in range(5):
        epoch = nexus.call("task_update", id=1, status="in_progress")["claim_epoch"]
        nexus.call("task_update", id=1, status="pending")
        back, _ = at_once(
            [
                partial(operates, nexus, "task_release_undo", claim_epoch=epoch),
                partial(nexus.body, "task_update", agent="cleo", id=1, status="in_progress"),
            ]
        )
        task = Task.objects.get()
        assert task.status == "in_progress"
        assert task.claim_epoch == (epoch if back["ok"] else epoch + 1)
        assert back["ok"] or back["error"]["code"] == "STALE_CLAIM"
        nexus.call("task_update", id=1, status="completed")
