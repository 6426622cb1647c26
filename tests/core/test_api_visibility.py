"""What an agent's key sees over REST, and what it tries in vain: other workspaces, other inboxes, other identities."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from coordination.models import Event
from tests.conftest import Call

KEYED = ["workspaces", "agents", "sessions", "channels", "messages", "deliveries", "handoffs", "artifacts", "events"]
SCOPED = ["channels", "handoffs", "artifacts", "events"]


@dataclass
class Scene:
    """Ana works in `here`, Bo in `there`; Bo and Cy exchange what is none of Ana's business."""

    here: str
    there: str
    there_root: str
    theirs: dict[str, str]  # an id per resource, of what Ana may not see
    ana: Client


@pytest.fixture
def scene(call: Call, tmp_path: Path) -> Scene:
    roots = {}
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        roots[name] = call("workspace_resolve", project_root=str(tmp_path / name))
    for agent in ("ana", "bo", "cy"):
        call("agent_register", agent_id=agent)
    there_root, there = roots["there"]["root_realpath"], roots["there"]["workspace_id"]
    to_cy = {"strategy": "direct", "agent_id": "cy"}
    of_bo = {"project_root": there_root, "from_agent_id": "bo", "target": to_cy}
    sent = call("message_create", **of_bo, subject="secret", body="secret")
    handoff = call("handoff_create", **of_bo, visibility="private", payload="secret")
    local = Client(headers={"host": "localhost"})
    key = local.post("/api/v1/agents/ana/key", {}, content_type="application/json").json()["data"]["api_key"]
    made = call("artifact_put", project_root=there_root, artifact_type="text", content="secret")
    theirs = {
        "sessions": call("session_open", agent_id="bo", workspace_id=there)["session_id"],
        "channels": call("channel_create", project_root=there_root, name="secret")["channel"]["channel_id"],
        "artifacts": made["artifact_id"],
        "messages": sent["message_id"],
        "deliveries": local.get("/api/v1/deliveries?recipient=cy").json()["data"]["results"][0]["delivery_id"],
        "handoffs": handoff["handoff_id"],
        "events": str(Event.objects.get(type="handoff.created").event_id),
    }
    ana = Client(headers={"host": "localhost", "x-api-key": key})
    return Scene(roots["here"]["workspace_id"], there, there_root, theirs, ana)


def test_it_shows_an_agent_no_row_of_another_workspace_by_its_id(scene: Scene) -> None:
    for name, key in scene.theirs.items():
        query = {"workspace": scene.here} if name in SCOPED else {}
        response = scene.ana.get(f"/api/v1/{name}/{key}", query)
        assert response.status_code == 404, name
        assert b"secret" not in response.content
    assert scene.ana.get(f"/api/v1/messages/{scene.theirs['messages']}/thread").status_code == 404


def test_it_shows_an_agent_nothing_private_even_in_the_workspace_of_it(scene: Scene) -> None:
    query = {"workspace": scene.there}
    for name in ("sessions", "messages", "deliveries", "handoffs", "events"):
        assert scene.ana.get(f"/api/v1/{name}/{scene.theirs[name]}", query).status_code == 404, name
        listed = scene.ana.get(f"/api/v1/{name}", query).json()["data"]["results"]
        assert "secret" not in json.dumps(listed), name


def test_it_lists_no_row_of_another_workspace_and_no_others_mail(scene: Scene) -> None:
    for name in scene.theirs:
        query = {"workspace": scene.here} if name in SCOPED else {}
        assert scene.ana.get(f"/api/v1/{name}", query).json()["data"]["results"] == [], name


@pytest.mark.parametrize("name", SCOPED)
def test_it_asks_an_agent_for_the_workspace_it_looks_from(scene: Scene, name: str) -> None:
    for path in (name, f"{name}/{scene.theirs[name]}"):
        response = scene.ana.get(f"/api/v1/{path}")
        assert (response.status_code, response.json()["error"]["code"]) == (400, "WORKSPACE_REQUIRED")


def test_it_shows_an_agent_its_own(scene: Scene, call: Call) -> None:
    to_ana = {"strategy": "direct", "agent_id": "ana"}
    letter = {"project_root": scene.there_root, "subject": "s", "body": "b"}
    call("message_create", **letter, from_agent_id="bo", target=to_ana)
    call("message_create", **letter, from_agent_id="ana", target={"strategy": "direct", "agent_id": "cy"})
    call("handoff_create", project_root=scene.there_root, from_agent_id="bo", target=to_ana, visibility="private")
    there = {"workspace": scene.there}
    messages = scene.ana.get("/api/v1/messages", there).json()["data"]["results"]
    assert {row["from_agent_id"] for row in messages} == {"ana", "bo"}
    assert len(scene.ana.get("/api/v1/handoffs", there).json()["data"]["results"]) == 1
    types = [row["type"] for row in scene.ana.get("/api/v1/events", there).json()["data"]["results"]]
    assert "handoff.created" in types and types.count("message.created") >= 2


