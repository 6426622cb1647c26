"""Mapping from the classes that a capability blocks to each client's tools. Standard library only: the hooks use it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from nexus.core.clients import TOOLS
from nexus.core.operations.errors import Code, NexusError
from nexus.planning.catalog import bundled

OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "nexus_task_creation": ("task_add",),
    "nexus_task_state_transition": ("task_update", "task_close"),
    "nexus_task_metadata_modification": ("task_update", "task_close"),
}


class AgentLike(Protocol):
    """The attributes of a catalog's agent that are needed here."""

    @property
    def id(self) -> str: ...
    @property
    def capabilities(self) -> Sequence[str]: ...


def effective(agent: AgentLike, additions: Iterable[str] = ()) -> frozenset[str]:
    """Return an agent's capabilities with those added here. Nothing removes one."""
    return frozenset(agent.capabilities) | frozenset(additions)


def blocked(capabilities: Iterable[str], classes: Mapping[str, Iterable[str]]) -> frozenset[str]:
    """Return the semantic classes that capabilities block; `classes` are the vocabulary's, by capability.

    Raises CONFIG_ERROR for a capability that the vocabulary does not have.
    """
    found: set[str] = set()
    for capability in capabilities:
        if capability not in classes:
            raise NexusError(
                Code.CONFIG_ERROR,
                f"There is no capability {capability!r}; the catalog has {', '.join(classes)}.",
                {"capability": capability},
            )
        found.update(classes[capability])
    return frozenset(found)


def tools(client: str, classes: Iterable[str]) -> list[str]:
    """Return the tools of a client that belong to the classes, sorted. Raises CONFIG_ERROR for a class without
    tools."""
    found: set[str] = set()
    for each in classes:
        ours = [TOOLS[client].ours.format(operation) for operation in OPERATIONS.get(each, ())]
        those = [*TOOLS[client].by_class.get(each, ()), *ours]
        if not those:
            raise NexusError(
                Code.CONFIG_ERROR,
                f"The catalog blocks {each!r}, and no tool of {client} is known for it: it could not be held to.",
                {"semantic_class": each, "client": client},
            )
        found.update(those)
    return sorted(found)


def disallowed(
    agent: AgentLike, client: str, classes: Mapping[str, Iterable[str]], additions: Iterable[str] = ()
) -> list[str]:
    """Return the tools that an agent may not use in a client. Raises CONFIG_ERROR as `blocked` and `tools` do."""
    return tools(client, blocked(effective(agent, additions), classes))


def blocks(agent_type: str, client: str, tool: str) -> bool:
    """Return whether the bundled catalog forbids a tool, as the client names it, to agents of a type.

    False for an unknown agent, client or tool: the hook must not block anything by mistake.
    """
    agent = bundled.agents().get(agent_type)
    if agent is None or client not in TOOLS:
        return False
    return tool in tools(client, blocked(agent["capabilities"], bundled.blocked_classes()))
