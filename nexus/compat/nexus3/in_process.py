"""What NEXUS3's in-process client expects of its server: a pool and a dispatcher, over our operations.

`nexus3.rpc.agent_api.DirectAgentAPI(Pool(), Dispatcher())` then works on this hub's pool.
"""

from __future__ import annotations

from typing import Any, Protocol

from nexus.client.jsonrpc import METHOD_NOT_FOUND, Response, make_error_response, make_success_response
from nexus.control.rpc.endpoint import error_response, operation_of
from nexus.control.toolset import CONTRACT, CONTROL
from nexus.core.operations import dispatch
from nexus.core.operations.caller import LOCAL_OPERATOR, Caller, process_connection


class Request(Protocol):
    """A request as that client makes it."""

    method: str
    params: dict[str, Any] | None
    id: str | int | None


class Dispatcher:
    """Answers the methods of the pool, or of one agent."""

    def __init__(self, agent_id: str | None = None) -> None:
        self.agent_id = agent_id

    async def dispatch(
        self, request: Request, requester_id: str | None = None, *, capability_token: str | None = None
    ) -> Response:
        """Perform a request as an agent, or as the operator. A capability token grants nothing here."""
        name = operation_of(request.method, self.agent_id is not None)
        if name is None:
            return make_error_response(request.id, METHOD_NOT_FOUND, f"There is no method {request.method!r} here.")
        of_agent = {} if self.agent_id is None else {"agent_id": self.agent_id}
        operator = LOCAL_OPERATOR if requester_id is None else None
        caller = Caller("direct", agent_id=requester_id, operator=operator, connection=process_connection("direct"))
        arguments = {**CONTRACT.get(request.method, {}), **(request.params or {}), **of_agent}
        outcome = await dispatch.aperform(CONTROL, caller, name, arguments)
        if outcome.error is not None:
            return error_response(request.id, outcome.error)
        return make_success_response(request.id, outcome.data)


class Agent:
    """An agent of the pool, as far as that client uses it."""

    def __init__(self, agent_id: str) -> None:
        self.dispatcher = Dispatcher(agent_id)


class Pool:
    """The pool, as far as that client uses it. Whether an agent exists is known when it is called."""

    def get(self, agent_id: str) -> Agent:
        """Return an agent."""
        return Agent(agent_id)
