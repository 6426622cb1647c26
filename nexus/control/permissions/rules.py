"""The rules of permissions, and permissions in words: what a pool agent may do, and what it may give to agents that it
creates (docs/reference/control.md).

Pure functions over plain values. Paths must be absolute and resolved: nothing here reads the disk.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from pathlib import PurePath
from typing import Any

from nexus.control.permissions import patterns
from nexus.control.permissions.patterns import Match
from nexus.core.foreign_files import is_dot_git

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
class RequestedPermissions:
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


def grant(wish: RequestedPermissions, *, parent: Permissions | None, default_cwd: str, by_parent: bool) -> Permissions:
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


def reserve(most: int) -> int:
    """Return how many of so many places no agent takes, so that operators get one."""
    return max(most // 10, 1) if most > 3 else 0


def share(most: int) -> int:
    """Return how many of so many places one agent takes, together with all below it."""
    return max(most // 2, 2)


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
    """Return whether a path lies in a `.git` or is a configuration of git that no write path names, or could turn a
    directory into a repository, as a file HEAD does. git may run what is written there."""
    makes_one = _in_git(path) or PurePath(path).name.lower() == "head"
    return makes_one and not any(_in_git(root) and within(path, (root,)) for root in write_paths)


def opens_git(write_paths: Iterable[str]) -> list[str]:
    """Return the write paths that name a `.git`, or a configuration of git."""
    return [path for path in write_paths if _in_git(path)]


def _in_git(path: str) -> bool:
    parts = PurePath(path.lower()).parts
    is_configuration = parts[-1:] in ((".gitconfig",), ("gitconfig",)) or (".config", "git") in pairwise(parts)
    return is_configuration or any(map(is_dot_git, parts))


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
    Preset.SANDBOXED: "Reads below its directory, writes in a clone of its own, or where it is allowed to. Runs no "
    "programs, creates no agents.",
    Preset.TRUSTED: "Reads and writes below its directory, runs programs, and creates agents that may do less.",
}


LEFT_BEHIND = (
    "a Makefile, a setting of an editor or a new git repository that it leaves there runs programs outside of its "
    "sandbox once you use it"
)


def describe_permissions(permissions: Permissions, home: str) -> list[str]:
    """Return what an agent may do, one line for each kind of action, and its `risks`."""
    writes = ", ".join(permissions.write_paths) if WRITING & USES[permissions.preset] else ""
    lines = [
        f"Reads below {permissions.cwd}",
        f"Writes at and below {writes}" if writes else "Writes nowhere",
        "Runs programs" if may_use(permissions, "run") else "Runs no programs",
        _agents(permissions),
    ]
    if permissions.disabled_tools:
        lines.append(f"Goes without {', '.join(sorted(permissions.disabled_tools))}")
    return lines + risks(permissions, home)


def risks(permissions: Permissions, home: str) -> list[str]:
    """Return what people trust an agent with that writes where they work: outside of the hub's home, which has the
    worktrees, or in a `.git`."""
    opened = opens_git(permissions.write_paths)
    lines = []
    if any(path not in opened and not within(path, (home,)) for path in permissions.write_paths):
        lines.append(f"Writes where you work, so you trust it: {LEFT_BEHIND}")
    if opened:
        lines.append(
            f"May change {', '.join(opened)}: the next git command that anybody runs there may run what this agent "
            "wrote, outside of its sandbox"
        )
    return lines


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
        grant(RequestedPermissions(preset), parent=parent, default_cwd=cwd, by_parent=False)
    except Broken as broken:
        return str(broken)
    return ""


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


class Kind(StrEnum):
    """The kind of an action that a rule is about."""

    READ = "read"  # files
    WRITE = "write"  # files
    RUN = "run"  # a command
    NETWORK = "network"  # a page of it
    OTHER = "other"  # what an agent asks about in words of its own


FILES = frozenset((Kind.READ, Kind.WRITE))


class Effect(StrEnum):
    """What a rule does. The first that applies counts, in this order."""

    DENY = "deny"
    ASK = "ask"
    ALLOW = "allow"


class Verdict(StrEnum):
    """The verdict on an action: allowed, refused, or to be asked."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    ASKED = "asked"  # an operator decides