def test_it_tells_the_project_of_mail_by_name(scene: Scene, call: Call) -> None:
    to_ana = {"strategy": "direct", "agent_id": "ana"}
    letter = {"project_root": scene.there_root, "from_agent_id": "bo", "subject": "s", "body": "b", "target": to_ana}
    sent = call("message_create", **letter)["message_id"]
    for path in ("messages", f"messages/{sent}/thread", "deliveries"):
        (row,) = scene.ana.get(f"/api/v1/{path}").json()["data"]["results"]
        assert (row["workspace_id"], row["workspace_name"]) == (scene.there, "there"), path
    assert scene.ana.get(f"/api/v1/messages/{sent}").json()["data"]["workspace_name"] == "there"


def test_it_shows_a_recipient_no_other_recipients(scene: Scene, call: Call) -> None:
    both = {"strategy": "mixed", "rules": [{"strategy": "direct", "agent_id": name} for name in ("ana", "cy")]}
    letter = {"project_root": scene.there_root, "from_agent_id": "bo", "subject": "s", "body": "b", "target": both}
    sent = call("message_create", **letter)["message_id"]
    shown = scene.ana.get(f"/api/v1/messages/{sent}").json()["data"]["deliveries"]
    assert [row["recipient"] for row in shown] == ["ana"]


def test_it_tells_an_agent_of_keys_nothing(scene: Scene) -> None:
    assert {row["key"] for row in scene.ana.get("/api/v1/agents").json()["data"]["results"]} == {None}


def test_it_lets_a_key_act_as_its_agent_only(scene: Scene, committed: None) -> None:
    before = Event.objects.count()
    letter = {"project_root": scene.there_root, "from_agent_id": "bo", "subject": "s", "body": "b"}
    response = scene.ana.post("/api/v1/operations/message_create", letter, content_type="application/json")
    assert (response.status_code, response.json()["error"]["code"]) == (403, "NOT_OWNER"), response.json()
    assert Event.objects.count() == before


def test_it_keeps_a_key_from_what_is_anothers_by_its_id(scene: Scene, committed: None) -> None:
    for name in ("session_heartbeat", "session_close", "message_status", "message_receipts"):
        kind = name.partition("_")[0]
        argument = {f"{kind}_id": scene.theirs[f"{kind}s"]}
        response = scene.ana.post(f"/api/v1/operations/{name}", argument, content_type="application/json")
        assert (response.status_code, response.json()["error"]["code"]) == (403, "NOT_OWNER"), name


def test_it_keeps_a_key_from_an_artifact_of_another_workspace(scene: Scene, tmp_path: Path, committed: None) -> None:
    argument = {"project_root": str(tmp_path / "here"), "artifact_id": scene.theirs["artifacts"]}
    response = scene.ana.post("/api/v1/operations/artifact_get", argument, content_type="application/json")
    assert response.status_code == 404


FOREIGN = [
    ({"host": "evil.example"}, 400),
    ({"host": "evil.example", "origin": "http://evil.example"}, 400),
    ({"origin": "http://evil.example"}, 403),
    ({"origin": "null"}, 403),
    ({"x-forwarded-for": "127.0.0.1"}, 401),
    ({"forwarded": "for=127.0.0.1"}, 401),
    ({"x-real-ip": "127.0.0.1"}, 401),
    ({"x-api-key": "nxs_" + "0" * 48}, 401),
]
STRANGER = "192.168.1.7"


@pytest.mark.parametrize("name", [*KEYED, "capabilities", "settings", "schema", "docs", "operations/agent_list"])
def test_it_refuses_rebinding_forging_guessing_and_strangers_on_every_path(db: None, name: str) -> None:
    def status(peer: str = "127.0.0.1", **headers: str) -> int:
        client = Client(headers={"host": "localhost", **headers}, REMOTE_ADDR=peer)
        path = f"/api/v1/{name}"
        return (client.post(path, {}, "application/json") if "/" in name else client.get(path)).status_code

    for headers, expected in FOREIGN:
        assert status(**headers) == expected, headers
    assert status(STRANGER) == 401


def test_it_takes_a_login_of_the_staff_for_an_operator_by_name(scene: Scene, admin_user: Any, committed: None) -> None:
    client = Client(headers={"host": "localhost"}, REMOTE_ADDR=STRANGER)
    client.force_login(admin_user)
    assert client.get("/api/v1/settings").status_code == 200
    assert client.post("/api/v1/agents", {"agent_id": "di"}, content_type="application/json").status_code == 201
    assert Event.objects.get(type="agent.created").payload["operator"] == "admin"
    foreign = client.post(
        "/api/v1/agents", {"agent_id": "ed"}, content_type="application/json", headers={"origin": "http://evil.example"}
    )
    assert foreign.status_code == 403
