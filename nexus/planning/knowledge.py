"""What a project knows: the files of `.nexus/memory`, `context` and `rules`. Standard library alone."""

from __future__ import annotations

import re
from collections.abc import Mapping

from nexus.planning.directory import Directory

MEMORY, CONTEXT, RULES = "memory", "context", "rules"
FOLDERS = (MEMORY, CONTEXT, RULES)
TIDIED = "state/memory-gc"  # where tidied lessons go: moved, and not lost
LONGEST = 65_536  # characters of a lesson or rule
NAME = re.compile(r"\w[\w.-]*")
COPIES = 1_000  # lessons of one name


def index(directory: Directory) -> Mapping[str, list[str]]:
    """By folder, the names of its files."""
    return {folder: [name for name in directory.names(folder) if name[0] != "."] for folder in FOLDERS}


def keep_lesson(directory: Directory, text: str) -> str:
    """Store a lesson; its path below .nexus, the old one where it was stored before. Inside the lock."""
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
    """Add a rule to those of a subject, unless it stands there; their path below .nexus. Inside the lock.

    Raises ValueError for a subject that is no file's name.
    """
    if not NAME.fullmatch(subject):
        raise ValueError(f"{subject!r} is no file's name; use letters, digits, '-' and '.'")
    path = f"{RULES}/{subject}.md"
    there, content = directory.read(path) or b"", _content(text)
    if b"\n\n" + content + b"\n" not in b"\n\n" + there + b"\n":
        directory.write(path, there + (b"\n" if there else b"") + content)
    return path


def tidy(directory: Directory) -> list[str]:
    """Move the lessons away that are empty, or the same as an earlier one; their names. Inside the lock."""
    seen: set[bytes] = set()
    moved = []
    for name in index(directory)[MEMORY]:
        if not name.endswith(".md"):
            continue  # a folder, say
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
