"""Handoffs that carry tasks: claiming starts one, completing completes it, all in the handoff's transaction."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pytest
import time_machine
from asgiref.sync import sync_to_async
from time_machine import Traveller

from coordination.toolset import arun
from handoffs import selectors
from nexus.planning import mirror
from tests.conftest import LOCAL, Call
from tests.core.waiting import LONG
from tests.planning.conftest import Project

pytestmark = pytest.mark.usefixtures("team")
ANYBODY = {"strategy": "broadcast"}


@pytest.fixture
def clock() -> Iterator[Traveller]:
    """Noon, standing still until the test moves it."""
    with time_machine.travel(datetime(2026, 3, 1, 12, tzinfo=UTC), tick=False) as clock:
        yield clock


@pytest.fixture
def offer(call: Call, nexus: Project) -> Any:
    """Offer a handoff, as ana, to anybody."""

    def create(**more: Any) -> str:
        given = {"project_root": str(nexus.root), "from_agent_id": "ana", "target": ANYBODY, "visibility": "public"}
        created: str = call("handoff_create", **{**given, **more})["handoff_id"]
        return created

    return create


def state(nexus: Project, number: int = 1) -> tuple[str, str | None]:
    """Status and holder of a task, and that its file says the same."""
    task = nexus.call("task_list")["tasks"][number - 1]
    assert nexus.read("state/tasks.json")["tasks"][number - 1]["status"] == task["status"]
    return task["status"], task.get("held_by")


@pytest.mark.usefixtures("committed")
def test_it_follows_the_life_of_its_handoff(nexus: Project, call: Call, offer: Any) -> None:
    nexus.task("Write")
    handoff = offer(task_id=1)
    at = {"project_root": str(nexus.root), "handoff_id": handoff}
    assert state(nexus) == ("pending", None)
    call("handoff_claim", **at, agent_id="bob")
    assert nexus.read("state/tasks.json")["tasks"][0]["status"] == "in_progress"  # before any call of planning
    assert state(nexus) == ("in_progress", "bob")
    call("handoff_complete", **at, agent_id="bob", result="Done.")
    assert state(nexus) == ("completed", None)
    assert call("handoff_get", **at, agent_id="ana")["task_id"] == 1


@pytest.mark.usefixtures("committed")
def test_it_is_pending_again_after_a_rejection_and_an_expiry(
    nexus: Project, call: Call, offer: Any, clock: Any
) -> None:
    nexus.task("Write")
    at = {"project_root": str(nexus.root), "handoff_id": offer(task_id=1)}
    call("handoff_claim", **at, agent_id="bob")
    clock.shift(3600)
    found = call("handoff_list_available", project_root=str(nexus.root), agent_id="cleo")["handoffs"]
    assert [row["task_id"] for row in found] == [1]
    assert state(nexus) == ("pending", None)
    call("handoff_claim", **at, agent_id="cleo")
    assert state(nexus) == ("in_progress", "cleo")
    call("handoff_reject", **at, agent_id="cleo", reason="No.")
    assert state(nexus) == ("pending", None)


@pytest.mark.usefixtures("committed")
def test_a_claim_that_ends_takes_nothing_from_a_task_that_is_done_or_anothers(
    nexus: Project, call: Call, offer: Any, clock: Traveller
) -> None:
    nexus.task("Write")
    here = {"project_root": str(nexus.root)}
    first, second = offer(task_id=1), offer(task_id=1)
    call("handoff_claim", **here, handoff_id=first, agent_id="bob")
    call("handoff_claim", **here, handoff_id=second, agent_id="cleo")
    call("handoff_reject", **here, handoff_id=first, agent_id="bob", reason="Cleo has it.")
    assert state(nexus) == ("in_progress", "cleo")
    nexus.call("task_update", id=1, status="completed", agent="cleo")
    clock.shift(3600)
    call("handoff_list_available", **here, agent_id="bob")
    assert state(nexus) == ("completed", None)


@pytest.mark.usefixtures("committed")
def test_many_claims_that_end_at_once_are_not_undone_by_the_file(
    nexus: Project, call: Call, offer: Any, clock: Traveller, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = {"project_root": str(nexus.root)}
    many = 20
    for number in range(1, many + 1):
        nexus.task(f"Part {number}")
        call("handoff_claim", **here, handoff_id=offer(task_id=number), agent_id="bob")
    nexus.call("task_list")
    clock.shift(3600)
    with monkeypatch.context() as patched:
        patched.setattr(mirror, "_follow", lambda place: None)
        call("handoff_list_available", **here, agent_id="cleo")
    assert nexus.call("task_list")["summary"]["pending"] == many


def test_it_carries_tasks_of_the_open_cycle_alone(nexus: Project, call: Call, refused: Call, offer: Any) -> None:
    given = {"project_root": str(nexus.root), "from_agent_id": "ana", "target": ANYBODY, "visibility": "public"}
    assert refused("handoff_create", **given, task_id=1)["code"] == "NOT_FOUND"
    nexus.task("Old")
    at = {"project_root": str(nexus.root), "handoff_id": offer(task_id=1)}
    nexus.call("task_close")
    assert refused("handoff_create", **given, task_id=1)["code"] == "NOT_FOUND"
    nexus.task("New")
    call("handoff_claim", **at, agent_id="bob")  # of the former task 1
    assert state(nexus) == ("pending", None)


def test_it_lists_ready_tasks_only_where_one_asks(nexus: Project, call: Call, offer: Any) -> None:
    nexus.task("Write")
    nexus.task("Test", deps=[1])
    plain, first, second = offer(), offer(task_id=1), offer(task_id=2)

    def listed(**more: Any) -> list[str]:
        page = call("handoff_list_available", project_root=str(nexus.root), agent_id="bob", **more)
        return [row["handoff_id"] for row in page["handoffs"]]

    assert listed() == [plain, first, second]
    assert listed(ready_only=True) == [plain, first]
    nexus.call("task_update", id=1, status="completed")
    assert listed(ready_only=True) == [plain, second]


def test_it_tells_the_holder_that_somebody_changed_the_task(nexus: Project, call: Call, offer: Any) -> None:
    nexus.task("Write")
    call("handoff_claim", project_root=str(nexus.root), handoff_id=offer(task_id=1), agent_id="bob")
    before = call("inbox_count", agent_id="bob")["unread"]
    nexus.call("task_update", id=1, status="in_progress", agent="cleo")  # as it is
    assert call("inbox_count", agent_id="bob")["unread"] == before
    nexus.call("task_update", id=1, status="pending", agent="cleo")
    assert call("inbox_count", agent_id="bob")["unread"] == before + 1
    nexus.call("task_update", id=1, status="in_progress", agent="bob")
    assert call("inbox_count", agent_id="bob")["unread"] == before + 1


@pytest.mark.usefixtures("committed")
def test_its_files_follow_with_the_next_call_where_they_could_not(
    nexus: Project, call: Call, offer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    nexus.task("Write")
    handoff = offer(task_id=1)
    with monkeypatch.context() as patched:
        patched.setattr(mirror, "_follow", lambda place: None)
        call("handoff_claim", project_root=str(nexus.root), handoff_id=handoff, agent_id="bob")
    assert nexus.read("state/tasks.json")["tasks"][0]["status"] == "pending"
    assert state(nexus) == ("in_progress", "bob")


@pytest.mark.usefixtures("committed")
async def test_it_wakes_who_waits_for_work_that_can_begin(
    nexus: Project, offer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = Mock(side_effect=selectors.available)
    monkeypatch.setattr(selectors, "available", looked)

    def prepare() -> None:
        nexus.task("Write")
        nexus.task("Test", deps=[1])
        offer(task_id=2)

    await sync_to_async(prepare)()
    asked = {"project_root": str(nexus.root), "agent_id": "bob", "ready_only": True, "timeout_seconds": LONG}
    poll = asyncio.create_task(arun(LOCAL, "handoff_list_available", asked))
    async with asyncio.timeout(LONG):
        while looked.call_count < 2:  # at first, and once it was parked
            await asyncio.sleep(0.001)
    await sync_to_async(nexus.call)("task_update", id=1, status="completed")
    found = await asyncio.wait_for(poll, LONG / 2)
    assert [row["task_id"] for row in found["data"]["handoffs"]] == [2]


@pytest.mark.usefixtures("committed")
def test_it_stays_in_progress_until_its_verifier_accepts(nexus: Project, call: Call, offer: Any) -> None:
    nexus.task("Write")
    at = {"project_root": str(nexus.root), "handoff_id": offer(task_id=1, verifier="creator")}
    call("handoff_claim", **at, agent_id="bob")
    call("handoff_complete", **at, agent_id="bob")
    assert state(nexus) == ("in_progress", "bob")
    call("handoff_return", **at, agent_id="ana", reasons="no tests")
    assert state(nexus) == ("in_progress", "bob")
    call("handoff_complete", **at, agent_id="bob")
    call("handoff_accept", **at, agent_id="ana")
    assert state(nexus) == ("completed", None)


@pytest.mark.usefixtures("committed")
@pytest.mark.parametrize(
    ("end", "status"), [("claim", "in_progress"), ("complete", "completed"), ("reject", "pending")]
)
def test_it_is_not_undone_by_what_others_wrote_before(
    nexus: Project, call: Call, offer: Any, end: str, status: str
) -> None:
    """A file edited by hand lies there when the handoff of another task moves on; then planning takes it in."""
    nexus.task("Write")
    nexus.task("Test")
    at = {"project_root": str(nexus.root), "handoff_id": offer(task_id=1), "agent_id": "bob"}
    if end != "claim":
        call("handoff_claim", **at)
        assert state(nexus) == ("in_progress", "bob")
    file = nexus.root / ".nexus/state/tasks.json"
    content = json.loads(file.read_text())
    content["tasks"][1]["title"] = "Test it all"
    file.write_text(json.dumps(content))

    call(f"handoff_{end}", **at)

    assert state(nexus)[0] == status
    assert nexus.call("task_list")["tasks"][1]["title"] == "Test it all"


class TestFencing:
    """A task has an epoch that grows each time that it is begun."""

    def test_a_former_worker_changes_no_task_that_was_begun_again(self, nexus: Project) -> None:
        nexus.task("Write")
        begun = nexus.call("task_update", id=1, status="in_progress")["claim_epoch"]
        nexus.call("task_update", id=1, status="pending", claim_epoch=begun)
        again = nexus.call("task_update", id=1, status="in_progress")["claim_epoch"]
        assert (begun, again) == (1, 2)
        late = nexus.body("task_update", id=1, status="completed", claim_epoch=begun)["error"]
        assert (late["code"], late["details"]["claim_epoch"]) == ("STALE_CLAIM", again)
        assert state(nexus) == ("in_progress", None)
        nexus.call("task_update", id=1, status="completed", claim_epoch=again)
        assert nexus.read("state/tasks.json")["tasks"][0].keys().isdisjoint({"claim_epoch"})

    @pytest.mark.usefixtures("committed")
    def test_a_claim_of_its_handoff_and_a_foreign_program_begin_it_anew(
        self, nexus: Project, call: Call, offer: Any
    ) -> None:
        nexus.task("Write")
        begun = nexus.call("task_update", id=1, status="in_progress")["claim_epoch"]
        call("handoff_claim", project_root=str(nexus.root), handoff_id=offer(task_id=1), agent_id="bob")
        assert nexus.refused("task_update", id=1, status="completed", claim_epoch=begun)[0] == "STALE_CLAIM"
        nexus.call("task_update", id=1, status="pending")
        document = nexus.read("state/tasks.json")
        document["tasks"][0]["status"] = "in_progress"
        nexus.write("state/tasks.json", document)
        assert nexus.refused("task_update", id=1, status="completed", claim_epoch=2)[0] == "STALE_CLAIM"
        assert nexus.call("task_update", id=1, status="in_progress", claim_epoch=3)["claim_epoch"] == 3
