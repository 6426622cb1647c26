"""Mapping from the classes that a capability blocks to each client's tools. Standard library only: the hooks use it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nexus.core.coding_clients import TOOLS
from nexus.core.operations.errors import Code, NexusError
from nexus.planning.catalog import bundled
from nexus.planning.catalog.bundled import Agent

OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "nexus_task_creation": ("task_add",),
    "nexus_task_state_transition": ("task_update", "task_close"),
    "nexus_task_metadata_modification": ("task_update", "task_close"),
}


def tools(client: str, classes: Iterable[str]) -> list[str]:
    """Return the tools of a client that belong to the classes, sorted."""
    found: set[str] = set()
    for each in classes:
        found.update(TOOLS[client].by_class.get(each, ()))
        found.update(TOOLS[client].ours.format(operation) for operation in OPERATIONS.get(each, ()))
    return sorted(found)


def disallowed(agent: Agent, client: str, additions: Iterable[str] = ()) -> list[str]:
    """Return the tools that an agent may not use in a client, by its capabilities and those added here: nothing removes
    one. Raises CONFIG_ERROR for a capability that the vocabulary does not have."""
    classes = bundled.blocked_classes()
    capabilities = {*agent.capabilities, *additions}
    if strange := capabilities - classes.keys():
        name = min(strange)
        raise NexusError(
            Code.CONFIG_ERROR,
            f"There is no capability {name!r}; the catalog has {', '.join(classes)}.",
            {"capability": name},
        )
    return tools(client, (each for capability in capabilities for each in classes[capability]))


def blocks(agent_type: str, client: str, tool: str) -> bool:
    """Return whether the catalog forbids a tool, as the client names it, to agents of a type.

    False for an unknown agent, client or tool: the hook must not block anything by mistake.
    """
    agent = bundled.agents().get(agent_type)
    return agent is not None and client in TOOLS and tool in disallowed(agent, client)
