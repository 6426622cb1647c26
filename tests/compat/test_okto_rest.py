"""REST as clients of okto-nexus 0.3.1 call it: its addresses, `items` in lists, and the ids that rows had there."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from coordination.selectors import agent_of_key_hash
from coordination.services.agents import hash_secret
from nexus.compat.models import ImportedId
from nexus.compat.okto import rest
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


@pytest.fixture
def mail(call: Call, project: str, ann: str, bob: str) -> list[str]:
    """Seven messages of ann, to bob and herself in turn; the newest first."""
    sent = [
        call("message_create", project_root=project, from_agent_id=ann, subject="s", body="b",
             target={"strategy": "direct", "agent_id": (ann, bob)[number % 2]})["message_id"]
        for number in range(7)
    ]  # fmt: skip
    return sent[::-1]


@pytest.mark.parametrize("of", [{}, {"to_agent": "ann"}, {"agent": "bob"}, {"from_agent": "ann", "agent": "ann"}])
def test_a_list_has_pages_by_number(mail: list[str], of: dict[str, Any]) -> None:
    wanted = {"to_agent": mail[::2], "agent": mail[1::2]}.get(next(iter(of), ""), mail)
    paged = []
    for number in range(1, 5):
        page = get("messages", page=number, page_size=2, **of)
        assert (page["page"], page["page_size"], page["total"]) == (number, 2, len(wanted))
        assert page["has_more"] == (2 * number < len(wanted))
        paged += [row["message_id"] for row in page["items"]]
    assert paged == wanted
    assert get("messages", page=10**4 // 200 + 1, page_size=200, **of)["items"] == []


def test_an_agent_counts_off_what_it_may_see(mail: list[str]) -> None:
    key = local.post("/api/v1/agents/bob/key").json()["data"]["api_key"]
    bobs = Client(headers={"host": "localhost", "authorization": f"Bearer {key}"})
    page = bobs.get("/api/v1/messages", {"page": 2, "page_size": 2}).json()["data"]
    assert ([row["message_id"] for row in page["items"]], page["total"]) == (mail[5:6], 3)


def test_pages_reach_as_far_as_messages_are_counted_off(mail: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "PASSED", 4)
    page = get("messages", page=4, page_size=1, agent="bob")  # of the four newest two are bob's
    assert page["items"] == [] and page["has_more"]
    rest_of_it = get("messages", agent="bob", cursor=page["next_cursor"])
    assert [row["message_id"] for row in rest_of_it["items"]] == mail[5:6]


def test_a_list_that_it_does_not_page_has_no_numbers(ann: str) -> None:
    assert get("agents", status=400, page=1)["code"] == "VALIDATION_ERROR"


@pytest.mark.parametrize(
    "query",
    [{"page": "x"}, {"page": "-1"}, {"page_size": "1.5"}, {"page": "9" * 40}, {"page": 52, "page_size": 200},
     {"page": 1, "cursor": "x"}, {"page": 1, "limit": 2}, {"page_size": 2, "ordering": "from_agent_id"}],
)  # fmt: skip
def test_numbers_that_are_none_are_refused(db: None, query: dict[str, Any]) -> None:
    assert get("messages", status=400, **query)["code"] == "VALIDATION_ERROR"


def test_pages_have_bounds(mail: list[str]) -> None:
    assert [get("messages", page=0, page_size=size)["page_size"] for size in (0, 201, 10**8)] == [1, 200, 200]
    assert len(get("messages", page=1)["items"]) == 7


def test_filters_have_their_names_of_there(mail: list[str], workspace: str) -> None:
    made: dict[str, Any] = {"workspace": workspace, "type": "message.created"}
    assert len(get("events", agent="ann", **made)["items"]) == 7
    assert get("events", agent="bob", **made)["items"] == []
    assert get("events", trace="none", **made)["items"] == []
    assert get("messages", since="2999-01-01T00:00:00Z")["items"] == []
    assert get("messages", status=400, trace="none")["code"] == "VALIDATION_ERROR"
