"""Handoffs that wait for others, what their result is measured by, and the trace that they belong to."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext

from coordination.models import Event
from handoffs.models import Handoff
from inbox.models import Message
from tests.conftest import Call, at_once, does
from tests.handoffs.conftest import PYTHON, Offer


@pytest.fixture
def finish(call: Call, project: str) -> Call:
    def claim_and_complete(handoff_id: str, agent_id: str = "bob") -> Any:
        call("handoff_claim", project_root=project, handoff_id=handoff_id, agent_id=agent_id)
        return call("handoff_complete", project_root=project, handoff_id=handoff_id, agent_id=agent_id)

    return claim_and_complete


def titles(call: Call, project: str) -> list[str]:
    page = call("handoff_list_available", project_root=project, agent_id="bob")
    return [row["title"] for row in page["handoffs"]]


def test_it_is_offered_once_all_that_it_waits_for_is_completed(
    offer: Offer, finish: Call, call: Call, refused: Call, project: str
) -> None:
    first, second = offer(title="first"), offer(title="second")
    third = offer(title="third", depends_on=[first, second, first])
    at = {"project_root": project, "handoff_id": third, "agent_id": "bob"}
    assert titles(call, project) == ["first", "second"]
    finish(first)
    assert titles(call, project) == ["second"]
    error = refused("handoff_claim", **at)
    assert error["code"] == "NOT_ELIGIBLE_TO_CLAIM" and error["details"]["waits_for"] == [second]
    assert call("handoff_get", **at)["depends_on"] == [
        {"handoff_id": first, "status": "COMPLETED"},
        {"handoff_id": second, "status": "OPEN"},
    ]
    assert not Event.objects.filter(type="handoff.unblocked").exists()
    finish(second)
    assert titles(call, project) == ["third"]
    assert Event.objects.get(type="handoff.unblocked").handoff_id == third
    finish(third)


def test_a_verdict_releases_it_and_a_submission_does_not(offer: Offer, finish: Call, call: Call, project: str) -> None:
    checked = offer(title="checked", verifier="creator", acceptance_criteria=["Tests pass."])
    offer(title="next", depends_on=[checked])
    assert finish(checked)["status"] == "SUBMITTED"
    assert titles(call, project) == []
    call("handoff_accept", project_root=project, handoff_id=checked, agent_id="ana")
    assert titles(call, project) == ["next"]


def test_whoever_it_is_for_hears_of_it_when_it_can_begin(offer: Offer, finish: Call) -> None:
    first = offer(title="first")
    offer(title="yours", depends_on=[first], target={"strategy": "direct", "agent_id": "cleo"})
    assert not Message.objects.filter(deliveries__recipient="cleo").exists()
    finish(first)
    assert Message.objects.get(deliveries__recipient="cleo").subject == "“yours” is for you"


def test_it_waits_for_nothing_that_cannot_come(
    offer: Offer, finish: Call, call: Call, refused: Call, project: str, tmp_path: Any
) -> None:
    gone, done = offer(title="gone"), offer(title="done")
    call("handoff_cancel", project_root=project, handoff_id=gone, agent_id="ana")
    finish(done)
    given = {"project_root": project, "from_agent_id": "ana", "target": PYTHON, "visibility": "public"}
    assert refused("handoff_create", depends_on=[gone], **given)["code"] == "VALIDATION_ERROR"
    assert refused("handoff_create", depends_on=["hnd_none"], **given)["code"] == "NOT_FOUND"
    (tmp_path / "other").mkdir()
    elsewhere = {**given, "project_root": str(tmp_path / "other")}
    assert refused("handoff_create", depends_on=[done], **elsewhere)["code"] == "WORKSPACE_MISMATCH"
    assert offer(title="free", depends_on=[done]) and titles(call, project) == ["free"]


def test_criteria_and_trace_go_with_the_work(offer: Offer, call: Call, project: str) -> None:
    made = offer(title="traced", acceptance_criteria=["a", "b"], trace_id="t-1")
    (row,) = call("handoff_list_available", project_root=project, agent_id="bob")["handoffs"]
    assert (row["acceptance_criteria"], row["trace_id"]) == (["a", "b"], "t-1")
    call("handoff_claim", project_root=project, handoff_id=made, agent_id="bob")
    told = Event.objects.filter(handoff_id=made).order_by("pk")
    assert [event.payload["trace_id"] for event in told] == ["t-1", "t-1"]


def test_two_that_end_at_once_release_what_waits_for_both(
    committed: None, offer: Offer, finish: Call, call: Call, project: str
) -> None:
    one, other = offer(title="one"), offer(title="other")
    both = offer(title="both", depends_on=[one, other])
    for each, agent in ((one, "bob"), (other, "cleo")):
        call("handoff_claim", project_root=project, handoff_id=each, agent_id=agent)

    def end(handoff_id: str, agent: str) -> Any:
        return call("handoff_complete", project_root=project, handoff_id=handoff_id, agent_id=agent)

    at_once([lambda: end(one, "bob"), lambda: end(other, "cleo")])
    assert Event.objects.get(type="handoff.unblocked").handoff_id == both
    assert Handoff.objects.get(pk=both).status == "OPEN"


def test_it_goes_on_waiting_for_what_is_offered_again(offer: Offer, finish: Call, call: Call, project: str) -> None:
    gone = offer(title="gone")
    waits = offer(title="waits", depends_on=[gone], deadline_seconds=3600)
    call("handoff_cancel", project_root=project, handoff_id=gone, agent_id="ana")
    assert titles(call, project) == []
    again = does("handoff_reoffer", handoff_id=gone)["data"]["handoff_id"]
    seen = call("handoff_get", project_root=project, handoff_id=waits, agent_id="ana")
    assert seen["depends_on"] == [{"handoff_id": again, "status": "OPEN"}]
    finish(again)
    assert titles(call, project) == ["waits"]


def test_what_is_offered_again_waits_as_the_former_one_did(offer: Offer, call: Call, project: str) -> None:
    first = offer(title="first")
    gone = offer(title="gone", depends_on=[first], acceptance_criteria=["a"], trace_id="t")
    call("handoff_cancel", project_root=project, handoff_id=gone, agent_id="ana")
    again = does("handoff_reoffer", handoff_id=gone, agent_id="cleo")["data"]["handoff_id"]
    seen = call("handoff_get", project_root=project, handoff_id=again, agent_id="ana")
    assert (seen["acceptance_criteria"], seen["trace_id"]) == (["a"], "t")
    assert [each["handoff_id"] for each in seen["depends_on"]] == [first]
    assert titles(call, project) == ["first"]
    assert not Message.objects.filter(deliveries__recipient="cleo").exists()


def test_whoever_it_is_reassigned_to_hears_of_it_when_it_can_begin(offer: Offer, finish: Call) -> None:
    first = offer(title="first")
    later = offer(title="later", depends_on=[first])
    does("handoff_reassign", handoff_id=later, agent_id="cleo")
    assert not Message.objects.filter(deliveries__recipient="cleo").exists()
    finish(first)
    assert Message.objects.filter(deliveries__recipient="cleo").count() == 1


def test_nothing_is_said_of_one_whose_deadline_passed_while_it_waited(offer: Offer, call: Call, project: str) -> None:
    with time_machine.travel(datetime(2026, 3, 1, 12, tzinfo=UTC), tick=False) as clock:
        first = offer(title="first")
        offer(title="late", depends_on=[first], deadline_seconds=60)
        at = {"project_root": project, "handoff_id": first, "agent_id": "bob"}
        call("handoff_claim", **at)
        clock.shift(61)
        call("handoff_complete", **at)
        assert titles(call, project) == []
    assert not Event.objects.filter(type="handoff.unblocked").exists()


@pytest.mark.sqlite  # whose plans say so; the indexes are the same
def test_a_look_for_work_reads_only_what_is_left_of_dependencies(offer: Offer, call: Call, project: str) -> None:
    offer(title="second", depends_on=[offer(title="first")])
    with CaptureQueriesContext(connection) as asked:
        titles(call, project)
    looks = [query["sql"] for query in asked.captured_queries if "handoff_dependencies" in query["sql"]]
    assert looks
    for sql in looks:
        with connection.cursor() as cursor:
            plan = [row[3] for row in cursor.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()]
        assert any("handoff_dependencies_left" in step for step in plan), plan


def test_a_retry_that_waits_for_others_is_none(offer: Offer, refused: Call, project: str) -> None:
    first, second = offer(title="first"), offer(title="second")
    third = offer(title="third", depends_on=[first, second], acceptance_criteria=["a"], client_id="c")
    same = {"acceptance_criteria": ["a"], "client_id": "c"}
    assert offer(title="third", depends_on=[second, first, second], **same) == third
    given = {"project_root": project, "from_agent_id": "ana", "target": PYTHON, "visibility": "public"}
    for other in ({}, {"depends_on": [first]}, {"depends_on": [first, second], "acceptance_criteria": ["b"]}):
        error = refused("handoff_create", title="third", **given, **{**same, **other})
        assert error["code"] == "VALIDATION_ERROR" and error["details"]["first"] == third


def test_a_retry_is_one_though_what_it_waits_for_was_offered_again(offer: Offer, call: Call, project: str) -> None:
    first = offer(title="first")
    second = offer(title="second", depends_on=[first], client_id="c")
    call("handoff_cancel", project_root=project, handoff_id=first, agent_id="ana")
    again = does("handoff_reoffer", handoff_id=first)["data"]["handoff_id"]
    at = {"project_root": project, "handoff_id": second, "agent_id": "ana"}
    assert [each["handoff_id"] for each in call("handoff_get", **at)["depends_on"]] == [again]
    assert offer(title="second", depends_on=[first], client_id="c") == second
