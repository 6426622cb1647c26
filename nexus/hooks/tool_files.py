"""The files that a call of a tool is about, in every spelling that coding agents use: arguments of many names, patches,
and lines of shell that apply a patch. Standard library alone."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

PATHS = (  # arguments that name a file
    "file_path notebook_path path target_file filePath filepath absolute_path relative_path file filename notebookPath "
    "targetFile uri source destination old_path new_path"
).split()
LISTS = ("edits", "files", "paths", "changes", "replacements")  # arguments with several files, or edits of several
PATCHES = ("command", "cmd", "input", "patch", "patch_text", "patchText", "diff")  # arguments that may be a patch
FOLDERS = ("workdir", "cwd", "directory", "dir_path")  # arguments from which paths are relative
# Arguments with what a file becomes: a tool that has one of them edits, whatever its name is.
CONTENTS = frozenset(
    "content contents new_string newString new_str new_source file_text code_edit edits diff destination "
    "new_path".split()
)
BEGIN = "*** Begin Patch"
PATCHED = re.compile(  # its lines, which it reads without the space around them
    r"^[ \t]*\*\*\* (?:(?:Add|Update|Delete) File|Move to):(.+)$", re.MULTILINE
)
DIFF = re.compile(r"^(?:diff --git |--- \S.*\n\+\+\+ )", re.MULTILINE)
APPLIES = re.compile(r"\b(?:git\b[^\n]*\bapply|patch)\b")  # in a line of shell
DIFFED = re.compile(  # the prefixes are git's of the two sides
    r'^(?:(?:---|\+\+\+) "?(?:[abciow]/)?|(?:rename|copy) (?:from|to) "?)(?!/dev/null)([^\t\n]+)', re.MULTILINE
)
SCRIPT = re.compile(r"-[a-z]*c")  # a shell's option for a line
WORD = r"""(?:'([^']+)'|"([^"]+)"|([^\s;&|'"]+))"""
GOES = re.compile(rf"^\s*cd\s+(?:--\s+)?{WORD}\s*(?:&&|;|\n)")  # first in a line
IN = re.compile(rf"\bgit\s+-C\s+{WORD}")
MOST = 2_000  # files of one call


def arguments_of(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a tool's arguments. A tool with one free text, or a list of words, has them as `command`."""
    given = payload.get("tool_input")
    if isinstance(given, str) and given.lstrip().startswith("{"):
        with contextlib.suppress(ValueError, RecursionError):
            given = json.loads(given)
    return given if isinstance(given, Mapping) else {"command": given}


def command_of(arguments: Mapping[str, Any]) -> str:
    """Return the line of shell, or the patch, that a tool gets; of `bash -lc LINE` as a list, the line."""
    given = next((arguments[name] for name in ("command", "cmd") if arguments.get(name)), "")
    if isinstance(given, list):
        words = [word for word in given if isinstance(word, str)]
        return words[-1] if len(words) > 2 and SCRIPT.fullmatch(words[-2]) else " ".join(words)
    return given if isinstance(given, str) else ""


def directory_of(arguments: Mapping[str, Any], cwd: str) -> str:
    """Return the directory from which a call's paths are relative, and in which its line of shell runs git."""
    command = command_of(arguments)
    goes = [_path(next(filter(None, found.groups()))) for found in (GOES.match(command), IN.search(command)) if found]
    given = [_path(folder) for name in FOLDERS if isinstance(folder := arguments.get(name), str)]
    return os.path.join(cwd, *given, *goes)


def files_of(arguments: Mapping[str, Any], directory: str) -> tuple[str, ...]:
    """Return the files of a call, relative only where the directory is."""
    found = [*_named(arguments), *_patched(arguments)][:MOST]
    return tuple(dict.fromkeys(os.path.normpath(os.path.join(directory, _path(path))) for path in found))


def edits(arguments: Mapping[str, Any]) -> bool:
    """Return whether a call changes files by what it is given, whatever the tool's name is."""
    return next(_patched(arguments), None) is not None or (
        not CONTENTS.isdisjoint(arguments) and next(_named(arguments), None) is not None
    )


def _named(arguments: Mapping[str, Any]) -> Iterator[str]:
    for name in PATHS:
        if isinstance(value := arguments.get(name), str) and value.strip():
            yield value
    for name in LISTS:
        several = arguments.get(name)
        for each in several if isinstance(several, list) else ():
            if isinstance(each, str):
                yield each
            elif isinstance(each, Mapping):
                yield from _named(each)


def _patched(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield the files of the patches among the arguments."""
    for name in PATCHES:
        text = command_of({"command": arguments.get(name)})
        if BEGIN in text:
            yield from PATCHED.findall(text)
        elif DIFF.search(text) and (name not in ("command", "cmd") or APPLIES.search(text)):
            yield from (path.rstrip().removesuffix('"') for path in DIFFED.findall(text))


def _path(text: str) -> str:
    """Return the path in an argument, which may be a URL or begin with the user's home."""
    text = text.strip()
    if text.startswith("file:"):
        from urllib.parse import unquote, urlsplit  # rarely needed

        text = unquote(urlsplit(text).path)
    return os.path.expanduser(text)  # noqa: PTH111  # pathlib costs more
