"""The pool in process, for code that runs in a configured Django: as `NexusClient`, without HTTP.

A call goes the way of every transport, through the operations' runner. In the worker's own process a turn that is sent
is taken at once, without another process to wake.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nexus.client.methods import AgentMethods, PoolMethods, Result
from nexus.control import selectors
from nexus.control.toolset import CONTROL, PREFIX
from nexus.core.operations import runner
from nexus.core.operations.caller import LOCAL_OPERATOR, Caller, process_connection
from nexus.core.waiting import READERS, in_thread


class DirectAgentAPI(PoolMethods):
    """The pool, as an agent of it (`requester_id`) or as an administrator. Every method raises NexusError."""

    def __init__(self, requester_id: str | None = None) -> None:
        self.requester_id = requester_id

    def for_agent(self, agent_id: str) -> AgentScopedAPI:
        """The methods of one agent."""
        return AgentScopedAPI(agent_id, self.requester_id)

    async def list_agents(self) -> list[str]:
        """The names of the pool's agents."""
        return [row["agent_id"] for row in (await self.call("list_agents", {}))["agents"]]

    async def call(
        self, method: str, params: Mapping[str, Any], *, of_agent: bool = False, seconds: float = 0
    ) -> Result:
        """The result of an operation. Raises NexusError."""
        return await _performed(self.requester_id, method, params)


class AgentScopedAPI(AgentMethods):
    """One agent of the pool, as another of it or as an administrator. Every method raises NexusError."""

    def __init__(self, agent_id: str, requester_id: str | None = None) -> None:
        self.agent_id, self.requester_id = agent_id, requester_id

    async def cancel(self, request_id: str | None = None) -> Result:
        """Stop a turn, or without a name the one that the agent is at: {cancelled, request_id, reason}."""
        if request_id is None:
            request_id = await in_thread(READERS, lambda: selectors.current_request(self.agent_id))
        if request_id is None:
            return {"cancelled": False, "request_id": None, "reason": "not_found_or_completed"}
        return await super().cancel(request_id)

    async def call(
        self, method: str, params: Mapping[str, Any], *, of_agent: bool = False, seconds: float = 0
    ) -> Result:
        """The result of an operation on this agent. Raises NexusError."""
        return await _performed(self.requester_id, method, {**params, "agent_id": self.agent_id})


class ClientAdapter(PoolMethods, AgentMethods):
    """The in-process API in the form of a `NexusClient`: the pool's methods, and those of one agent if one is given."""

    def __init__(self, global_api: DirectAgentAPI, agent_api: AgentScopedAPI | None = None) -> None:
        self._global, self._agent = global_api, agent_api

    async def list_agents(self) -> list[dict[str, Any]]:
        """The agents of the pool, as rows."""
        agents: list[dict[str, Any]] = (await self.call("list_agents", {}))["agents"]
        return agents

    async def call(
        self, method: str, params: Mapping[str, Any], *, of_agent: bool = False, seconds: float = 0
    ) -> Result:
        """The result of an operation. Raises NexusError; ValueError for an agent's method where no agent is given."""
        if not of_agent:
            return await self._global.call(method, params)
        if self._agent is None:
            raise ValueError("This is a method of one agent: give the adapter its agent_api.")
        return await self._agent.call(method, params)


async def _performed(requester_id: str | None, method: str, params: Mapping[str, Any]) -> Result:
    operator = LOCAL_OPERATOR if requester_id is None else None
    caller = Caller("direct", agent_id=requester_id, operator=operator, connection=process_connection("direct"))
    outcome = await runner.aperform(CONTROL, caller, PREFIX + method, params)
    return dict(outcome.result())
