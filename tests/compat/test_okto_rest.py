"""REST as clients of okto-nexus 0.3.1 call it: its addresses, `items` in lists, and the ids that rows had there."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from coordination.selectors import agent_of_key_hash
from coordination.services.agents import hash_secret
from nexus.compat.models import ImportedId
from tests.conftest import Call

local = Client(headers={"host": "localhost"})
OLD = "0" * 12 + "4" + "0" * 19


@pytest.fixture
def bob(call: Call) -> str:
    call("agent_register", agent_id="bob")
    return "bob"


def get(path: str, status: int = 200, **query: Any) -> Any:
    response = local.get(f"/api/v1/{path}", query)
    assert response.status_code == status, response.content
    return response.json()["data" if status == 200 else "error"]


def test_info_tells_versions_and_features(call: Call) -> None:
    told = get("info")
    assert told["service"] == "nexus" and told["trust_mode"] == "open"
    assert told["package_version"] == call("nexus_info")["package_version"]
    assert told["features"]["feature_health"] and not told["features"]["feature_memory"]


def test_the_graph_has_agents_and_what_goes_between_them(
    call: Call, project: str, workspace: str, ann: str, bob: str
) -> None:
    to_bob = {"strategy": "direct", "agent_id": bob}
    for _ in range(2):
        call("message_create", project_root=project, from_agent_id=ann, subject="s", body="b", target=to_bob)
    pulled = call("inbox_pull", agent_id=bob, limit=1)["messages"][0]
    call("handoff_create", project_root=project, from_agent_id=ann, target=to_bob, visibility="public")
    graph = get("graph", workspace=workspace)
    nodes = {node["agent_id"]: node for node in graph["nodes"]}
    assert nodes[bob]["inbox"] == {"unread": 2, "delivered": 1, "read": 0, "parked": 0}  # the handoff brought one
    assert (nodes[bob]["pending_inbox"], nodes[ann]["open_handoffs"], nodes[bob]["open_handoffs"]) == (3, 1, 0)
    assert nodes[ann]["last_action"]["type"] == "message.created"
    (edge,) = graph["edges"]["messages"]
    assert (edge["from"], edge["to"], edge["count"]) == (ann, bob, 3)
    assert edge["in_flight"] == {"unread": 2, "delivered": 1} and edge["last_done_at"] == pulled["delivered_at"]
    assert [row["from_agent_id"] for row in graph["edges"]["handoffs"]] == [ann]
    call("inbox_ack", agent_id=bob, message_ids=[pulled["message_id"]])
    (bobs,) = (node for node in get("graph")["nodes"] if node["agent_id"] == bob)
    assert bobs["inbox"]["read"] == 1
    assert get("graph", window_hours=1)["window_hours"] == 1


@pytest.mark.parametrize("hours", ["0", "-1", "x", "9" * 30])
def test_a_window_that_is_none_is_refused(hours: str, db: None) -> None:
    assert get("graph", status=400, window_hours=hours)["code"] == "VALIDATION_ERROR"


def test_the_graph_of_an_unknown_workspace_is_not_found(db: None) -> None:
    assert get("graph", status=404, workspace="f" * 64)["code"] == "NOT_FOUND"


def test_the_graph_is_for_operators(ann: str) -> None:
    key = local.post("/api/v1/agents/ann/key").json()["data"]["api_key"]
    answer = Client(headers={"host": "localhost", "authorization": f"Bearer {key}"}).get("/api/v1/graph")
    assert answer.status_code == 403


def test_a_key_is_regenerated(ann: str) -> None:
    first, second = (local.post(f"/api/v1/agents/{ann}/regenerate-key").json()["data"] for _ in range(2))
    assert agent_of_key_hash(hash_secret(second["api_key"])) == ann
    assert agent_of_key_hash(hash_secret(first["api_key"])) is None
    assert second.keys() == {"agent_id", "api_key", "rotated_at"}
    assert local.post("/api/v1/agents/nobody/regenerate-key").status_code == 404


@pytest.mark.parametrize("path", ["agents", "workspaces", "messages", "handoffs", "sessions", "events", "capabilities"])
def test_lists_have_items_beside_results(path: str, ann: str) -> None:
    told = get(path)
    assert told["items"] == told["results"]
    assert ann in {row["agent_id"] for row in get("agents")["items"]}


def test_old_ids_are_understood_in_addresses(call: Call, project: str, ann: str, bob: str) -> None:
    to_bob = {"strategy": "direct", "agent_id": bob}
    message = call("message_create", project_root=project, from_agent_id=ann, subject="s", body="b", target=to_bob)
    handoff = call("handoff_create", project_root=project, from_agent_id=ann, target=to_bob, visibility="public")
    ours = {"msg": message["message_id"], "hof": handoff["handoff_id"]}
    ImportedId.objects.bulk_create(ImportedId(old_id=f"{kind}_{OLD}", new_id=new) for kind, new in ours.items())
    assert get(f"messages/msg_{OLD}")["message_id"] == ours["msg"]
    assert [row["message_id"] for row in get(f"messages/msg_{OLD}/thread")["items"]] == [ours["msg"]]
    assert get(f"handoffs/hof_{OLD}")["handoff_id"] == ours["hof"]
    cancelled = local.post(f"/api/v1/handoffs/hof_{OLD}/cancel", {}, content_type="application/json")
    assert cancelled.json()["data"]["handoff_id"] == ours["hof"]
    assert get(f"messages/msg_{OLD[:-1]}1", status=404)["code"] == "NOT_FOUND"
