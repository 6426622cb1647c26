"""What an operator lets agents do at most, and which verbs each may use."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import time_machine
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from coordination.models import AgentLimits, Event
from coordination.services import agent_limits
from coordination.toolset import run
from handoffs.models import Handoff
from inbox.models import Delivery, Message
from nexus.core.operations.caller import Caller
from tests.conftest import LOCAL, OPERATOR, Call, at_once

pytestmark = pytest.mark.usefixtures("team")

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TO_BOB = {"strategy": "direct", "agent_id": "bob"}
TO_OCR = {"strategy": "mixed", "rules": [TO_BOB, {"strategy": "direct", "agent_id": "cleo"}]}


@pytest.fixture
def clock() -> Iterator[time_machine.Traveller]:
    with time_machine.travel(NOON, tick=False) as clock:
        yield clock


def store(**arguments: Any) -> dict[str, Any]:
    """Set limits as an operator, and have this process see them."""
    envelope = run(OPERATOR, "limits_update", arguments)
    agent_limits.apply()  # as on commit
    return envelope


def sending(project: str, **more: Any) -> dict[str, Any]:
    said = {"project_root": project, "from_agent_id": "ana", "subject": "s", "body": "b", "target": TO_BOB}
    return run(LOCAL, "message_create", said | more)


def offering(project: str, **more: Any) -> dict[str, Any]:
    said = {"project_root": project, "from_agent_id": "ana", "target": TO_BOB, "visibility": "public"}
    return run(LOCAL, "handoff_create", said | more)


def refusal(envelope: dict[str, Any]) -> dict[str, Any]:
    assert not envelope["ok"] and envelope["error"]["code"] == "QUOTA_EXCEEDED", envelope
    details: dict[str, Any] = envelope["error"]["details"]
    return details


def test_it_has_no_limit_until_one_is_set(project: str) -> None:
    assert all(sending(project)["ok"] and offering(project)["ok"] for _ in range(20))


def test_it_limits_the_messages_of_a_minute_and_tells_when_to_try_again(
    project: str, clock: time_machine.Traveller
) -> None:
    store(agent_id="ana", limits={"messages_per_minute": 2})
    assert sending(project)["ok"]
    clock.shift(timedelta(seconds=20))
    assert sending(project)["ok"]

    assert refusal(sending(project)) == {
        "quota": "messages_per_minute",
        "limit": 2,
        "used": 2,
        "retry_after_seconds": 40,
    }
    assert Message.objects.count() == 2
    assert sending(project, from_agent_id="bob", target=None)["ok"], "others have none"
    clock.shift(timedelta(seconds=40))
    assert sending(project)["ok"]


def test_it_limits_nobody_for_what_was_sent_before_the_clock_was_set_back(
    project: str, clock: time_machine.Traveller
) -> None:
    store(agent_id="ana", limits={"messages_per_minute": 1})
    assert sending(project)["ok"]
    clock.shift(-timedelta(hours=1))

    assert sending(project)["ok"]
    refusal(sending(project))


def test_it_answers_a_repeated_call_whatever_the_limit(project: str) -> None:
    store(agent_id="ana", limits={"messages_per_minute": 1, "open_handoffs": 1})
    for create in (sending, offering):
        assert create(project, client_id="1")["ok"]
        assert create(project, client_id="1")["data"]["duplicate"] is True
        refusal(create(project, client_id="2"))


def test_it_limits_the_recipients_of_a_message(project: str) -> None:
    store(agent_id="ana", limits={"recipients": 1})

    assert refusal(sending(project, target=TO_OCR)) == {
        "quota": "recipients",
        "limit": 1,
        "used": 2,
        "retry_after_seconds": None,
    }
    assert sending(project)["ok"]


def test_it_passes_over_a_full_inbox_and_tells(project: str) -> None:
    store(agent_id="bob", limits={"unread": 1})
    assert sending(project)["ok"]

    details = refusal(sending(project))
    assert (details["quota"], details["limit"], details["used"]) == ("unread", 1, 1)
    assert details["retry_after_seconds"] > 0
    shared = sending(project, target=TO_OCR)["data"]
    assert (shared["recipients"], shared["excluded_full"], shared["delivered_count"]) == (["cleo"], ["bob"], 1)
    assert "excluded_full" in shared["warning"]


def test_a_full_inbox_has_room_again_once_its_mail_is_read(call: Call, project: str) -> None:
    store(agent_id="bob", limits={"unread": 1})
    mail = sending(project)["data"]["message_id"]
    call("inbox_ack", agent_id="bob", message_ids=mail)

    assert sending(project)["ok"]


def test_a_notice_comes_into_a_full_inbox(call: Call, project: str) -> None:
    store(agent_id="bob", limits={"unread": 1})
    sending(project)

    assert offering(project)["data"]["notified"] == ["bob"]
    assert call("inbox_count", agent_id="bob")["unread"] == 2


def test_it_limits_the_handoffs_that_wait_for_somebody(call: Call, project: str) -> None:
    store(agent_id="ana", limits={"open_handoffs": 1})
    handoff = offering(project)["data"]["handoff_id"]

    assert refusal(offering(project))["quota"] == "open_handoffs"
    call("handoff_claim", project_root=project, handoff_id=handoff, agent_id="bob")
    assert offering(project)["ok"]


def test_it_counts_no_handoff_whose_deadline_has_passed(call: Call, project: str) -> None:
    store(agent_id="ana", limits={"open_handoffs": 1})
    with time_machine.travel(datetime(2026, 3, 1, 12, tzinfo=UTC), tick=False) as clock:
        assert offering(project, deadline_seconds=1)["ok"]
        clock.shift(timedelta(seconds=2))

        assert offering(project)["ok"]


def test_an_agents_limit_goes_over_its_roles_and_that_over_the_one_for_all(project: str, settings: Any) -> None:
    settings.NEXUS = settings.NEXUS.replaced(limit_recipients=1)
    by_bob = partial(sending, project, from_agent_id="bob", target={"strategy": "mixed", "rules": [
        {"strategy": "direct", "agent_id": "ana"}, {"strategy": "direct", "agent_id": "cleo"}]})  # fmt: skip
    refusal(by_bob())
    store(role="reviewer", limits={"recipients": 2})
    assert by_bob()["ok"]
    store(agent_id="bob", limits={"recipients": 1})
    refusal(by_bob())
    store(agent_id="bob", limits={"recipients": 0})
    assert by_bob()["ok"], "0 is no limit"
    store(agent_id="bob", limits={"recipients": None})
    store(role="reviewer", limits={"recipients": None})
    refusal(by_bob())
    assert not AgentLimits.objects.exists(), "what says nothing is not kept"


@pytest.mark.parametrize(
    "rule",
    [
        {"agent_id": "bob", "refused": ["handoff_create"]},
        {"agent_id": "bob", "refused": ["coordination"]},
        {"role": "reviewer", "refused": ["handoff_create"]},
        {"role": "reviewer", "allowed": ["message_create", "topics"]},
        {"agent_id": "bob", "allowed": ["topics"]},
    ],
)
def test_it_keeps_an_agent_from_verbs(project: str, rule: dict[str, Any]) -> None:
    assert store(**rule)["ok"]

    error = offering(project, from_agent_id="bob")["error"]

    assert error["code"] == "NOT_ALLOWED"
    assert error["details"] == {"operation": "handoff_create", "toolset": "coordination"}
    assert offering(project)["ok"], "ana is nobody's bob"
    assert run(OPERATOR, "handoff_create", {"project_root": project, "from_agent_id": "bob", "target": TO_BOB,
                                            "visibility": "public"})["ok"]  # fmt: skip
    assert not Handoff.objects.filter(from_agent_id="bob").exclude(title="Work for bob").exists()


def test_what_is_allowed_may_be_used_and_a_bound_connection_is_known_by_its_key(project: str) -> None:
    store(role="reviewer", allowed=["message_create", "agent_list"])
    bob = Caller(transport="test", agent_id="bob")

    assert run(bob, "agent_list", {})["ok"]
    assert run(bob, "capability_list", {})["error"]["code"] == "NOT_ALLOWED"


def test_what_another_process_stored_counts_a_second_later(project: str, clock: time_machine.Traveller) -> None:
    sending(project)  # a look at what is stored
    AgentLimits.objects.create(scope="agent", name="ana", values={"messages_per_minute": 1}, updated_at=NOON)
    assert sending(project)["ok"]

    clock.shift(timedelta(seconds=1))

    refusal(sending(project))


@pytest.mark.usefixtures("counted_alone")
def test_it_costs_no_query_while_nothing_is_set(project: str, clock: time_machine.Traveller) -> None:
    sending(project)
    with CaptureQueriesContext(connection) as sent:
        sending(project)
    assert not [query for query in sent if "agent_limits" in query["sql"] or "COUNT(" in query["sql"].upper()]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"agent_id": "bob", "limits": {"nonsense": 1}}, "limits"),
        ({"agent_id": "bob", "limits": {"recipients": -1}}, "limits"),
        ({"agent_id": "bob", "limits": {"recipients": 100_001}}, "limits"),
        ({"agent_id": "bob", "limits": {"recipients": "1"}}, "limits"),
        ({"agent_id": "bob", "limits": {"recipients": True}}, "limits"),
        ({"agent_id": "bob", "refused": ["no_such_verb"]}, "refused"),
        ({"agent_id": "bob", "allowed": ["Coordination"]}, "allowed"),
        ({"agent_id": "bob", "allowed": []}, "allowed"),
        ({"agent_id": "bob", "role": "reviewer"}, "agent_id"),
        ({"limits": {"recipients": 1}}, "agent_id"),
    ],
)
def test_it_refuses_what_is_no_limit(arguments: dict[str, Any], field: str) -> None:
    error = store(**arguments)["error"]

    assert error["code"] == "VALIDATION_ERROR"
    assert error["details"]["field"].startswith(field)
    assert not AgentLimits.objects.exists()


def test_it_is_for_operators_and_recorded(project: str) -> None:
    assert run(LOCAL, "limits_update", {"agent_id": "bob", "refused": ["topics"]})["error"]["code"] == "NOT_OWNER"
    store(agent_id="bob", limits={"unread": 5})
    store(agent_id="bob", limits={"recipients": 2}, refused=["topics"])

    listed = run(OPERATOR, "limits_list", {})["data"]
    assert listed["stored"] == [
        {
            "scope": "agent",
            "name": "bob",
            "limits": {"recipients": 2, "unread": 5},
            "allowed": None,
            "refused": ["topics"],
        }
    ]
    assert set(listed["for_all"]) >= {"messages_per_minute", "recipients", "unread", "open_handoffs"}
    acted = Event.objects.filter(type="operator.acted").order_by("event_id").last()
    assert acted is not None
    assert acted.payload == {
        "operation": "limits_update",
        "agent_id": "bob",
        "operator": "olga",
        "before": {"unread": 5},
        "limits": {"unread": 5, "recipients": 2, "refused": ["topics"]},
    }


@pytest.mark.usefixtures("committed")
def test_rest_tells_when_to_try_again(project: str) -> None:
    store(agent_id="ana", limits={"messages_per_minute": 1})
    said = {"project_root": project, "from_agent_id": "ana", "subject": "s", "body": "b", "target": TO_BOB}
    rest = Client(headers={"host": "127.0.0.1:7777"}, REMOTE_ADDR="127.0.0.1")

    for path in ("/api/v1/messages", "/api/v1/coordination/operations/message_create"):
        sending(project)
        answer = rest.post(path, said, content_type="application/json")
        assert answer.status_code == 429, answer.content
        assert 1 <= int(answer.headers["Retry-After"]) <= 61


@pytest.mark.usefixtures("committed")
@pytest.mark.parametrize("rows", [Message, Handoff, Delivery])
def test_many_at_once_do_not_exceed_it_together(call: Call, project: str, rows: Any) -> None:
    store(agent_id="ana", limits={"messages_per_minute": 3, "open_handoffs": 3} if rows is not Delivery else {})
    store(agent_id="bob", limits={"unread": 3} if rows is Delivery else {})
    call("workspace_resolve", project_root=project)

    create = offering if rows is Handoff else sending
    answers = at_once([partial(create, project)] * 8)

    assert sum(answer["ok"] for answer in answers) == 3, answers
    assert rows.objects.count() == 3


@pytest.mark.usefixtures("committed")
def test_it_keeps_from_reads_what_tells_the_same_as_a_verb(call: Call, project: str) -> None:
    key = run(OPERATOR, "agent_key_issue", {"agent_id": "bob"})["data"]["api_key"]
    there = call("workspace_resolve", project_root=project)["workspace_id"]
    rest = Client(headers={"host": "127.0.0.1:7777", "x-api-key": key})
    same_as = {
        "workspaces": "workspace_resolve",
        "agents": "agent_list",
        "sessions": "agent_list",
        f"channels?workspace={there}": "channel_list",
        f"artifacts?workspace={there}": "artifact_list",
        f"events?workspace={there}": "event_wait",
        f"handoffs?workspace={there}": "handoff_get",
        "messages": "inbox_history",
        "deliveries": "inbox_peek",
        "stream?cursor=0": "event_wait",
    }
    for path, verb in same_as.items():
        store(agent_id="bob", refused=None)
        assert rest.get(f"/api/v1/{path}").status_code == 200, path
        store(agent_id="bob", refused=[verb])
        answer = rest.get(f"/api/v1/{path}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "NOT_ALLOWED"), path
