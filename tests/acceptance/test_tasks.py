"""Calls that wait, as MCP's tasks, over real stdio and HTTP: what outlives the process that was asked."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
)

from tests import warm
from tests.acceptance.hub import Hub, start
from tests.acceptance.pool import Pool, until
from tests.acceptance.processes import environment, pipes
from tests.mcp_bridge import tasking
from tests.mcp_bridge.tasking import Tasks, begun

HOUR = 3_600
Connect = Callable[..., Client]


@pytest.fixture
def hubs(home: Path) -> Iterator[Callable[[], Hub]]:
    """Starts hubs over one home, one after the other."""
    started: list[Hub] = []

    def begin() -> Hub:
        started.append(start(home))
        return started[-1]

    yield begin
    for hub in started:
        hub.process.kill()
        hub.process.wait()


def over_http(hub: Hub, key: str, path: str = "", mode: str = "auto", **more: Any) -> Client:
    return Client(f"{hub.url}/mcp{path}?api_key={key}", mode=mode, **more)


def over_stdio(
    home: Path,
    mode: str = "auto",
    environ: dict[str, str] | None = None,
    started: list[warm.Process] | None = None,
    **more: Any,
) -> Client:
    return Client(pipes(environment(home, **(environ or {})), started=started), mode=mode, **more)


def asked(project: str) -> dict[str, Any]:
    """An event_wait of builder's for an artifact: those that come are told from whatever else there is."""
    filters = {"type": "artifact.created"}
    return {"project_root": project, "agent_id": "builder", "stream": "workspace", "filters": filters}


PUT = {"artifact_type": "text", "content": "c"}


def types(task: tasking.Task) -> list[str]:
    return [event["type"] for event in task.envelope()["data"]["events"]]


def prepared(hub: Hub, project: str) -> list[str]:
    """Keys of builder and reviewer, in a workspace."""
    hub.call("workspace_resolve", project_root=project)
    return [hub.key(agent_id) for agent_id in ("builder", "reviewer")]


def test_it_outlives_the_hub_that_was_killed(hubs: Callable[[], Hub], project: str) -> None:
    hub = hubs()
    builder, reviewer = prepared(hub, project)

    async def begin() -> list[str]:
        async with over_http(hub, builder, extensions=[Tasks()]) as client:
            here = {"project_root": project, "agent_id": "builder", "timeout_seconds": HOUR}
            waits = [begun(client, "event_wait", **asked(project), timeout_seconds=HOUR)]
            waits += [begun(client, "handoff_list_available", **here)]
            waits += [begun(client, "event_wait", **asked(project), timeout_seconds=HOUR)]
            ids = [(await wait).task_id for wait in waits]
            await tasking.cancel(client.session, ids[-1])
            return ids

    ids = asyncio.run(begin())
    hub.stop(signal.SIGKILL)
    hub = hubs()
    hub.call("artifact_put", project_root=project, **PUT)
    offer = {"project_root": project, "from_agent_id": "reviewer", "target": {"strategy": "broadcast"}}
    offered = hub.call("handoff_create", **offer, visibility="public", payload="scan it")["handoff_id"]

    async def come_back() -> list[tasking.Task]:
        async with over_http(hub, reviewer, extensions=[Tasks()]) as foreign:
            for task_id in ids:
                with pytest.raises(MCPError) as refused:
                    await tasking.get(foreign.session, task_id)
                assert refused.value.code == INVALID_PARAMS
        async with over_http(hub, builder, extensions=[Tasks()]) as client:
            return [await tasking.get(client.session, task_id) for task_id in ids]

    events, handoffs, cancelled = asyncio.run(come_back())
    assert types(events) == ["artifact.created"] and cancelled.status == "cancelled"
    assert [handoff["handoff_id"] for handoff in handoffs.envelope()["data"]["handoffs"]] == [offered]


def test_it_sends_once_whatever_is_killed(home: Path) -> None:
    pools = [Pool(home, "--pool-turns", "1")]
    try:
        pools[0].create("parent", preset="trusted")
        for name in ("one", "other"):
            pools[0].create(name, parent_agent_id="parent")
        key = pools[0].hub.call("agent_key_issue", agent_id="parent")["api_key"]

        async def begin() -> list[str]:
            async with over_http(pools[0].hub, key, "/control", extensions=[Tasks()]) as client:
                stalls = await begun(client, "pool_send", agent_id="one", content="stall", timeout_seconds=HOUR)
                await asyncio.to_thread(pools[0].begun, "one", "stall")
                waits = await begun(client, "pool_send", agent_id="other", content="hello", timeout_seconds=HOUR)
                return [stalls.task_id, waits.task_id]

        ids = asyncio.run(begin())
        pools[0].kill()
        pools.append(Pool(home, "--pool-turns", "1"))

        async def come_back() -> list[tasking.Task]:
            async with over_http(pools[1].hub, key, "/control", extensions=[Tasks()]) as client:
                return [await tasking.end_of(client.session, task_id) for task_id in ids]

        interrupted, answered = asyncio.run(come_back())
        assert interrupted.result is not None and interrupted.result.is_error
        assert interrupted.envelope()["error"]["code"] == "TURN_INTERRUPTED"
        assert "went on with hello" in answered.envelope()["data"]["content"]
        asked_for = [row["content"] for row in pools[1].messages("other") if row["role"] == "user"]
        assert asked_for == ["hello"]
    finally:
        for pool in pools:
            pool.close()
        until(lambda: not any(pool.left() for pool in pools))


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_it_tells_other_clients_that_their_call_goes_on(
    hubs: Callable[[], Hub], home: Path, project: str, transport: str, mode: str
) -> None:
    hub = hubs()
    builder, _ = prepared(hub, project)

    async def call() -> dict[str, Any]:
        told: asyncio.Queue[tuple[float, str | None]] = asyncio.Queue()

        async def told_of(progress: float, total: float | None, message: str | None) -> None:
            told.put_nowait((progress, message))

        async with over_http(hub, builder, mode=mode) if transport == "http" else over_stdio(home, mode) as client:
            assert client.protocol_version >= ("2026" if mode == "auto" else "2025")
            arguments = {**asked(project), "timeout_seconds": 30}
            calling = asyncio.create_task(client.call_tool("event_wait", arguments, progress_callback=told_of))
            seconds, message = await asyncio.wait_for(told.get(), 40)
            assert seconds > 0 and message == "event_wait waits."
            await asyncio.to_thread(hub.call, "artifact_put", project_root=project, **PUT)
            answer: dict[str, Any] | None = (await calling).structured_content
            assert answer is not None
            return answer

    assert asyncio.run(call())["data"]["events"]
