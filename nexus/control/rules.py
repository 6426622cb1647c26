"""The rules of permissions, and permissions in words: what a pool agent may do, and what it may give to agents that it
creates (docs/reference/control.md).

Pure functions over plain values. Paths must be absolute and resolved: nothing here reads the disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath
from typing import Any

DEEPEST = 5  # levels of agents; an agent without a parent is at 0
LONGEST_ID = 62  # characters of an id, without the leading dot of a temporary agent
AGENT_ID = re.compile(rf"\.?[A-Za-z0-9_-][A-Za-z0-9_.-]{{0,{LONGEST_ID - 1}}}")


class Preset(StrEnum):
    """A level of permissions, the least first."""

    WORKER = "worker"  # reads below its directory
    SANDBOXED = "sandboxed"  # and writes where it was allowed to
    TRUSTED = "trusted"  # and runs programs, and creates agents


YOLO = "yolo"  # known to clients of the original system; never granted
LEVEL = {preset: level for level, preset in enumerate(Preset)}
DEFAULT = Preset.SANDBOXED

READING = frozenset(("read_file", "list_directory", "glob", "grep"))
WRITING = frozenset(("write_file", "edit_file"))
RUNNING = frozenset(("run",))
AGENTS = frozenset(("create_agent", "destroy_agent", "send", "cancel"))
TOOLS = READING | WRITING | RUNNING | AGENTS
USES = {
    Preset.WORKER: READING,
    Preset.SANDBOXED: READING | WRITING,
    Preset.TRUSTED: TOOLS,
}
TOOLSETS = {  # the hub's toolsets, which the agent calls with its own identity
    Preset.WORKER: ("coordination", "topics"),
    Preset.SANDBOXED: ("coordination", "topics", "planning", "files"),
    Preset.TRUSTED: ("coordination", "topics", "planning", "files", "control"),
}


@dataclass(frozen=True)
class Permissions:
    """The permissions of one agent."""

    preset: Preset
    cwd: str  # it reads below this directory
    write_paths: tuple[str, ...]  # and writes at and below these, which lie below it
    disabled_tools: frozenset[str] = frozenset()
    depth: int = 0


@dataclass(frozen=True)
class Wish:
    """The permissions that are asked for a new agent; None means not given."""

    preset: str | None = None
    cwd: str | None = None
    write_paths: tuple[str, ...] | None = None
    disabled_tools: frozenset[str] = frozenset()


class Broken(Exception):
    """A wish that breaks a rule: the rule's name, and what to ask for instead."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


def grant(wish: Wish, *, parent: Permissions | None, default_cwd: str, by_parent: bool) -> Permissions:
    """Return the permissions of a new agent. Raises Broken.

    An agent that may not create agents has none below it. `by_parent`: the parent itself creates the agent, and must
    give a level below its own. An operator who creates an agent below that parent may give the parent's own level.
    """
    preset = _preset(wish.preset, parent, by_parent)
    depth = 0 if parent is None else parent.depth + 1
    if depth > DEEPEST:
        raise Broken("depth", f"Agents may be nested at most {DEEPEST} levels deep, and the parent is at that level.")
    cwd = _cwd(wish.cwd, parent, default_cwd)
    unknown = sorted(wish.disabled_tools - TOOLS)
    if unknown:
        raise Broken("tools", f"There is no tool {unknown[0][:100]!r}; there are {', '.join(sorted(TOOLS))}.")
    inherited = frozenset() if parent is None else parent.disabled_tools
    return Permissions(
        preset, cwd, _write_paths(wish.write_paths, preset, cwd, parent), wish.disabled_tools | inherited, depth
    )


def may_use(permissions: Permissions, tool: str) -> bool:
    """Return whether the agent has this tool at all."""
    return tool in USES[permissions.preset] and tool not in permissions.disabled_tools


def may_read(permissions: Permissions, path: str) -> bool:
    """Return whether the agent may read this resolved path."""
    return within(path, (permissions.cwd,))


def may_write(permissions: Permissions, path: str) -> bool:
    """Return whether the agent may write to this resolved path."""
    may = bool(WRITING & USES[permissions.preset]) and within(path, permissions.write_paths)
    return may and not is_gits(path, permissions.write_paths)


def is_gits(path: str, write_paths: Iterable[str]) -> bool:
    """Return whether a path lies in a `.git` that no write path names, or could turn a directory into a repository, as
    a file HEAD does. git may run what is written there."""
    makes_one = _in_git(path) or PurePath(path).name == "HEAD"
    return makes_one and not any(_in_git(root) and within(path, (root,)) for root in write_paths)


def opens_git(write_paths: Iterable[str]) -> list[str]:
    """Return the write paths that name a `.git`."""
    return [path for path in write_paths if _in_git(path)]


def _in_git(path: str) -> bool:
    return any(part.lower() == ".git" for part in PurePath(path).parts)


def may_create(permissions: Permissions) -> bool:
    """Return whether the agent may create agents."""
    return may_use(permissions, "create_agent")


def within(path: str, roots: Iterable[str]) -> bool:
    """Return whether a path lies at or below one of the roots."""
    return any(PurePath(path).is_relative_to(root) for root in roots)


def _preset(wanted: str | None, parent: Permissions | None, by_parent: bool) -> Preset:
    if wanted == YOLO:
        raise Broken("yolo", "The preset yolo is given to no agent; ask for trusted, sandboxed or worker.")
    if wanted is not None and wanted not in LEVEL:
        raise Broken("preset", f"There is no preset {wanted[:100]!r}; there are {', '.join(LEVEL)}.")
    if parent is not None and not may_create(parent):
        raise Broken("agents", f"A parent with the preset {parent.preset} and its disabled tools has no children.")
    if parent is None:
        return Preset(wanted or DEFAULT)
    highest = LEVEL[parent.preset] - by_parent
    if LEVEL[Preset(wanted or DEFAULT)] > highest:
        below = [preset for preset in Preset if LEVEL[preset] <= highest]
        raise Broken("ceiling", f"The parent is {parent.preset} and may give {' or '.join(below)}, not {wanted}.")
    return Preset(wanted or DEFAULT)