BY_EFFECT = {Effect.DENY: Verdict.REFUSED, Effect.ASK: Verdict.ASKED, Effect.ALLOW: Verdict.ALLOWED}


@dataclass(frozen=True)
class Rule:
    """A rule of an operator. An empty pattern matches every action of the kind."""

    number: int
    effect: Effect
    kind: Kind
    pattern: str = ""

    def __str__(self) -> str:
        return f"{self.effect} {self.what}"

    @property
    def what(self) -> str:
        """The actions, in words."""
        return describe_actions(self.kind, self.pattern)


def describe_actions(kind: str, pattern: str) -> str:
    """Return the actions that a rule is about, in words."""
    match kind:
        case Kind.READ | Kind.WRITE:
            return f"{kind} at and below {pattern}" if pattern else f"{kind} any file"
        case Kind.RUN:
            return f"run {pattern}" if pattern else "run any command"
        case Kind.NETWORK:
            return f"fetch {pattern}" if pattern else "fetch any page"
    return pattern or "any other action"


FLOOR = (
    "what its preset, its directory and its write paths do not allow",
    "the hub's home and its database",
    "writing in a .git, a HEAD or a configuration of git that none of its write paths names",
)


@dataclass(frozen=True)
class Action:
    """What an agent wants to do. `text` is the command, the page, or the agent's own words."""

    kind: Kind
    text: str = ""
    paths: tuple[str, ...] = ()  # real ones
    named: tuple[str, ...] = ()  # the same as the agent named them, with its directory in front
    cwd: str = "/"  # the agent's directory
    is_deep: bool = False  # it concerns what lies below the paths, too
    is_known: bool = True  # False if the command is not told, but its description

    def __str__(self) -> str:
        if self.kind in FILES:
            return " ".join((self.kind, *(self.paths or [self.text])))
        return f"run {self.text}" if self.kind is Kind.RUN else self.text

    def patterns(self) -> list[str]:
        """Return the patterns of the rules that "always" writes: together they match this action and no other. None if
        no rule can hold."""
        texts = [_relative(path, self.cwd) for path in self.paths] if self.kind in FILES else [self.text]
        found = [patterns.escaped(text) for text in texts]
        may_hold = self.is_known and (self.kind is not Kind.RUN or patterns.covers(found[0], self.text))
        return found if may_hold and all(each and is_pattern(each) for each in found) else []

    def mapped(self, change: Callable[[str], str]) -> Action:
        """Return the action with its texts changed."""
        paths, named = (tuple(map(change, each)) for each in (self.paths, self.named))
        return replace(self, text=change(self.text), paths=paths, named=named)


@dataclass(frozen=True)
class Ruling:
    """The verdict on an action, and the rule that gave it, if one did."""

    verdict: Verdict
    rule: Rule | None = None
    is_sure: bool = True  # False if the rule may match: it cannot be known

    def __str__(self) -> str:
        if self.rule is None:
            return ""
        may = "" if self.is_sure else ", which may be meant"
        return f"{self.verdict} by rule {self.rule.number} ({self.rule}){may}"


