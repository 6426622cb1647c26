"""Tasks in progress with an agent that is gone need a person."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import time_machine
from django.test import Client

from inbox.monitoring import Picture
from nexus.core.apps import needs
from nexus.core.clock import now
from nexus.core.contributions import AttentionItem
from nexus.core.operations import dispatch
from nexus.planning.models import Task
from nexus.planning.toolset import PLANNING
from tests.conftest import OPERATOR, Call, does
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
        assert f"/admin/planning/task/{task.task_key}/change/" in page
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
        release = {"do": f"task_update {need.subject}", "asked": "1", "next": "/admin/"}
        assert f'value="task_update {need.subject}"' in browser.get("/admin/attention/").text
        task = Task.objects.get()
        for status in ("pending", "in_progress"):  # another agent begins it
            nexus.call("task_update", id=task.number, status=status)
        assert "STALE_CLAIM" in browser.post("/admin/act/", release, follow=True).text
        release |= {"do": f"task_update {task.task_key}.{task.claim_epoch + 1}"}
        assert "“Read the log” was released" in browser.post("/admin/act/", release, follow=True).text
        assert Task.objects.get().status == "pending" and left() == []


def test_what_names_no_task_is_refused(nexus: Project, team: None) -> None:
    browser = Client(headers={"host": "127.0.0.1:8420"})
    for subject in ("tsk_gone.1", "x", ".", "tsk_gone." + "9" * 400):
        page = browser.post(
            "/admin/act/",
            {"do": "task_update", "on": subject, "asked": "1", "next": "/admin/"},
            follow=True,
        )
        assert page.status_code == 200 and "was not released" in page.text


def operates(nexus: Project, tool: str, **arguments: Any) -> dict[str, Any]:
    """The answer to an operator's call about task 1."""
    return dispatch.run(PLANNING, OPERATOR, tool, {"project_root": str(nexus.root), "id": 1, **arguments})


def released(nexus: Project) -> Task:
    """A task of bob's that an operator released."""
    begun(nexus, "bob")
    operates(nexus, "task_update", status="pending", claim_epoch=1)
    return Task.objects.get()
