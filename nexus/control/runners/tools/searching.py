"""Search below an agent's directory, by name and by content: bounded in time, in depth and in matches.

RE2 matches the patterns in time that is linear in the text, so an agent's regular expression cannot stall anybody.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import re2

from nexus.control.permissions import protected_paths
from nexus.control.permissions.rules import Action, Effect, Kind, Permissions, Rule, Verdict, decide
from nexus.control.runners.tools import files
from nexus.control.runners.tools.files import ToolFailed, check_tool, decoded
from nexus.core import foreign_files
from nexus.core.foreign_files import Bounds

MOST_FOUND = 200  # paths, or lines
LARGEST_FILE = 4 * 1024 * 1024  # bytes; larger ones are not searched
LONGEST_LINE = 500  # characters of a line that are shown
LONGEST_PATTERN = 1_000
LEFT_OUT = frozenset((".git",))  # directories that are not searched


def glob(permissions: Permissions, pattern: str, path: str = ".") -> tuple[list[str], str | None]:
    """Return the files below a directory whose relative path matches a pattern, and the limit that cut the list off, if
    any.

    `*` is any number of characters of a name, `?` one, `[a-z]` one of these, `**` any number of directories. Raises
    ToolFailed.
    """
    check_tool(permissions, "glob")
    wanted, bounds = _compiled(translated(pattern)), Bounds()
    found: list[str] = []
    for relative, _at, _name in _files(permissions, path, bounds):
        if wanted.fullmatch(relative):
            found.append(relative)
            if len(found) == MOST_FOUND:
                bounds.reached = f"{MOST_FOUND} were found"
                break
    return sorted(found), bounds.reached


def grep(
    permissions: Permissions,
    pattern: str,
    path: str = ".",
    names: str | None = None,
    known: Sequence[Rule] = (),
) -> tuple[list[str], str | None]:
    """Return the lines that match a regular expression (RE2), as `path:number: line`, and the limit that cut them off,
    if any.

    `names` is a pattern, as for `glob`, of the files to search; without a slash it matches their names alone. Files
    that the rules keep from the agent are left out. Raises ToolFailed.
    """
    check_tool(permissions, "grep")
    known = [rule for rule in known if rule.effect is not Effect.ALLOW]
    top = files.readable(permissions, path)
    wanted, bounds = _compiled(pattern), Bounds()
    named = None if names is None else _compiled(translated(names if "/" in names else f"**/{names}"))
    found, left_out = list[str](), False
    for relative, at, name in _files(permissions, path, bounds):
        if named is not None and not named.fullmatch(relative):
            continue
        if known and not _is_open(known, permissions, os.path.join(top, relative)):
            left_out = True
            continue
        for number, line in enumerate(_lines(at, name), start=1):
            if wanted.search(line):
                found.append(f"{relative}:{number}: {line[:LONGEST_LINE]}")
                if len(found) == MOST_FOUND:
                    return found, f"{MOST_FOUND} were found"
    return found, bounds.reached or ("rules keep some files from this agent" if left_out else None)


def _is_open(known: Sequence[Rule], permissions: Permissions, path: str) -> bool:
    action = Action(Kind.READ, paths=(path,), cwd=permissions.cwd)
    return decide(known, action, Verdict.ALLOWED).verdict is Verdict.ALLOWED


def translated(pattern: str) -> str:
    """Return the regular expression of a pattern of names."""
    expression, position = "", 0
    while position < len(pattern):
        if pattern.startswith("**/", position) and (position == 0 or pattern[position - 1] == "/"):
            expression, position = expression + "(?:[^/]+/)*", position + 3
            continue
        character, position = pattern[position], position + 1
        if character == "*":
            deep = pattern.startswith("*", position)
            expression, position = expression + (".*" if deep else "[^/]*"), position + deep
        elif character == "?":
            expression += "[^/]"
        elif character == "[" and (end := pattern.find("]", position + 1)) > 0:
            inside = pattern[position:end].replace("\\", r"\\").replace("[", r"\[").replace("^", r"\^")
            expression += f"[^{inside[1:]}]" if inside[0] == "!" else f"[{inside}]"
            position = end + 1
        else:
            expression += re2.escape(character)
    return f"(?s:{expression})"


def _compiled(expression: str) -> Any:
    if len(expression) > LONGEST_PATTERN:
        raise ToolFailed(f"A pattern has {LONGEST_PATTERN} characters at most.")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except UnicodeEncodeError:
        raise ToolFailed("This pattern is not UTF-8 text.") from None
    except re2.error as error:
        why = error.args[0]
        raise ToolFailed(
            f"RE2 does not accept this pattern: {why.decode() if isinstance(why, bytes) else why}."
        ) from None


def _files(permissions: Permissions, path: str, bounds: Bounds) -> Iterator[tuple[str, int, str]]:
    """Yield the regular files below a directory, or the one file that `path` is: relative path, directory, name."""
    resolved = files.readable(permissions, path)
    parent, name = os.path.split(resolved)
    hides = protected_paths.is_hidden(home := protected_paths.home(), permissions.cwd)
    closed = os.path.relpath(home, resolved) if hides else None
    with ExitStack() as opened:
        with files.failing(path):
            at = opened.enter_context(foreign_files.directory(parent, flags=foreign_files.PASSING))
            try:
                top = opened.enter_context(foreign_files.directory(name, at))
            except NotADirectoryError:
                yield name, at, name
                return
        for relative, there, entry in foreign_files.walk(top, bounds, lambda path: _is_left_out(path, closed)):
            with suppress(UnicodeEncodeError):
                entry.name.encode()
                yield relative, there, entry.name


def _is_left_out(path: str, closed: str | None) -> bool:
    return os.path.basename(path) in LEFT_OUT or path == closed  # noqa: PTH119


def _lines(at: int, name: str) -> list[str]:
    """Return the lines of a text file; none if it is not text, too large, or gone."""
    try:
        text = decoded(foreign_files.read_file(name, at, largest=LARGEST_FILE))
    except OSError:
        return []
    return [] if text is None else text.splitlines()
