"""The files that a call of a tool is about, in every spelling that coding agents use: arguments of many names, patches,
and lines of shell that apply a patch. Standard library alone."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

# Names of arguments without their underscores and capitals: `file_path` is `filePath` and `FilePath`, too.
PATHS = frozenset(  # arguments that name a file
    "filepath notebookpath path targetfile absolutepath relativepath file filename uri source destination oldpath "
    "newpath movepath pathinproject".split()
)
# Arguments with several files, or edits of several; `changes` may have the files as its keys.
LISTS = frozenset("edits files paths changes replacements args file".split())
PATCHES = ("command", "cmd", "input", "patch", "patch_text", "patchText", "diff")  # arguments that may be a patch
FOLDERS = ("workdir", "cwd", "directory", "dir_path")  # arguments from which paths are relative
# Arguments with what a file becomes: a tool that has one of them edits, whatever its name is.
CONTENTS = frozenset(
    "content contents newstring newstr newsource filetext codeedit edits diff destination newpath changes".split()
)
# Words in the name of a tool that edits, such as `delete_file` and `MultiEdit`.
VERBS = frozenset("append apply create delete edit insert move patch remove rename replace undo write".split())
NAME_WORD = re.compile(r"[A-Z]?[a-z]+")
READS = ("view", "read")  # the `command` of a tool with several
BEGIN = "*** Begin Patch"
PATCHED = re.compile(  # its lines, which it reads without the space around them
    r"^[ \t]*\*\*\* (?:(?:Add|Update|Delete) File|Move to):(.+)$", re.MULTILINE
)
DIFF = re.compile(r"^(?:diff --git |--- \S.*\n\+\+\+ )", re.MULTILINE)
APPLIES = re.compile(r"\b(?:git\b[^\n]*\b(?:apply|am)|patch)\b")  # in a line of shell
DIFFED = re.compile(
    r'^(---|\+\+\+|(?:rename|copy) (?:from|to)|diff --git "?[a-z]/.+(?= "?[a-z]/)) '
    r'(?!/dev/null)("(?:[^"\\\n]|\\.)+"|[^\t\n]+)',
    re.MULTILINE,
)
PREFIX = re.compile(r"[abciow]/")  # git's of the two sides
SCRIPT = re.compile(r"-[a-z]*c")  # a shell's option for a line
WORD = r"""(?:'([^']+)'|"([^"]+)"|([^\s;&|'"]+))"""
WORKS = re.compile(r"<<|\*\*\* Begin|\bgit\s[^\n;&|]*\b(?:commit|push|am|apply)\b|\b(?:apply_?patch|patch)\s")
SUBSHELL = re.compile(r"\([^()]*\)")
GOES = re.compile(rf"(?:^|[;&|({{\n])\s*(?:cd|pushd)\s+(?:--\s+)?{WORD}(?=\s*(?:&&|\|\||;|\n))")
IN = re.compile(rf"\bgit\s+-C\s+{WORD}")
INTO = re.compile(rf"\b(?:patch|apply)\s[^\n;&|]*?(?:-d\s*|--directory[= ]){WORD}")
STRIPS = re.compile(r"\b(?:patch|apply|am)\s[^\n;&|]*?(?:-p|--strip=)(\d+)")  # names of directories in front
MOST = 2_000  # files of one call
DEEPEST = 4  # arguments in arguments


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
    before = SUBSHELL.sub("", WORKS.split(command, maxsplit=1)[0])
    found = [*GOES.finditer(before), *filter(None, (IN.search(command), INTO.search(command)))]
    goes = [_path(next(filter(None, each.groups()))) for each in found]
    given = [_path(folder) for name in FOLDERS if isinstance(folder := arguments.get(name), str)]
    return os.path.join(cwd, *given, *goes)


def files_of(arguments: Mapping[str, Any], directory: str) -> tuple[str, ...]:
    """Return the files of a call, relative only where the directory is."""
    found = [*_named(arguments), *_patched(arguments)][:MOST]
    return tuple(dict.fromkeys(os.path.normpath(os.path.join(directory, _path(path))) for path in found))


def edits(tool: str, arguments: Mapping[str, Any]) -> bool:
    """Return whether a call changes files by what it is given, or by a word in the tool's name."""
    if next(_patched(arguments), None) is not None:
        return True
    if arguments.get("command") in READS or next(_named(arguments), None) is None:
        return False
    words = {word.lower() for word in NAME_WORD.findall(tool)}
    return not (VERBS.isdisjoint(words) and CONTENTS.isdisjoint(map(_plain, arguments)))


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _named(arguments: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    for name, value in arguments.items():
        plain = _plain(name)
        if isinstance(value, str):
            if plain in PATHS and value.strip():
                yield value
        elif plain in LISTS and depth < DEEPEST:
            if plain == "changes" and isinstance(value, Mapping):
                yield from value
                value = list(value.values())
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, str):
                    yield each
                elif isinstance(each, Mapping):
                    yield from _named(each, depth + 1)


def _patched(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield the files of the patches among the arguments."""
    for name in PATCHES:
        text = command_of({"command": arguments.get(name)})
        if BEGIN in text:
            yield from PATCHED.findall(text)
        elif DIFF.search(text) and (name not in ("command", "cmd") or APPLIES.search(text)):
            strips = STRIPS.search(text)
            for kind, path in sorted(DIFFED.findall(text), key=lambda found: found[0].startswith("diff")):
                path = _unquoted(path.rstrip())
                if kind in ("---", "+++") and strips:
                    yield path.split("/", int(strips[1]))[-1]
                else:
                    yield path if kind.startswith(("rename", "copy")) else PREFIX.sub("", path, count=1)


def _unquoted(path: str) -> str:
    """Return a path as git means it, which quotes names with other letters than ASCII."""
    if not path.startswith('"'):
        return path
    path = path[1:].removesuffix('"')
    with contextlib.suppress(ValueError):
        return os.fsdecode(path.encode().decode("unicode_escape").encode("latin-1"))
    return path


def _path(text: str) -> str:
    """Return the path in an argument, which may be a URL or begin with the user's home."""
    text = text.strip()
    if text.startswith("file:"):
        from urllib.parse import unquote, urlsplit  # rarely needed

        text = unquote(urlsplit(text).path)
    return os.path.expanduser(text)  # noqa: PTH111  # pathlib costs more
