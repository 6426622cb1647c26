"""The pool's API in process, for code that runs in a configured Django: as `NexusClient`, without HTTP.

Each call goes through the operations' runner, as on every transport. In the worker's own process a turn that is sent
starts at once, because no other process has to be woken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nexus.client.methods import AgentMethods, PoolMethods, Result
from nexus.control import selectors
from nexus.control.toolset import CONTRACT, CONTROL, PREFIX
from nexus.core.operations import dispatch
from nexus.core.operations.caller import LOCAL_OPERATOR, Caller, process_connection
from nexus.core.waiting import READERS, in_thread


class DirectAgentAPI(PoolMethods):
    """The pool's methods, called as one of its agents (`requester_id`) or as an operator. Every method raises
    NexusError."""

    def __init__(self, requester_id: str | None = None) -> None:
        self.requester_id = requester_id

    def for_agent(self, agent_id: str) -> AgentScopedAPI:
        """Return the methods of one agent."""
        return AgentScopedAPI(agent_id, self.requester_id)

    async def list_agents(self) -> list[str]:
        """Return the names of the pool's agents."""
        return [row["agent_id"] for row in (await self.call("list_agents", {}))["agents"]]

    async def call(
        self, method: str, params: Mapping[str, Any], *, of_agent: bool = False, seconds: float = 0
    ) -> Result:
        """Call an operation and return its result. Raises NexusError."""
        return await _performed(self.requester_id, method, params)


class AgentScopedAPI(AgentMethods):
    """The methods of one pool agent, called as another agent or as an operator. Every method raises NexusError."""

    def __init__(self, agent_id: str, requester_id: str | None = None) -> None:
        self.agent_id, self.requester_id = agent_id, requester_id

    async def cancel(self, request_id: str | None = None) -> Result:
        """Stop a turn, by default the agent's current one. Returns {cancelled, request_id, reason}."""
        if request_id is None:
            request_id = await in_thread(READERS, lambda: selectors.current_request(self.agent_id))
        if request_id is None:
            return {"cancelled": False, "request_id": None, "reason": "not_found_or_completed"}
        return await super().cancel(request_id)

    async def call(
        self, method: str, params: Mapping[str, Any], *, of_agent: bool = False, seconds: float = 0
    ) -> Result:
        """Call an operation on this agent and return its result. Raises NexusError."""
        return await _performed(self.requester_id, method, {**params, "agent_id": self.agent_id})


class ClientAdapter(PoolMethods, AgentMethods):
    """The in-process API with the methods of `NexusClient`: the pool's, and those of one agent if one is given."""

    def __init__(self, global_api: DirectAgentAPI, agent_api: AgentScopedAPI | None = None) -> None:
        self._global, self._agent = global_api, agent_api

    async def list_agents(self) -> list[dict[str, Any]]:
        """Return the agents of the pool as rows."""
        agents: list[dict[str, Any]] = (await self.call("list_agents", {}))["agents"]
        return agents

    async def call(
        self, method: str, params: Mapping[str, Any], *, of_agent: bool = False, seconds: float = 0
    ) -> Result:
        """Call an operation and return its result. Raises NexusError, and ValueError for an agent's method if no agent
        is given."""
        if not of_agent:
            return await self._global.call(method, params)
        if self._agent is None:
            raise ValueError("This is a method of one agent: give the adapter its agent_api.")
        return await self._agent.call(method, params)


async def _performed(requester_id: str | None, method: str, params: Mapping[str, Any]) -> Result:
    operator = LOCAL_OPERATOR if requester_id is None else None
    caller = Caller("direct", agent_id=requester_id, operator=operator, connection=process_connection("direct"))
    outcome = await dispatch.aperform(CONTROL, caller, PREFIX + method, {**CONTRACT.get(method, {}), **params})
    return dict(outcome.result())
