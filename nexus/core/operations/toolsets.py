"""Which toolsets a connection has: an agent pays for every tool it sees, so each connection has those it chose."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nexus.core.operations.errors import Code, ErrorCode, NexusError
from nexus.core.operations.registry import TOOLSETS, Operation, Toolset

Choice = tuple[Toolset, ...]  # never empty, and no name stands in two of them

ALL = "all"


def choose(names: Iterable[str], unknown: ErrorCode = Code.CONFIG_ERROR) -> Choice:
    """The toolsets of these names, in their own order; `all` stands for every one.

    Raises `unknown` for a name that there is not, CONFIG_ERROR for none at all and for two toolsets that clash.
    """
    wanted = set(names)
    if strange := sorted(wanted - TOOLSETS.keys() - {ALL}):
        raise no_such(strange[0], unknown)
    choice: Choice = ()
    for toolset in TOOLSETS.values():
        if toolset.name in wanted or ALL in wanted:
            choice = add(choice, toolset)
    if not choice:
        raise NexusError(Code.CONFIG_ERROR, f"Name at least one toolset of {', '.join(TOOLSETS)}.")
    return choice


def no_such(name: str, code: ErrorCode) -> NexusError:
    """The error for the name of no toolset; it tells which there are."""
    return NexusError(
        code,
        f"No such toolset: {name[:200]!r}; there are {', '.join(TOOLSETS)}, or {ALL} for every one.",
        {"field": "toolsets", "toolset": name[:200], "known": list(TOOLSETS)},
    )


def default() -> Choice:
    """What a connection has that chose nothing."""
    return choose(toolset.name for toolset in TOOLSETS.values() if toolset.default)


def add(choice: Choice, toolset: Toolset) -> Choice:
    """A choice with one more toolset. Raises CONFIG_ERROR when a name stands in both."""
    if toolset in choice:
        return choice
    for other in choice:
        if shared := sorted(_names(other) & _names(toolset)):
            what, name = shared[0]
            raise NexusError(
                Code.CONFIG_ERROR,
                f"The toolsets {other.name} and {toolset.name} both have a {what} {name!r}; choose one of them.",
                {"toolsets": [other.name, toolset.name], "name": name},
            )
    return (*choice, toolset)


def find_tool(choice: Choice, name: str) -> Operation[Any] | None:
    """The operation behind a tool of the chosen toolsets; None when none has it."""
    found = (toolset.contents.operations.get(name) for toolset in choice)
    return next((operation for operation in found if operation is not None and operation.tool), None)


def _names(toolset: Toolset) -> set[tuple[str, str]]:
    """What a client tells apart by name alone."""
    return {
        *(("tool", operation.name) for operation in toolset.tools),
        *(("prompt", prompt.name) for prompt in toolset.prompts),
        *(("resource", reference.uri) for reference in toolset.references),
        *(("resource", resource.prefix) for resource in toolset.agent_resources),
    }
