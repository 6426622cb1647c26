"""The identity of an agent's stdio process, whether it serves itself or the hub serves it."""

from __future__ import annotations

from mcp_bridge.relay import API_KEY
from nexus.core.domain import domain
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, NexusError


def caller_of_process(key: str | None, *, transport: str, connection: str, cwd: str | None = None) -> Caller:
    """Return the caller, bound to the agent of the key if there is one. Reads the store. Raises CONFIG_ERROR for an
    invalid key."""
    if key is None:
        return Caller(transport, connection=connection, cwd=cwd)
    credential = domain().credential_of_key(key)
    agent_id = domain().agent_of_credential(credential)
    if agent_id is None:
        raise NexusError(
            Code.CONFIG_ERROR, f"{API_KEY} is no valid key of this store. Issue a new one, or unset it to run unbound."
        )
    return Caller(transport, agent_id=agent_id, connection=connection, credential=credential, cwd=cwd)