def decide(rules: Sequence[Rule], action: Action, ceiling: Verdict) -> Ruling:
    """Return the verdict on an action: what the ceiling refuses, a rule that denies, one that asks, one that allows,
    what the ceiling says. So no rule lifts a ceiling, and no rule that allows lifts one that denies or asks.

    Where a rule that denies or asks may match, an operator is asked.
    """
    if ceiling is Verdict.REFUSED:
        return Ruling(ceiling)
    about = [rule for rule in rules if rule.kind is action.kind]
    unsure: Rule | None = None
    for effect in (Effect.DENY, Effect.ASK):
        for rule in (each for each in about if each.effect is effect):
            match = _match(rule.pattern, action)
            if match is Match.YES:
                return Ruling(BY_EFFECT[effect], rule)
            if match is Match.MAYBE and unsure is None:
                unsure = rule
        if unsure is not None:
            return Ruling(Verdict.ASKED, unsure, is_sure=False)
    allowing = [rule for rule in about if rule.effect is Effect.ALLOW]
    found = [next((rule for rule in allowing if _covers(rule.pattern, part)), None) for part in _parts(action)]
    if found and None not in found:
        return Ruling(Verdict.ALLOWED, found[0])
    return Ruling(ceiling)


def is_pattern(pattern: str) -> bool:
    """Return whether a rule may have this pattern."""
    return len(pattern) <= patterns.LONGEST_PATTERN and pattern.isprintable()


def _parts(action: Action) -> list[Action]:
    """Return the parts of an action that are allowed one by one."""
    return [replace(action, paths=(path,)) for path in action.paths] or [action]


def _match(pattern: str, action: Action) -> Match:
    if not pattern:
        return Match.YES
    if action.kind is Kind.RUN:
        match = patterns.finds(pattern, action.text)
        return match if action.is_known else Match.MAYBE
    if action.kind not in FILES:
        return Match.YES if _is_text(pattern, action.text) else Match.NO
    paths = (*action.paths, *action.named)
    if not paths or any(map(_is_odd, paths)):
        return Match.MAYBE
    expression = _of_paths(pattern, action.cwd)
    if any(expression.fullmatch(path + "/") for path in paths):
        return Match.YES
    below = action.is_deep and any(_may_lie_below(path, pattern, action.cwd) for path in paths)
    return Match.MAYBE if below else Match.NO


def _covers(pattern: str, action: Action) -> bool:
    if not pattern:
        return True
    if action.kind is Kind.RUN:
        return action.is_known and patterns.covers(pattern, action.text)
    if action.kind not in FILES:
        return _is_text(pattern, action.text)
    expression = _of_paths(pattern, action.cwd)
    odd = not action.paths or any(map(_is_odd, action.paths))
    return not odd and all(expression.fullmatch(path + "/") for path in action.paths)


def _is_text(pattern: str, text: str) -> bool:
    expression = patterns.compiled(patterns.wildcards(pattern, ".*", "."))
    return not _is_odd(text) and expression.fullmatch(text) is not None


def _is_odd(text: str) -> bool:
    """Return whether a text has no encoding."""
    return patterns.SURROGATE.search(text) is not None


def _of_paths(pattern: str, cwd: str) -> Any:
    """Return the expression of the paths at and below those of a pattern, with a slash behind them. `**` stands for any
    number of directories."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    base = "" if pattern.startswith("/") else patterns.wildcards(patterns.escaped(cwd.rstrip("/")), "", "")
    inside = "".join(
        "(?:[^/]+/)*" if part == "**" else f"{patterns.wildcards(part, '[^/]*', '[^/]')}/" for part in parts
    )
    return patterns.compiled(f"{base}/{inside}.*")


def _may_lie_below(path: str, pattern: str, cwd: str) -> bool:
    """Return whether a path that matches may lie below another one: the part without wildcards does, or is above."""
    parts = pattern.split("/")
    certain = next((number for number, part in enumerate(parts) if patterns.literal(part) is None), len(parts))
    known = [patterns.literal(part) or "" for part in parts[:certain]]
    start = PurePath(cwd, *known) if not pattern.startswith("/") else PurePath("/", *known)
    return start.is_relative_to(path) or PurePath(path).is_relative_to(start)


def _relative(path: str, cwd: str) -> str:
    """Return a path from the agent's directory on, if it lies there."""
    if within(path, (cwd,)):
        return PurePath(path).relative_to(cwd).as_posix()
    return path
