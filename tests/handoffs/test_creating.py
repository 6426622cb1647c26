"""Offering work."""

from __future__ import annotations

from typing import Any

import pytest

from coordination.models import Event, Workspace
from handoffs.models import Handoff
from inbox.models import Message
from tests.conftest import Call
from tests.handoffs.conftest import PYTHON, TO_BOB, Clock, Offer, events_of, mail_of

pytestmark = pytest.mark.usefixtures("team")


@pytest.fixture
def asked(project: str) -> dict[str, Any]:
    """The arguments of a handoff that is created as it is."""
    return {"project_root": project, "from_agent_id": "ana", "target": PYTHON, "visibility": "public"}


def test_it_opens_a_handoff_and_counts_whom_a_pool_target_admits(
    call: Call, asked: dict[str, Any], clock: Clock
) -> None:
    created = call("handoff_create", **asked)

    assert created["handoff_id"].startswith("hnd")
    assert (created["status"], created["created_at"]) == ("OPEN", "2026-03-01T12:00:00.000000Z")
    assert created["eligible_count"] == 2
    assert not {"warning", "notified"} & created.keys()


@pytest.mark.parametrize("visibility", ["public", "eligible", "private"])
def test_it_records_the_creation_on_the_handoff_stream(call: Call, asked: dict[str, Any], visibility: str) -> None:
    created = call("handoff_create", **asked | {"visibility": visibility, "payload": "secret work"})

    event = Event.objects.get(handoff_id=created["handoff_id"])
    assert (event.stream, event.type, event.actor_agent_id) == ("handoff", "handoff.created", "ana")
    assert (event.visibility, event.target, event.payload["handoff_id"]) == (
        visibility,
        PYTHON,
        created["handoff_id"],
    )


def test_it_warns_when_no_registered_agent_matches_and_stays_open(
    call: Call, asked: dict[str, Any], project: str
) -> None:
    cobol = {"strategy": "capability", "capability": "cobol"}

    created = call("handoff_create", **asked | {"target": cobol})

    assert created["eligible_count"] == 0
    assert "handoff_cancel" in created["warning"]
    call("agent_register", agent_id="late", capabilities="cobol")
    claimed = call("handoff_claim", project_root=project, handoff_id=created["handoff_id"], agent_id="late")
    assert claimed["status"] == "CLAIMED"


def test_it_counts_who_is_eligible_now_and_nobody_whom_a_fallback_admits_later(
    call: Call, asked: dict[str, Any]
) -> None:
    target = {
        "strategy": "direct_with_fallback",
        "agent_id": "unborn",
        "fallback_after_seconds": 3600,
        "fallback": PYTHON,
    }

    created = call("handoff_create", **asked | {"target": target})

    assert created["eligible_count"] == 0 and "No registered agent" in created["warning"]
    assert "notified" not in created
    known = call("handoff_create", **asked | {"target": {**target, "agent_id": "bob"}})
    assert known["eligible_count"] == 1 and "warning" not in known


@pytest.mark.parametrize(
    "target", [TO_BOB, {"strategy": "direct_with_fallback", "agent_id": "bob", "fallback_after_seconds": 60}]
)
def test_it_notifies_the_agent_a_target_names(call: Call, asked: dict[str, Any], target: dict[str, Any]) -> None:
    created = call("handoff_create", **asked | {"target": target})

    assert created["notified"] == ["bob"]
    assert ("eligible_count" in created) == (target is not TO_BOB)
    (notice,) = mail_of(call, "bob")
    assert notice["from_agent_id"] == "ana"
    assert created["handoff_id"] in notice["body"]
    assert "handoff_claim" in notice["body"]
    assert mail_of(call, "cleo") == []


def test_it_leaves_nothing_of_a_handoff_to_an_unregistered_agent(refused: Call, asked: dict[str, Any]) -> None:
    error = refused("handoff_create", **asked | {"target": {"strategy": "direct", "agent_id": "nobody"}})

    assert (error["code"], error["details"]) == ("NOT_FOUND", {"agent": "nobody"})
    assert [model.objects.count() for model in (Handoff, Message, Event, Workspace)] == [0, 0, 0, 0]


def test_whoever_leaves_visibility_out_learns_the_usual_value(refused: Call, asked: dict[str, Any]) -> None:
    error = refused("handoff_create", **{name: value for name, value in asked.items() if name != "visibility"})
    assert error["message"].startswith('visibility is required. As a rule "public"')


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"target": {}}, "VALIDATION_ERROR"),
        ({"target": '{"strategy":"broadcast"}'}, "VALIDATION_ERROR"),
        ({"target": {"strategy": "mixed", "rules": [{"strategy": "broadcast"}]}}, "VALIDATION_ERROR"),
        ({"visibility": "PUBLIC"}, "VALIDATION_ERROR"),
        ({"from_agent_id": ""}, "VALIDATION_ERROR"),
        ({"payload": float("nan")}, "VALIDATION_ERROR"),
        ({"payload": "x" * 65_537}, "CONTENT_TOO_LARGE"),
        ({"payload": ["x" * 65_533]}, "CONTENT_TOO_LARGE"),
        ({"project_root": None}, "WORKSPACE_REQUIRED"),
        ({"project_root": "/no/such/place"}, "WORKSPACE_UNRESOLVED"),
    ],
)
def test_it_refuses_what_cannot_be_offered_and_keeps_nothing_of_it(
    refused: Call, asked: dict[str, Any], changes: dict[str, Any], code: str
) -> None:
    assert refused("handoff_create", **asked | changes)["code"] == code
    assert [model.objects.count() for model in (Handoff, Message, Event, Workspace)] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("payload", "stored"),
    [
        ("plain ünïcode\r\n\t\u2028 ", "plain ünïcode\r\n\t\u2028 "),
        ('{"a": 1}', '{"a": 1}'),
        ("null", "null"),
        ("", ""),
        ({"a": [1, None, "é"]}, '{"a": [1, null, "é"]}'),
        ([], "[]"),
        (0, "0"),
        (False, "false"),
        (2.5, "2.5"),
        (None, None),
        ("x" * 65_536, "x" * 65_536),
        (["x" * 65_532], '["' + "x" * 65_532 + '"]'),
    ],
    ids=lambda value: repr(value)[:16],
)
def test_it_keeps_text_byte_for_byte_and_anything_else_as_json_text(
    call: Call, offer: Offer, project: str, payload: Any, stored: str | None
) -> None:
    handoff = offer(payload=payload)
    at = {"project_root": project, "agent_id": "bob"}

    assert call("handoff_list_available", **at)["handoffs"][0]["payload"] == stored
    assert call("handoff_claim", **at, handoff_id=handoff)["payload"] == stored
    call("handoff_complete", **at, handoff_id=handoff, result=payload)
    outcome = call("handoff_get", **at, handoff_id=handoff)
    assert (outcome["payload"], outcome["result"]) == (stored, stored)


def test_it_keeps_the_target_in_its_canonical_spelling(call: Call, offer: Offer, project: str) -> None:
    handoff = offer(target={"kind": "Direct With-Fallback", "agent_id": "bob", "fallback_after_seconds": 0})

    assert call("handoff_get", project_root=project, handoff_id=handoff, agent_id="ana")["target"] == {
        "strategy": "direct_with_fallback",
        "agent_id": "bob",
        "fallback_after_seconds": 0,
        "fallback": {"strategy": "broadcast"},
    }
    assert events_of(handoff) == ["handoff.created"]
