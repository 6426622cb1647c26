"""`coordination_health`, as clients of okto-nexus 0.3.1 call it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.test import Client

from coordination.models import Agent, Session
from handoffs.models import Handoff
from nexus.core.clock import now
from nexus.core.operations import registry
from tests.conftest import Call

local = Client(headers={"host": "localhost"})


def _offer(call: Call, project: str) -> str:
    offer = {"visibility": "public", "target": {"strategy": "broadcast"}}
    made: str = call("handoff_create", project_root=project, from_agent_id="ann", **offer)["handoff_id"]
    return made


def _metrics(call: Call, project: str, **more: Any) -> Any:
    return call("coordination_health", project_root=project, **more)["metrics"]


def test_it_counts_what_happened(call: Call, project: str, workspace: str, ann: str) -> None:
    call("agent_register", agent_id="bob")
    call("session_open", agent_id="bob", workspace_id=workspace)
    for _ in range(26):
        to_bob = {"strategy": "direct", "agent_id": "bob"}
        call("message_create", project_root=project, from_agent_id=ann, subject="s", body="b", target=to_bob)
    healthy = call("coordination_health", project_root=project)
    metrics = healthy["metrics"]
    assert (healthy["status"], healthy["window"], healthy["window_seconds"]) == ("warn", "24h", 86400)
    assert metrics["message_volume"] == {"scope": "windowed", "status": "ok", "count": 26}
    assert metrics["event_volume"]["count"] >= 26
    assert metrics["inbox_backlog"] == {
        "scope": "snapshot",
        "status": "warn",
        "total_unread": 26,
        "per_agent": [{"agent_id": "bob", "unread": 26}],
        "others_unread": 0,
    }
    assert metrics["agent_presence"]["present"] == 1
    assert healthy["thresholds"]["per_agent_unread"] == 25


def test_it_tells_how_work_goes(call: Call, project: str, ann: str) -> None:
    call("agent_register", agent_id="bob")
    ids = [_offer(call, project) for _ in range(4)]
    assert _metrics(call, project)["handoff_rejections"]["rejection_rate"] == 0.0
    of_bob = {"project_root": project, "agent_id": "bob"}
    for handoff_id in ids[:3]:
        call("handoff_claim", handoff_id=handoff_id, **of_bob)
    call("handoff_complete", handoff_id=ids[0], result="Done.", **of_bob)
    for handoff_id in ids[1:3]:
        call("handoff_reject", handoff_id=handoff_id, reason="No.", **of_bob)
    Handoff.objects.filter(pk=ids[3]).update(created_at=now() - timedelta(minutes=40))
    metrics = _metrics(call, project)
    assert metrics["handoff_completion"]["completed_pairs"] == 1
    assert metrics["handoff_rejections"]["status"] == "warn"
    assert (metrics["handoff_rejections"]["rejected"], metrics["handoff_rejections"]["rejection_rate"]) == (2, 0.5)
    assert metrics["unclaimed_handoffs"]["status"] == "warn" and metrics["unclaimed_handoffs"]["count"] == 1
    assert metrics["unclaimed_handoffs"]["oldest_age_seconds"] >= 2400


def test_stale_agents_warn(call: Call, project: str, workspace: str, ann: str) -> None:
    call("session_open", agent_id=ann, workspace_id=workspace)
    ago = now() - timedelta(minutes=10)
    Session.objects.update(last_heartbeat_at=ago, started_at=ago)
    Agent.objects.update(last_seen_at=ago)
    presence = _metrics(call, project)["agent_presence"]
    assert (presence["stale"], presence["status"]) == (1, "warn")


def test_it_reads_and_leaves_no_trace(call: Call, project: str, workspace: str, ann: str) -> None:
    before = list(Agent.objects.values("last_seen_at"))
    call("coordination_health", workspace_id=workspace, agent_id=ann, window="7d")
    assert list(Agent.objects.values("last_seen_at")) == before


def test_it_refuses_what_it_does_not_know(refused: Call, project: str, db: None) -> None:
    assert refused("coordination_health", project_root=project)["code"] == "NOT_FOUND"
    assert refused("coordination_health", project_root=project, window="2h")["code"] == "VALIDATION_ERROR"
    assert refused("coordination_health")["code"] == "WORKSPACE_REQUIRED"


def test_rest_answers_the_same(call: Call, project: str, workspace: str, ann: str) -> None:
    path = f"/api/v1/workspaces/{workspace}/health"
    told = local.get(path, {"window": "1h"}).json()["data"]
    asked = call("coordination_health", project_root=project, window="1h")
    del told["generated_at"], asked["generated_at"]
    assert told == asked
    assert local.get(path, {"window": "30d"}).status_code == 400
    assert local.get(f"/api/v1/workspaces/{'0' * 64}/health").status_code == 404


def test_an_agent_may_call_it_and_does_not_pay_for_it() -> None:
    choice = registry.default()
    assert registry.find_tool(choice, "coordination_health") is not None
    assert "coordination_health" not in {tool.name for toolset in choice for tool in toolset.tools}
