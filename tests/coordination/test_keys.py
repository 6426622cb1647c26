"""Agents' keys and agents as operators manage them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from coordination.models import Agent, AgentKey, Event, Session
from coordination.services import keys
from coordination.services.agents import hash_secret
from coordination.toolset import COORDINATION, run
from inbox.models import Delivery
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import NexusError
from tests.conftest import Call
from tests.keys import agent_of_key

OLGA = Caller("rest", operator="olga")
OPERATORS_ONLY = sorted(name for name, operation in COORDINATION.operations.items() if operation.operator_only)


def deed(name: str, **arguments: Any) -> dict[str, Any]:
    envelope = run(OLGA, name, arguments)
    assert envelope["ok"], envelope
    data: dict[str, Any] = envelope["data"]
    return data


def trail() -> list[tuple[str, Any, Any]]:
    events = [event for event in Event.objects.order_by("event_id") if event.payload.get("operator") == "olga"]
    return [(event.type, event.payload.get("agent_id"), event.actor_agent_id) for event in events]


@pytest.fixture
def ana(db: None) -> str:
    """The key of the agent `ana`."""
    key: str = deed("agent_create", agent_id="ana", role="writer")["api_key"]
    return key


def test_it_makes_an_agent_with_a_key_that_the_store_keeps_only_as_a_hash(ana: str) -> None:
    assert re.fullmatch("nxs_[0-9a-f]{48}", ana)
    assert AgentKey.objects.get().key_hash == hash_secret(ana)
    assert agent_of_key(ana) == "ana"
    assert Agent.objects.get().last_seen_at is None


def test_it_makes_no_agent_twice(ana: str) -> None:
    error = run(OLGA, "agent_create", {"agent_id": "ana"})["error"]
    assert error["code"] == "VALIDATION_ERROR"
    assert agent_of_key(ana) == "ana"


def test_it_lets_the_old_key_die_with_the_new_one(ana: str) -> None:
    new = deed("agent_key_issue", agent_id="ana")["api_key"]
    assert agent_of_key(ana) is None
    assert agent_of_key(new) == "ana"


def test_a_lent_key_stands_beside_its_agents_own(ana: str) -> None:
    lent, other = keys.lend(agent_id="ana"), keys.lend(agent_id="ana")
    assert {agent_of_key(key) for key in (ana, lent, other)} == {"ana"}
    keys.revoke_lent(lent)
    assert [agent_of_key(key) for key in (ana, lent, other)] == ["ana", None, "ana"]
    new = deed("agent_key_issue", agent_id="ana")["api_key"]
    assert [agent_of_key(key) for key in (ana, new, other)] == [None, "ana", "ana"]
    with pytest.raises(NexusError):
        keys.lend(agent_id="nobody")


@pytest.mark.parametrize("deactivated", [True, False], ids=["deactivated", "deleted"])
def test_a_lent_key_ends_with_the_right_to_have_one(ana: str, deactivated: bool) -> None:
    lent = keys.lend(agent_id="ana")
    if deactivated:
        deed("agent_key_set_active", agent_id="ana", active=False)
        assert agent_of_key(lent) is None
        deed("agent_key_set_active", agent_id="ana", active=True)
    else:
        deed("agent_delete", agent_id="ana")
    assert agent_of_key(lent) is None


def test_it_gives_a_registered_agent_its_first_key(call: Call) -> None:
    call("agent_register", agent_id="bo")
    assert agent_of_key(deed("agent_key_issue", agent_id="bo")["api_key"]) == "bo"


def test_it_takes_a_deactivated_key_back(ana: str) -> None:
    deed("agent_key_set_active", agent_id="ana", active=False)
    assert agent_of_key(ana) is None
    deed("agent_key_set_active", agent_id="ana", active=True)
    assert agent_of_key(ana) == "ana"


def test_it_records_every_deed_with_its_operator_and_without_the_key(ana: str) -> None:
    deed("agent_key_issue", agent_id="ana")
    deed("agent_update", agent_id="ana", role="editor")
    deed("agent_key_set_active", agent_id="ana", active=False)
    deed("agent_key_set_active", agent_id="ana", active=False)  # changes nothing
    deed("agent_key_set_active", agent_id="ana", active=True)
    deed("agent_delete", agent_id="ana")
    assert [(type, agent) for type, agent, _ in trail()] == [
        ("agent.created", "ana"),
        ("agent.key_regenerated", "ana"),
        ("agent.updated", "ana"),
        ("agent.key_deactivated", "ana"),
        ("agent.key_reactivated", "ana"),
        ("agent.deleted", "ana"),
    ]
    assert "nxs_" not in str(list(Event.objects.values_list("payload", flat=True)))


def test_it_keeps_the_trail_from_agents(ana: str, call: Call, settings: Any) -> None:
    page = call("event_get", project_root=str(settings.NEXUS.home), agent_id="ana", stream="agent")
    assert page["events"] == []


def test_it_records_what_an_operator_does_through_an_agents_verb(ana: str, project: str) -> None:
    deed("message_create", project_root=project, from_agent_id="ana", subject="hello", body="there")
    acted = Event.objects.get(type="operator.acted")
    assert acted.payload == {"operation": "message_create", "from_agent_id": "ana", "events": 1, "operator": "olga"}
    deed("inbox_count", agent_id="ana")
    assert Event.objects.filter(type="operator.acted").count() == 1


def test_it_records_no_sign_of_life_that_an_operator_gives_for_an_agent(ana: str, project: str, call: Call) -> None:
    workspace = call("workspace_resolve", project_root=project)["workspace_id"]
    session = call("session_open", agent_id="ana", workspace_id=workspace)["session_id"]
    deed("session_heartbeat", session_id=session)
    assert Event.objects.filter(type="session.heartbeat").exists()
    assert not Event.objects.filter(type="operator.acted").exists()


def test_it_records_nothing_of_a_deed_that_failed(ana: str) -> None:
    before = Event.objects.count()
    assert not run(OLGA, "message_create", {"project_root": "/", "from_agent_id": "ana", "subject": " ", "body": ""})[
        "ok"
    ]
    assert not run(OLGA, "agent_key_issue", {"agent_id": "nobody"})["ok"]
    assert Event.objects.count() == before


def test_it_names_the_operator_who_closed_a_session(ana: str, project: str, call: Call) -> None:
    workspace = call("workspace_resolve", project_root=project)["workspace_id"]
    session = call("session_open", agent_id="ana", workspace_id=workspace)["session_id"]
    deed("session_close", session_id=session)
    closed = Event.objects.get(type="session.closed")
    assert (closed.payload["operator"], closed.actor_agent_id, closed.workspace_id) == ("olga", None, workspace)


def test_it_keeps_the_history_of_a_deleted_agent(ana: str, project: str, call: Call) -> None:
    call("agent_register", agent_id="bo")
    workspace = call("workspace_resolve", project_root=project)["workspace_id"]
    call("session_open", agent_id="ana", workspace_id=workspace)
    to_ana = {"strategy": "direct", "agent_id": "ana"}
    letter = {"project_root": project, "from_agent_id": "bo", "subject": "s", "body": "b"}
    sent = call("message_create", **letter, target=to_ana)

    assert deed("agent_delete", agent_id="ana")["sessions_closed"] == 1

    assert agent_of_key(ana) is None
    assert [agent["agent_id"] for agent in call("agent_list")["agents"]] == ["bo"]
    assert run(OLGA, "agent_get", {"agent_id": "ana"})["error"]["code"] == "NOT_FOUND"
    assert run(OLGA, "message_create", {**letter, "target": to_ana})["error"]["code"] == "NOT_FOUND"
    assert Session.objects.get().status == "closed"
    assert Delivery.objects.get().recipient_id == "ana"
    assert call("message_status", message_id=sent["message_id"])["deliveries"][0]["recipient"] == "ana"

    deed("agent_create", agent_id="ana")
    assert call("inbox_count", agent_id="ana")["unread"] == 1


def test_it_lets_only_an_operator_bring_a_deleted_agent_back(ana: str, refused: Call, call: Call) -> None:
    deed("agent_delete", agent_id="ana")
    assert refused("agent_register", agent_id="ana", role="again")["code"] == "NOT_OWNER"
    assert call("agent_list")["agents"] == []
    assert agent_of_key(deed("agent_create", agent_id="ana")["api_key"]) == "ana"
    deed("agent_delete", agent_id="ana")
    assert deed("agent_register", agent_id="ana", role="again")["role"] == "again"


@pytest.mark.parametrize("revoke", ["agent_delete", "agent_key_issue", "agent_key_set_active"])
def test_it_checks_the_key_of_a_lasting_connection_with_every_call(ana: str, revoke: str) -> None:
    bound = Caller("stdio", agent_id="ana", credential=hash_secret(ana))
    assert run(bound, "inbox_pull", {"agent_id": "ana"})["ok"]
    deed(revoke, agent_id="ana", **({"active": False} if revoke == "agent_key_set_active" else {}))
    for name, arguments in (("inbox_pull", {"agent_id": "ana"}), ("nexus_info", {}), ("agent_list", {})):
        assert run(bound, name, arguments)["error"]["code"] == "NOT_OWNER", name


def test_it_lets_a_key_that_is_taken_back_into_service_go_on(ana: str) -> None:
    bound = Caller("stdio", agent_id="ana", credential=hash_secret(ana))
    for active in (False, True):
        deed("agent_key_set_active", agent_id="ana", active=active)
    assert run(bound, "inbox_pull", {"agent_id": "ana"})["ok"]


def test_it_withdraws_an_open_handoff_but_none_that_is_claimed(ana: str, project: str, call: Call) -> None:
    offer = {
        "project_root": project,
        "from_agent_id": "ana",
        "target": {"strategy": "broadcast"},
        "visibility": "public",
    }
    first, second = (call("handoff_create", **offer)["handoff_id"] for _ in range(2))
    call("handoff_claim", project_root=project, handoff_id=second, agent_id="bo")
    deed("handoff_withdraw", handoff_id=first, reason="not needed")
    cancelled = Event.objects.get(type="handoff.cancelled")
    assert (cancelled.payload["operator"], cancelled.payload["reason"]) == ("olga", "not needed")
    for handoff in (first, second):
        assert run(OLGA, "handoff_withdraw", {"handoff_id": handoff})["error"]["code"] == "INVALID_TRANSITION"


@pytest.mark.parametrize("caller", [Caller("stdio"), Caller("http", agent_id="ana")])
def test_it_keeps_operators_verbs_from_everybody_else(
    caller: Caller, ana: str, plausible: Callable[[str], dict[str, Any]]
) -> None:
    for name in OPERATORS_ONLY:
        assert run(caller, name, plausible(name))["error"]["code"] == "NOT_OWNER", name
        assert not COORDINATION.operations[name].tool, name


@pytest.fixture
def plausible() -> Callable[[str], dict[str, Any]]:
    """Arguments that pass the parameter model of an operator's operation."""
    values = {"active": False, "values": {"trust_mode": "open"}, "confirm": "reset", "kind": "github", "number": 1}
    values["lasting"] = "1h"

    def arguments(name: str) -> dict[str, Any]:
        fields = COORDINATION.operations[name].params.model_fields
        return {field: values.get(field, "ana") for field, info in fields.items() if info.is_required()}

    return arguments
