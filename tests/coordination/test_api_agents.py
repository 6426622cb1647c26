"""Agents, keys, sessions and settings over REST, and what every error looks like."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.test import Client
from pytest_django import DjangoDbBlocker

from coordination.models import Agent, Event
from tests.conftest import Call

local = Client(headers={"host": "localhost"})


def send(method: str, path: str, body: Any = None, **headers: str) -> Any:
    return local.generic(method, f"/api/v1/{path}", json.dumps(body or {}), "application/json", headers=headers or None)


def data(response: Any, status: int = 200) -> dict[str, Any]:
    assert response.status_code == status, response.content
    found: dict[str, Any] = response.json()["data"]
    return found


def error(response: Any, status: int) -> str:
    assert response.status_code == status, response.content
    body = response.json()
    assert body.keys() == {"ok", "error"} and body["ok"] is False and body["error"]["message"]
    code: str = body["error"]["code"]
    return code


@pytest.fixture(scope="module")
def schema(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> dict[str, Any]:
    """What the server says of itself; to make the first one imports what asks for C libraries, by a process."""
    with django_db_blocker.unblock():
        made: dict[str, Any] = local.get("/api/v1/schema").json()
    return made


@pytest.fixture
def ana(db: None) -> str:
    """The key of the agent `ana`, made over REST."""
    key: str = data(send("POST", "agents", {"agent_id": "ana", "role": "writer"}), 201)["api_key"]
    return key


def test_an_operator_manages_an_agent_and_its_key(ana: str) -> None:
    data(send("PATCH", "agents/ana", {"capabilities": ["ocr"]}))
    shown = data(send("GET", "agents/ana"))
    assert (shown["role"], shown["capabilities"], shown["key"]["active"]) == ("writer", ["ocr"], True)
    assert ana not in json.dumps(shown)
    assert data(send("GET", "agents/ana", x_api_key=ana))["agent_id"] == "ana"
    for active, status in ((False, 401), (True, 200)):
        assert data(send("PATCH", "agents/ana/key", {"active": active}))["active"] is active
        assert send("GET", "agents", x_api_key=ana).status_code == status
    answer = send("POST", "agents/ana/key")
    assert answer["Cache-Control"] == "no-store", "it holds a key"
    assert error(send("GET", "agents", x_api_key=ana), 401) == "NOT_OWNER"
    new = data(answer, 201)["api_key"]
    assert send("GET", "agents", x_api_key=new).status_code == 200
    data(send("DELETE", "agents/ana"))
    assert error(send("GET", "agents/ana"), 404) == "NOT_FOUND"
    assert error(send("GET", "agents", x_api_key=new), 401) == "NOT_OWNER"


def test_an_operator_closes_a_session_and_cancels_a_handoff(ana: str, call: Call, project: str, workspace: str) -> None:
    session = call("session_open", agent_id="ana", workspace_id=workspace)["session_id"]
    assert data(send("POST", f"sessions/{session}/close"))["status"] == "closed"
    assert Event.objects.get(type="session.closed").payload["operator"] == "local"
    target = {"strategy": "broadcast"}
    offer = {"project_root": project, "from_agent_id": "ana", "target": target, "visibility": "public"}
    handoff = data(send("POST", "handoffs", offer), 201)["handoff_id"]
    assert data(send("POST", f"handoffs/{handoff}/cancel", {"reason": "done"}))["status"] == "CANCELLED"
    assert error(send("POST", f"handoffs/{handoff}/cancel"), 409) == "INVALID_TRANSITION"


def test_it_shows_and_stores_settings(transactional_db: None, committed: None) -> None:
    assert {row["name"] for row in data(send("GET", "settings"))["settings"]} >= {"trust_mode", "home"}
    assert data(send("PATCH", "settings", {"max_event_limit": 7}))["updated"] == ["max_event_limit"]
    rows = {row["name"]: row for row in data(send("GET", "settings"))["settings"]}
    assert (rows["max_event_limit"]["value"], rows["max_event_limit"]["source"]) == (7, "stored")
    data(send("PATCH", "settings", {"max_event_limit": None}))
    assert error(send("PATCH", "settings", {"home": "/x"}), 409) == "CONFIG_ERROR"
    assert error(send("PATCH", "settings", {"max_event_limit": 0}), 400) == "VALIDATION_ERROR"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "agents", {"agent_id": "bo"}),
        ("PATCH", "agents/ana", {"role": "boss"}),
        ("DELETE", "agents/ana", {}),
        ("POST", "agents/ana/key", {}),
        ("PATCH", "agents/ana/key", {"active": True}),
        ("GET", "settings", {}),
        ("PATCH", "settings", {"trust_mode": "open"}),
        ("POST", "handoffs/hnd_1/cancel", {}),
    ],
)
def test_it_keeps_operators_actions_from_an_agents_key(ana: str, method: str, path: str, body: dict[str, Any]) -> None:
    assert error(send(method, path, body, x_api_key=ana), 403) == "NOT_OWNER"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "nothing", 404, "NOT_FOUND"),
        ("GET", "agents/nobody", 404, "NOT_FOUND"),
        ("GET", "agents/", 404, "NOT_FOUND"),
        ("GET", "events/999999999999999999", 404, "NOT_FOUND"),
        ("GET", "events/abc", 404, "NOT_FOUND"),
        ("GET", "messages/a%00b", 404, "NOT_FOUND"),
        ("GET", "messages/nothing/thread", 404, "NOT_FOUND"),
        ("PUT", "agents/ana", 405, "VALIDATION_ERROR"),
        ("DELETE", "events/1", 405, "VALIDATION_ERROR"),
        ("PATCH", "messages/msg_1", 405, "VALIDATION_ERROR"),
        ("TRACE", "agents", 405, "VALIDATION_ERROR"),
        ("OPTIONS", "agents", 405, "VALIDATION_ERROR"),
        ("OPTIONS", "messages", 405, "VALIDATION_ERROR"),
        ("GET", "operations/agent_list", 405, "VALIDATION_ERROR"),
        ("DELETE", "settings", 405, "VALIDATION_ERROR"),
        ("POST", "agents", 400, "VALIDATION_ERROR"),
        ("POST", "operations/nothing", 404, "NOT_FOUND"),
    ],
)
def test_it_answers_every_error_in_the_envelope(db: None, method: str, path: str, status: int, code: str) -> None:
    assert error(send(method, path), status) == code


def test_it_refuses_a_nul_in_every_path_and_every_query(db: None, schema: dict[str, Any]) -> None:
    asked = 0
    for path, methods in schema["paths"].items():
        for parameter in methods.get("get", {}).get("parameters", []):
            filled = re.sub(r"{[^}]+}", "a%00b", path)
            query = f"?{parameter['name']}=a%00b" if parameter["in"] == "query" else ""
            answer = send("GET", f"{filled.removeprefix('/api/v1/')}{query}")
            assert answer.status_code < 500, (filled, query, answer.content)
            asked += 1
    assert asked > 50


def test_it_names_the_methods_that_a_path_takes(db: None) -> None:
    assert set(send("DELETE", "settings")["Allow"].split(", ")) == {"GET", "HEAD", "PATCH"}
    assert set(local.get("/api/v1/settings")["Allow"].split(", ")) == {"GET", "HEAD", "PATCH"}
    assert local.options("/api/v1/docs").status_code == 405


@pytest.mark.parametrize("path", ["agents", "operations/agent_register"])
@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"\xff", "application/json", 400),
        (b"[" * 200_000, "application/json", 400),
        (b'{"agent_id": "a", "metadata": ' + b"[" * 900 + b"]" * 900 + b"}", "application/json", 400),
        (b'{"agent_id": "\\ud800"}', "application/json", 400),
        (b'{"agent_id": "a", "metadata": NaN}', "application/json", 400),
        (b'{"agent_id": "a", "metadata": ' + b"9" * 5000 + b"}", "application/json", 400),
        (b'{"agent_id": "' + b"a" * 5_000_000 + b'"}', "application/json", 413),
        (b"agent_id=a", "application/x-www-form-urlencoded", 415),
        (b"{}", "text/plain", 415),
    ],
)
def test_it_refuses_a_body_that_is_no_bounded_json_object(
    db: None, path: str, body: bytes, kind: str, status: int
) -> None:
    error(local.post(f"/api/v1/{path}", body, content_type=kind), status)
    assert not Agent.objects.exists()


def test_it_says_how_a_body_is_to_be_sent(db: None) -> None:
    answer = local.post("/api/v1/operations/agent_list", b"a=b", content_type="application/x-www-form-urlencoded")
    assert "Content-Type: application/json" in answer.json()["error"]["message"]


def test_it_describes_itself_and_serves_the_page_from_here(db: None, schema: dict[str, Any]) -> None:
    assert schema["openapi"] == "3.1.0" and "/api/v1/coordination/operations/event_wait" in schema["paths"]
    page = local.get("/api/v1/docs").content.decode()
    assert "swagger-ui" in page and "http://" not in page and "https://" not in page
    assert "<script>" not in page
