"""Claims have epochs: a worker that was believed dead finishes nothing that another has, though both are one agent."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from coordination.models import Event
from coordination.toolset import run
from tests.conftest import LOCAL, Call
from tests.handoffs.conftest import Clock, Offer

LATE: dict[str, dict[str, Any]] = {
    "handoff_start": {},
    "handoff_block": {"reason": "stuck"},
    "handoff_extend": {},
    "handoff_complete": {"result": "late"},
    "handoff_reject": {},
}
Taken = Callable[..., tuple[str, int, int]]


@pytest.fixture
def taken_again(on: Call, offer: Offer, clock: Clock) -> Taken:
    """A handoff that bob claimed, lost, and claimed again in another session; with the epochs of both claims."""

    def taken_again(**changes: Any) -> tuple[str, int, int]:
        handoff = offer(**changes)
        former = on("handoff_claim", handoff, "bob", lease_seconds=60)["claim_epoch"]
        clock.shift(timedelta(seconds=61))
        return handoff, former, on("handoff_claim", handoff, "bob")["claim_epoch"]

    return taken_again


def test_each_claim_has_a_greater_epoch_which_every_answer_names(
    on: Call, call: Call, taken_again: Taken, project: str
) -> None:
    handoff, former, latest = taken_again()
    assert (former, latest) == (1, 2)
    assert on("handoff_get", handoff, "ana")["claim_epoch"] == on("handoff_start", handoff, "bob")["claim_epoch"] == 2
    assert [each["claim_epoch"] for each in call("handoff_mine", agent_id="bob")["handoffs"]] == [2]
    claims = Event.objects.filter(handoff_id=handoff, type="handoff.claimed").order_by("event_id")
    assert [event.payload["claim_epoch"] for event in claims] == [1, 2]


@pytest.mark.parametrize("verb", LATE)
def test_a_step_of_a_former_claim_is_refused_and_changes_nothing(
    verb: str, on: Call, refused: Call, taken_again: Taken, project: str
) -> None:
    handoff, former, latest = taken_again()
    before = on("handoff_get", handoff, "ana")
    late = {"project_root": project, "handoff_id": handoff, "agent_id": "bob", "claim_epoch": former, **LATE[verb]}
    error = refused(verb, **late)
    assert (error["code"], error["details"]["claim_epoch"]) == ("STALE_CLAIM", latest)
    assert "another session of yours has it now" in error["message"]
    after = on("handoff_get", handoff, "ana")
    assert {**after, "remarks": []} == before
    assert (
        on(verb, handoff, "bob", claim_epoch=latest, **LATE[verb])["status"] != before["status"]
        or verb == "handoff_extend"
    )


def test_the_result_of_a_former_claim_is_kept_as_a_remark(on: Call, taken_again: Taken, project: str) -> None:
    handoff, former, latest = taken_again()
    late = {"project_root": project, "handoff_id": handoff, "agent_id": "bob", "result": "late", "claim_epoch": former}
    for _ in range(2):
        assert run(LOCAL, "handoff_complete", late)["error"]["details"]["kept"]
    on("handoff_complete", handoff, "bob", result="in time", claim_epoch=latest)
    whole = on("handoff_get", handoff, "ana")
    assert (whole["status"], whole["result"]) == ("COMPLETED", "in time")
    assert [(each["kind"], each["text"]) for each in whole["remarks"]] == [("late_result", "late")]


def test_who_names_no_claim_is_judged_by_its_id_alone(on: Call, taken_again: Taken) -> None:
    handoff, _, _ = taken_again()
    assert on("handoff_complete", handoff, "bob")["status"] == "COMPLETED"


def test_a_returned_result_begins_a_claim_of_its_own(on: Call, refused: Call, offer: Offer, project: str) -> None:
    handoff = offer(verifier="creator")
    first = on("handoff_claim", handoff, "bob")["claim_epoch"]
    on("handoff_complete", handoff, "bob", result="1", claim_epoch=first)
    on("handoff_return", handoff, "ana", reasons="No tests.", claim_epoch=first)
    second = on("handoff_get", handoff, "bob")["claim_epoch"]
    again = {"project_root": project, "handoff_id": handoff, "agent_id": "bob"}
    assert refused("handoff_complete", **again, result="1", claim_epoch=first)["code"] == "STALE_CLAIM"
    on("handoff_complete", handoff, "bob", result="2", claim_epoch=second)
    verdict = {"project_root": project, "handoff_id": handoff, "agent_id": "ana"}
    assert refused("handoff_accept", **verdict, claim_epoch=first)["code"] == "STALE_CLAIM"
    assert on("handoff_accept", handoff, "ana", claim_epoch=second)["status"] == "COMPLETED"


def test_an_epoch_that_never_was_is_refused_like_an_old_one(
    on: Call, refused: Call, offer: Offer, project: str
) -> None:
    handoff = offer()
    on("handoff_claim", handoff, "bob")
    late = {"project_root": project, "handoff_id": handoff, "agent_id": "bob"}
    assert refused("handoff_complete", **late, claim_epoch=7)["code"] == "STALE_CLAIM"
    for wrong in (-1, "1", True, 2**63):
        assert refused("handoff_complete", **late, claim_epoch=wrong)["code"] == "VALIDATION_ERROR"
