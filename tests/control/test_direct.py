"""The pool in process: the same methods, the same rules, no HTTP."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nexus.client import NexusClient
from nexus.client.methods import PoolMethods
from nexus.control.direct import AgentScopedAPI, ClientAdapter, DirectAgentAPI
from nexus.control.errors import ControlCode
from nexus.control.operations.pool import CreateAgent
from nexus.control.rpc.endpoint import OF_AGENT
from nexus.control.worker.scheduling import Worker
from nexus.core.operations.errors import Code, NexusError
from tests.control.wire import GLOBAL

PARAMETERS = inspect.signature(PoolMethods.create_agent).parameters


@pytest.fixture
def api(committed: None, configure: Callable[..., None], tmp_path: Path) -> DirectAgentAPI:
    configure(control=True, home=tmp_path / "home")
    return DirectAgentAPI()


def test_it_offers_every_method_alike() -> None:
    for kind, methods in ((NexusClient, GLOBAL | OF_AGENT), (DirectAgentAPI, GLOBAL), (AgentScopedAPI, OF_AGENT)):
        assert all(inspect.iscoroutinefunction(getattr(kind, name)) for name in methods)
    for name in GLOBAL | OF_AGENT:
        assert inspect.signature(getattr(ClientAdapter, name)) == inspect.signature(getattr(NexusClient, name))


async def test_an_agent_is_created_asked_and_ended(api: DirectAgentAPI, worker: Worker, tmp_path: Path) -> None:
    made = await api.create_agent("ana", cwd=tmp_path, initial_message="Hello", wait_for_initial_response=True)
    assert made["response"]["content"].endswith("You said: Hello")
    ana = api.for_agent("ana")
    assert (await ana.send("Again", "r1"))["content"].endswith("You said: Again")
    assert await ana.cancel("r1") == {"cancelled": False, "request_id": "r1", "reason": "not_found_or_completed"}
    assert await ana.cancel() == {"cancelled": False, "request_id": None, "reason": "not_found_or_completed"}
    assert (await ana.get_messages(limit=1))["total"] == (await ana.get_context())["message_count"] == 4
    assert (await ana.get_tokens())["messages"] > 0 and (await ana.compact())["compacted"] is False
    assert await api.list_agents() == ["ana"]
    assert await api.destroy_agent("ana") == {"success": True, "agent_id": "ana"}
    assert await api.list_agents() == []


async def test_it_cancels_what_an_agent_is_at_or_what_comes_next(api: DirectAgentAPI, tmp_path: Path) -> None:
    await api.create_agent("ana", cwd=tmp_path)
    ana = api.for_agent("ana")
    for name in ("r1", "r2"):
        assert await ana.send("Hello", name, timeout=0) == {"request_id": name, "status": "queued"}
    assert await ana.cancel() == {"cancelled": True, "request_id": "r1"}
    assert await ana.cancel() == {"cancelled": True, "request_id": "r2"}
    assert await ana.send("Hello", "r1") == {"cancelled": True, "request_id": "r1"}


async def test_an_agent_acts_below_its_own_ceiling(api: DirectAgentAPI, tmp_path: Path) -> None:
    await api.create_agent("lead", "trusted", tmp_path)
    await api.create_agent("other", cwd=tmp_path)
    lead = DirectAgentAPI("lead")
    await lead.create_agent("child", "worker")
    await lead.for_agent("child").send("Hello", timeout=0)
    for refused in (lead.for_agent("other").send("Hello", timeout=0), DirectAgentAPI("nobody").create_agent("x")):
        with pytest.raises(NexusError) as error:
            await refused
        assert error.value.code is ControlCode.NOT_PERMITTED and error.value.details
    with pytest.raises(NexusError) as error:
        await lead.shutdown_server()
    assert error.value.code is not Code.INTERNAL_ERROR
    assert sorted(await api.list_agents()) == ["child", "lead", "other"]


async def test_the_adapter_speaks_as_a_client_does(api: DirectAgentAPI, tmp_path: Path) -> None:
    pool = ClientAdapter(api)
    await pool.create_agent("ana", cwd=tmp_path)
    rows: list[dict[str, Any]] = await pool.list_agents()
    assert [row["agent_id"] for row in rows] == ["ana"] and rows[0]["permission_level"] == "sandboxed"
    ana = ClientAdapter(api, api.for_agent("ana"))
    assert (await ana.get_context())["message_count"] == 0
    assert (await ana.shutdown()) == {"success": True}
    with pytest.raises(ValueError, match="agent_api"):
        await pool.get_context()


def test_an_agent_is_created_in_python_with_all_that_the_operation_takes() -> None:
    taken = {"timeout_seconds" if name == "timeout" else name for name in PARAMETERS}
    assert set(CreateAgent.model_fields) <= taken
