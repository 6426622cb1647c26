"""What is offered to whom, and who may look."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from handoffs import selectors
from handoffs.models import Handoff
from handoffs.selectors import READ_AT_ONCE
from tests.conftest import Call
from tests.handoffs.conftest import PYTHON, TO_BOB, Clock, Offer
from tests.store import plans

INSTANT = timedelta(microseconds=1)
REVIEWER_IN_A_MINUTE = {
    "strategy": "direct_with_fallback",
    "agent_id": "bob",
    "fallback_after_seconds": 60,
    "fallback": {"strategy": "role", "role": "coder"},
}


@pytest.fixture
def listed(call: Call, project: str) -> Call:
    """A page of what an agent may claim."""

    def listed(agent: str, **more: Any) -> dict[str, Any]:
        return call("handoff_list_available", project_root=project, agent_id=agent, **more)

    return listed


def ids(page: dict[str, Any]) -> list[str]:
    return [handoff["handoff_id"] for handoff in page["handoffs"]]


def test_it_lists_what_one_may_see_and_claim_the_oldest_first(listed: Call, offer: Offer, clock: Clock) -> None:
    first, second = offer(payload="one"), offer(payload=[2], visibility="private")

    page = listed("bob")

    assert ids(page) == [first, second]
    assert page["handoffs"][1] == {
        "handoff_id": second,
        "title": "Work for capability python",
        "status": "OPEN",
        "target": PYTHON,
        "visibility": "private",
        "from_agent_id": "ana",
        "payload": "[2]",
        "created_at": "2026-03-01T12:00:00.000000Z",
    }
    assert (page["next_cursor"], page["has_more"], page["timed_out"]) == (None, False, False)


def test_it_ends_a_page_that_is_full_of_text_and_goes_on_from_there(
    listed: Call, offer: Offer, configure: Call
) -> None:
    offered = [offer(payload="x" * length) for length in (300, 100, 100, 100)]
    configure(max_inline_bytes=4)  # 64 of these hold two payloads of 100

    pages = [listed("bob")]
    while pages[-1]["has_more"]:
        pages.append(listed("bob", cursor=pages[-1]["next_cursor"]))

    assert [ids(page) for page in pages] == [offered[:1], offered[1:3], offered[3:]]


@pytest.mark.parametrize(
    ("target", "workers"),
    [
        (TO_BOB, ["bob"]),
        (PYTHON, ["bob", "cleo"]),
        ({"strategy": "role", "role": "coder"}, ["cleo"]),
        ({"strategy": "broadcast"}, ["ana", "bob", "cleo", "ghost"]),
        ({"strategy": "mixed", "rules": [TO_BOB, {"strategy": "role", "role": "coder"}]}, ["bob", "cleo"]),
        (REVIEWER_IN_A_MINUTE, ["bob"]),
    ],
)
def test_it_offers_work_to_those_the_target_admits(
    listed: Call, offer: Offer, target: dict[str, Any], workers: list[str]
) -> None:
    offer(target=target, visibility="private")

    assert [agent for agent in ("ana", "bob", "cleo", "ghost") if ids(listed(agent))] == workers


def test_it_lists_neither_taken_nor_ended_work_nor_that_of_other_workspaces(
    listed: Call, call: Call, offer: Offer, project: str, tmp_path: Any
) -> None:
    for verb, agent in (("handoff_claim", "bob"), ("handoff_cancel", "ana")):
        call(verb, project_root=project, handoff_id=offer(), agent_id=agent)
    offer(project_root=str(tmp_path))

    assert ids(listed("cleo")) == []


def test_it_parses_no_target_from_before_there_were_bounds(
    listed: Call, call: Call, offer: Offer, project: str
) -> None:
    """Eight of them took Home 80 s."""
    handoff = offer()
    rules = [{"strategy": "role", "role": "coder"}] * 110_000
    Handoff.objects.filter(pk=handoff).update(target={"strategy": "mixed", "rules": rules})

    assert ids(listed("cleo")) == []
    at = {"project_root": project, "handoff_id": handoff, "agent_id": "ana"}
    assert call("handoff_get", **at)["target"] == {"strategy": "oversized"}
    assert call("handoff_cancel", **at)["status"] == "CANCELLED"


class TestPages:
    def test_it_pages_without_repeating_or_skipping(self, listed: Call, offer: Offer) -> None:
        offered = [offer(target=TO_BOB if number % 2 else PYTHON) for number in range(9)]

        pages, cursor, more = [], None, True
        while more:
            page = listed("cleo", cursor=cursor, limit=2)
            pages.append(ids(page))
            cursor, more = page["next_cursor"], page["has_more"]

        assert pages == [offered[0:4:2], offered[4:8:2], offered[8:]]
        assert cursor is None

    def test_it_holds_its_place_while_work_is_taken_and_added(
        self, listed: Call, call: Call, offer: Offer, project: str
    ) -> None:
        offered = [offer() for _ in range(4)]
        cursor = listed("cleo", limit=2)["next_cursor"]
        assert isinstance(cursor, str)
        for handoff in offered[:3]:
            call("handoff_claim", project_root=project, handoff_id=handoff, agent_id="bob")
        offered.append(offer())

        assert ids(listed("cleo", cursor=cursor)) == offered[3:]

    def test_it_tells_of_no_next_page_when_what_follows_is_not_for_one(self, listed: Call, offer: Offer) -> None:
        offer()
        offer(target=TO_BOB)

        assert listed("cleo", limit=1)["has_more"] is False

    def test_it_looks_past_more_handoffs_than_it_reads_at_once(self, listed: Call, offer: Offer) -> None:
        for _ in range(READ_AT_ONCE + 1):
            offer(target={"strategy": "direct", "agent_id": "ana"}, visibility="private", from_agent_id="ghost")
        mine = offer()

        assert ids(listed("cleo", limit=1)) == [mine]

    def test_it_ends_a_look_that_found_nothing_and_goes_on_from_its_cursor(
        self, listed: Call, offer: Offer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(selectors, "READ_AT_ONCE", 2)
        monkeypatch.setattr(selectors, "EXAMINED_AT_ONCE", 4)
        for _ in range(9):
            offer(target=TO_BOB)
        mine = offer()

        pages = [listed("cleo", limit=1)]
        while pages[-1]["has_more"]:
            pages.append(listed("cleo", limit=1, cursor=pages[-1]["next_cursor"]))

        assert [ids(page) for page in pages] == [[], [], [mine]]

    @pytest.mark.sqlite  # whose plans say so; the indexes are the same
    def test_it_reads_no_more_of_a_long_list_than_it_looks_at(self, listed: Call, offer: Offer) -> None:
        offer()
        looked = [plan for plan in plans(lambda: listed("cleo")) if "created_event_id>?" in plan]

        assert looked and all("handoffs_by_status (workspace_id=? AND status=?" in plan for plan in looked), looked
        assert not any("TEMP B-TREE" in plan for plan in looked), looked

    def test_it_finds_a_handoff_whose_expiry_is_recorded_while_it_looks(
        self, call: Call, offer: Offer, project: str, workspace: str, clock: Clock
    ) -> None:
        handoff = offer()
        call("handoff_claim", project_root=project, handoff_id=handoff, agent_id="bob")
        clock.shift(timedelta(days=1))
        open_again = {"status": "OPEN", "claimed_by": None, "claimed_at": None, "lease_expires_at": None}
        looked: list[str] = []

        def record(execute: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
            found = execute(sql, parameters, many, context)
            if '"handoffs"' in sql and sql.startswith("SELECT"):
                looked.append(sql)
                if len(looked) == 1:
                    Handoff.objects.filter(pk=handoff).update(**open_again)
            return found

        with connection.execute_wrapper(record):
            page = selectors.available(workspace_id=workspace, agent_id="cleo", after=0, limit=10)

        assert [each.handoff_id for each in page.handoffs] == [handoff]
        assert len(looked) == 2

    def test_it_gives_a_hundred_by_default_and_five_hundred_at_most(self, listed: Call, offer: Offer) -> None:
        row = Handoff.objects.filter(pk=offer()).values().get()
        Handoff.objects.bulk_create(
            Handoff(**row | {"handoff_id": f"h{number}", "created_event_id": row["created_event_id"] + number})
            for number in range(1, 501)
        )

        assert len(listed("cleo")["handoffs"]) == 100
        assert len(listed("cleo", limit=501)["handoffs"]) == 500

    @pytest.mark.parametrize("cursor", [-1, "-1", "x", "", "1.5", "²", "9" * 30, "9" * 5000, True, 1.0, [1]])
    def test_it_refuses_what_is_no_cursor(self, refused: Call, project: str, cursor: Any) -> None:
        error = refused("handoff_list_available", project_root=project, agent_id="bob", cursor=cursor)

        assert (error["code"], error["details"]["field"]) == ("VALIDATION_ERROR", "cursor")

    def test_it_takes_the_first_page_from_zero_or_nothing(self, listed: Call, offer: Offer) -> None:
        handoff = offer()

        assert [ids(listed("bob", cursor=cursor)) for cursor in (None, 0, "0")] == [[handoff]] * 3


class TestWhoMayLook:
    """handoff_get: the creator, the claimant, and whom the visibility admits."""

    def test_it_always_shows_it_to_the_claimant(self, call: Call, offer: Offer, project: str) -> None:
        at = {"project_root": project, "handoff_id": offer(visibility="private"), "agent_id": "cleo"}
        call("handoff_claim", **at)
        call("handoff_complete", **at, result="done")
        call("agent_register", agent_id="cleo", capabilities=[])  # no longer admitted by the target

        assert call("handoff_get", **at)["result"] == "done"

    def test_it_answers_every_field(self, call: Call, offer: Offer, clock: Clock, project: str) -> None:
        handoff = offer(payload={"page": 1})
        clock.shift(1)
        call("handoff_claim", project_root=project, handoff_id=handoff, agent_id="bob")

        shown = call("handoff_get", project_root=project, handoff_id=handoff, agent_id="ana")

        workspace = call("workspace_resolve", project_root=project)["workspace_id"]
        assert shown == {
            "handoff_id": handoff,
            "workspace_id": workspace,
            "title": "Work for capability python",
            "status": "CLAIMED",
            "from_agent_id": "ana",
            "target": PYTHON,
            "visibility": "public",
            "claimed_by": "bob",
            "claimed_at": "2026-03-01T12:00:01.000000Z",
            "claim_epoch": 1,
            "acceptance_criteria": None,
            "depends_on": [],
            "trace_id": None,
            "lease_expires_at": "2026-03-01T12:05:01.000000Z",
            "blocked_reason": None,
            "deadline_at": None,
            "verifier": None,
            "remarks": [],
            "checks": [],
            "payload": '{"page": 1}',
            "task_id": None,
            "result": None,
            "rejected_reason": None,
            "created_at": "2026-03-01T12:00:00.000000Z",
            "updated_at": "2026-03-01T12:00:01.000000Z",
        }