def _cwd(wanted: str | None, parent: Permissions | None, default: str) -> str:
    if parent is None:
        return wanted or default
    if wanted is not None and not within(wanted, (parent.cwd,)):
        raise Broken("cwd", f"The directory must lie below the parent's, {parent.cwd}.")
    return wanted or parent.cwd


def _write_paths(
    wanted: tuple[str, ...] | None, preset: Preset, cwd: str, parent: Permissions | None
) -> tuple[str, ...]:
    """Return the new agent's write paths; by default all that a trusted agent can have, and none for other presets."""
    may = USES[preset] & WRITING
    if wanted and not may:
        raise Broken("write_paths", f"An agent with the preset {preset} writes nowhere; ask for sandboxed.")
    if wanted is None:
        if preset is not Preset.TRUSTED:
            return ()
        if parent is None or within(cwd, parent.write_paths):
            return (cwd,)
        return tuple(path for path in parent.write_paths if within(path, (cwd,)))
    for path in wanted:
        if not within(path, (cwd,)):
            raise Broken("write_paths", f"{path} does not lie below the agent's directory, {cwd}.")
        if parent is not None and not within(path, parent.write_paths):
            raise Broken("write_paths", f"The parent itself may not write at {path}.")
    return tuple(dict.fromkeys(wanted))


def is_agent_id(agent_id: str) -> bool:
    """Return whether this is a valid agent id: letters, digits, `_`, `-` and `.`, without `..`."""
    return AGENT_ID.fullmatch(agent_id) is not None and ".." not in agent_id


def is_offered(option: Mapping[str, Any], value: object) -> bool:
    """Return whether an option of a session can have a value; one without choices is true or false."""
    if not option["choices"]:
        return isinstance(value, bool)
    return any(choice["value"] == value for choice in option["choices"])


def is_temporary(agent_id: str) -> bool:
    """Return whether an agent of this name ends with the server."""
    return agent_id.startswith(".")


@dataclass(frozen=True)
class Offer:
    """A preset for a new agent: what it allows, and why the parent's ceiling forbids it, if so."""

    preset: Preset
    what: str
    refused: str = ""


PRESETS = {
    Preset.WORKER: "Reads below its directory. Writes nowhere, runs no programs, creates no agents.",
    Preset.SANDBOXED: "Reads below its directory, writes where it is allowed to. Runs no programs, creates no agents.",
    Preset.TRUSTED: "Reads and writes below its directory, runs programs, and creates agents that may do less.",
}


def describe_permissions(permissions: Permissions) -> list[str]:
    """Return what an agent may do, one line for each kind of action."""
    writes = ", ".join(permissions.write_paths) if WRITING & USES[permissions.preset] else ""
    lines = [
        f"Reads below {permissions.cwd}",
        f"Writes at and below {writes}" if writes else "Writes nowhere",
        "Runs programs" if may_use(permissions, "run") else "Runs no programs",
        _agents(permissions),
    ]
    if permissions.disabled_tools:
        lines.append(f"Goes without {', '.join(sorted(permissions.disabled_tools))}")
    if warning := git_warning(permissions):
        lines.append(warning)
    return lines


def git_warning(permissions: Permissions) -> str:
    """Return a warning about write paths that name a `.git`; empty if none does."""
    opened = opens_git(permissions.write_paths)
    if not opened:
        return ""
    return (
        f"May change {', '.join(opened)}: the next git command that anybody runs there may run what this agent wrote, "
        "outside of its sandbox"
    )


def _agents(permissions: Permissions) -> str:
    if not may_have_children(permissions, permissions.cwd):
        return "Creates no agents"
    left = DEEPEST - permissions.depth
    return f"Creates agents, down to {left} level{'s' if left > 1 else ''} below itself"


def offers(parent: Permissions | None, cwd: str) -> list[Offer]:
    """Return every preset, the one with most permissions first, as an operator may give it below this parent."""
    return [
        Offer(preset, PRESETS[preset], _refused(preset, parent, cwd))
        for preset in sorted(PRESETS, key=lambda preset: -LEVEL[preset])
    ]


def _refused(preset: Preset, parent: Permissions | None, cwd: str) -> str:
    try:
        grant(Wish(preset), parent=parent, default_cwd=cwd, by_parent=False)
    except Broken as broken:
        return str(broken)
    return ""


def presets_with(tool: str) -> list[str]:
    """Return the presets that have a tool."""
    return [preset for preset in Preset if tool in USES[preset]]


def may_have_children(permissions: Permissions, cwd: str) -> bool:
    """Return whether an operator may create any agent below this one."""
    return not all(offer.refused for offer in offers(permissions, cwd))


def ceiling(parent: Permissions) -> list[str]:
    """Return the limits of any agent below this parent, in words."""
    writes = ", ".join(parent.write_paths) if WRITING & USES[parent.preset] else ""
    lines = [
        f"Its preset is {parent.preset} at most",
        f"Its directory lies in {parent.cwd}",
        f"It writes at and below {writes} at most" if writes else "It writes nowhere",
    ]
    if parent.disabled_tools:
        lines.append(f"It goes without {', '.join(sorted(parent.disabled_tools))}, as its parent does")
    return lines
