"""How an MCP connection begins: who calls, with which toolsets; and the tool that adds a toolset."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from mcp_bridge.config import McpBridgeSettings, names
from mcp_bridge.relay import API_KEY
from nexus.core.domain import domain
from nexus.core.operations import registry
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.parameters import Label, Params
from nexus.core.operations.registry import TOOLSETS, Choice, Operation, Toolset
from nexus.core.operations.replies import Data

log = logging.getLogger(__name__)

ENABLE = "toolset_enable"


def from_setting() -> Choice:
    """Return the setting's choice, else the default. Raises CONFIG_ERROR."""
    text = McpBridgeSettings.current().toolsets
    return registry.default() if text is None else registry.choose(names(text))


def from_process(agent_id: str | None, named: str | None) -> Choice:
    """Return the choice of a stdio process: of its flag or variable, else its agent's, else the default.

    Raises CONFIG_ERROR.
    """
    if named is not None:
        return registry.choose(names(named))
    return from_setting() if agent_id is None else from_agent(agent_id)


def from_agent(agent_id: str) -> Choice:
    """Return the stored choice of an agent, else the setting's, else the default. Reads the store."""
    stored = domain().toolsets_of(agent_id)
    if stored is None:
        return from_setting()
    try:
        return registry.choose(stored)
    except NexusError as error:  # an app was removed since: the agent still connects
        log.warning("the toolsets of agent %r cannot be had: %s", agent_id, error.message)
        return from_setting()


class Enable(Params):
    name: Annotated[Label | None, Field(description="Omitted: list the toolsets.")] = None


def enabling(choice: Choice, enable: Callable[[Toolset], None]) -> Operation[Enable]:
    """Return the tool that adds a toolset to a choice by `enable`; it answers in the form of the first chosen
    toolset."""

    def toolset_enable(params: Enable, caller: Caller) -> Data:
        if params.name is None:
            return {"enabled": [toolset.name for toolset in choice], "available": _others(choice)}
        if params.name not in TOOLSETS:
            raise registry.no_such(params.name, Code.NOT_FOUND)
        toolset = TOOLSETS[params.name]
        chosen = registry.add(choice, toolset)
        enable(toolset)
        return {
            "enabled": [each.name for each in chosen],
            "available": _others(chosen),
            "tools": [operation.name for operation in toolset.tools],
            "instructions": toolset.instructions(),
        }

    others = [name for name, toolset in TOOLSETS.items() if toolset not in choice]
    return Operation(
        toolset=choice[0],
        name=ENABLE,
        params=Enable,
        call=toolset_enable,
        description=f"Add a toolset's tools to this connection: {', '.join(others)}. Without a name: what each is for.",
        errors=frozenset({Code.VALIDATION_ERROR, Code.NOT_FOUND, Code.CONFIG_ERROR}),
        idempotent=True,
    )


def offered(choice: Choice) -> bool:
    """Return whether there is a toolset that could be added."""
    return len(choice) < len(TOOLSETS)


def _others(choice: Choice) -> list[Data]:
    return [
        {"name": toolset.name, "description": toolset.description}
        for toolset in TOOLSETS.values()
        if toolset not in choice
    ]


def caller_of_process(
    key: str | None, *, named: str | None, transport: str, connection: str, cwd: str | None = None
) -> Caller:
    """Return the caller, bound to the agent of the key if there is one, else the agent that is `named`. Reads the
    store. Raises CONFIG_ERROR for an invalid key."""
    if key is None:
        return Caller(transport, connection=connection, named=named or None, cwd=cwd)
    credential = domain().credential_of_key(key)
    agent_id = domain().agent_of_credential(credential)
    if agent_id is None:
        raise NexusError(
            Code.CONFIG_ERROR, f"{API_KEY} is no valid key of this store. Issue a new one, or unset it to run unbound."
        )
    return Caller(transport, agent_id=agent_id, connection=connection, credential=credential, cwd=cwd)
