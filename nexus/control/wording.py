"""Permissions in words, for operators: pure functions over plain values."""

from __future__ import annotations

from dataclasses import dataclass

from nexus.control import rules
from nexus.control.rules import DEEPEST, LEVEL, Broken, Permissions, Preset, Wish


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
    writes = ", ".join(permissions.write_paths) if rules.WRITING & rules.USES[permissions.preset] else ""
    lines = [
        f"Reads below {permissions.cwd}",
        f"Writes at and below {writes}" if writes else "Writes nowhere",
        "Runs programs" if rules.may_use(permissions, "run") else "Runs no programs",
        _agents(permissions),
    ]
    if permissions.disabled_tools:
        lines.append(f"Goes without {', '.join(sorted(permissions.disabled_tools))}")
    if warning := git_warning(permissions):
        lines.append(warning)
    return lines


def git_warning(permissions: Permissions) -> str:
    """Return a warning about write paths that name a `.git`; empty if none does."""
    opened = rules.opens_git(permissions.write_paths)
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
        rules.grant(Wish(preset), parent=parent, default_cwd=cwd, by_parent=False)
    except Broken as broken:
        return str(broken)
    return ""


def presets_with(tool: str) -> list[str]:
    """Return the presets that have a tool."""
    return [preset for preset in Preset if tool in rules.USES[preset]]


def may_have_children(permissions: Permissions, cwd: str) -> bool:
    """Return whether an operator may create any agent below this one."""
    return not all(offer.refused for offer in offers(permissions, cwd))


def ceiling(parent: Permissions) -> list[str]:
    """Return the limits of any agent below this parent, in words."""
    writes = ", ".join(parent.write_paths) if rules.WRITING & rules.USES[parent.preset] else ""
    lines = [
        f"Its preset is {parent.preset} at most",
        f"Its directory lies in {parent.cwd}",
        f"It writes at and below {writes} at most" if writes else "It writes nowhere",
    ]
    if parent.disabled_tools:
        lines.append(f"It goes without {', '.join(sorted(parent.disabled_tools))}, as its parent does")
    return lines
