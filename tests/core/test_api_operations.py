"""Every operation under POST /api/v1/operations/{name}: the envelope of MCP, its status, and waits without a thread."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any, cast

import httpx
import pytest
from django.test import Client

from coordination.toolset import COORDINATION, run
from nexus.core import waiting
from nexus.core.operations.caller import Caller
from tests.acceptance.hub import START_SECONDS
from tests.conftest import Call

WAITS = 150
local = Client(headers={"host": "localhost"})


def post(name: str, body: dict[str, Any], **headers: str) -> Any:
    return local.post(f"/api/v1/operations/{name}", body, content_type="application/json", headers=headers)


def test_it_knows_a_status_for_every_code() -> None:
    assert all(400 <= code.status < 600 for code in COORDINATION.codes())


@pytest.mark.parametrize(
    ("name", "arguments", "status"),
    [
        ("agent_register", {"agent_id": "ana"}, 200),
        ("agent_get", {"agent_id": "nobody"}, 404),
        ("agent_get", {}, 400),
        ("message_get", {"anything": 1}, 410),
        ("settings_update", {"values": {"db_path": "x"}}, 409),
        ("agent_register", {"agent_id": "ana", "metadata": "x" * 70_000}, 413),
        ("event_get", {"project_root": "/", "agent_id": "a", "stream": "nothing"}, 400),
    ],
)
def test_it_answers_the_very_envelope_with_a_fitting_status(
    committed: None, name: str, arguments: dict[str, Any], status: int
) -> None:
    response = post(name, arguments)
    assert response.status_code == status
    again = run(Caller("test", operator="local"), name, arguments)
    assert {**again, "data": None} == {**response.json(), "data": None}


def test_it_serves_every_operation_of_the_registry(committed: None) -> None:
    for name, operation in COORDINATION.operations.items():
        if operation.destructive and operation.operator_only:
            continue  # known by the schema's test; not tried with no argument
        assert post(name, {"unknown": 1}).json() == run(Caller("test", operator="local"), name, {"unknown": 1}), name


@pytest.mark.asyncio
async def test_it_parks_waits_without_a_thread_and_wakes_those_that_match(
    transactional_db: None, committed: None, project: str
) -> None:
    from nexus_site.asgi import application

    served = httpx.ASGITransport(cast(Any, application))
    hub = httpx.AsyncClient(transport=served, base_url="http://localhost/api/v1")

    async def call(name: str, **arguments: Any) -> Any:
        return (await hub.post(f"/operations/{name}", json=arguments, timeout=START_SECONDS)).json()

    async def wait(stream: str, seconds: int) -> Any:
        return await call("event_wait", project_root=project, agent_id="ana", stream=stream, timeout_seconds=seconds)

    await call("agent_register", agent_id="ana")
    before = threading.active_count()
    crowd = [asyncio.create_task(wait("workspace", 20)) for _ in range(WAITS)]
    others = [asyncio.create_task(wait("handoff", 1)) for _ in range(2)]
    while len(waiting.waiter().parked) < WAITS:
        await asyncio.sleep(0.01)
    assert threading.active_count() - before < WAITS / 2  # every fixed pool, full, is some fifty
    sent = await call("message_create", project_root=project, from_agent_id="ana", subject="s", body="b")
    assert sent["ok"], sent
    answers = await asyncio.gather(*crowd)
    assert {answer["data"]["events"][0]["type"] for answer in answers} == {"message.created"}
    assert {answer["data"]["timed_out"] for answer in await asyncio.gather(*others)} == {True}


def test_it_logs_no_key_wherever_it_is_put(db: None, call: Call, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    call("agent_register", agent_id="ana")
    key = local.post("/api/v1/agents/ana/key", {}, content_type="application/json").json()["data"]["api_key"]
    for path in (key, f"agents?api_key={key}", f"agents/{key}?api_key={key}", f"agents?cursor={key}&api_key={key}"):
        local.get(f"/api/v1/{path}")
    local.get("/api/v1/agents", headers={"host": f"{key}.example"})
    local.get("/api/v1/agents", headers={"authorization": f"Bearer {key}x", "origin": f"http://{key}"})
    logging.getLogger("nexus").error("refused %s", {"authorization": key})
    assert "refused" in caplog.text
    assert key not in caplog.text
