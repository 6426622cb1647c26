"""The knowledge files of a project: `.nexus/memory`, `context` and `rules`. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Mapping

from nexus.planning.directory import Directory

MEMORY, CONTEXT, RULES = "memory", "context", "rules"
FOLDERS = (MEMORY, CONTEXT, RULES)
TIDIED = "state/memory-gc"  # tidied lessons are moved here, and not deleted
LONGEST = 65_536  # characters of a lesson or rule
NAME = re.compile(r"\w[\w.-]*")
COPIES = 1_000  # lessons with one name


def index(directory: Directory) -> Mapping[str, list[str]]:
    """Return the names of the files by folder."""
    return {folder: [name for name in directory.names(folder) if name[0] != "."] for folder in FOLDERS}


def keep_lesson(directory: Directory, text: str) -> str:
    """Store a lesson; return its path below .nexus, which is the old one if it was stored before. Call it inside the
    lock."""
    content = _content(text)
    words = re.findall(r"\w+", text.lower())
    name = "-".join(words[:6])[:60] or "lesson"
    for number in range(1, COPIES):
        path = f"{MEMORY}/{name}{f'-{number}' if number > 1 else ''}.md"
        there = directory.read(path)
        if there is None:
            directory.write(path, content)
        if there in (None, content):
            return path
    raise ValueError(f"there are {COPIES} lessons of that name; tidy them with [m:gc]")


def keep_rule(directory: Directory, subject: str, text: str) -> str:
    """Add a rule to the rules of a subject, unless it is there; return their path below .nexus. Call it inside the
    lock.

    Raises ValueError for a subject that cannot be a file name.
    """
    if not NAME.fullmatch(subject):
        raise ValueError(f"{subject!r} is no file's name; use letters, digits, '-' and '.'")
    path = f"{RULES}/{subject}.md"
    there, content = directory.read(path) or b"", _content(text)
    if b"\n\n" + content + b"\n" not in b"\n\n" + there + b"\n":
        directory.write(path, there + (b"\n" if there else b"") + content)
    return path


def tidy(directory: Directory) -> list[str]:
    """Move away lessons that are empty or duplicates; return their names. Call it inside the lock."""
    seen: set[bytes] = set()
    moved = []
    for name in index(directory)[MEMORY]:
        if not name.endswith(".md"):
            continue  # a folder, for example
        content = directory.read(f"{MEMORY}/{name}")
        if content is None:
            continue
        if content.strip() and content.strip() not in seen:
            seen.add(content.strip())
            continue
        directory.write(f"{TIDIED}/{name}", content)
        directory.remove(f"{MEMORY}/{name}")
        moved.append(name)
    return moved


def _content(text: str) -> bytes:
    if len(text) > LONGEST:
        raise ValueError(f"it has more than {LONGEST} characters")
    return (text.strip() + "\n").encode("utf-8", "replace")
