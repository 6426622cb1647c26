"""Instructions that operators and projects keep for agents in files: `NEXUS.md`, or `AGENTS.md` where there is none.

They are combined from the general to the particular: the hub's home, the directories above the project, the project.
An agent or a stranger may have written what lies in a project. So a file is read as the agent itself could read it, and
one above its directory only if nobody but the hub's account and root can have written it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import PurePath

from nexus.control.models import PoolWorktree
from nexus.control.permissions import protected_paths, rules
from nexus.control.permissions.rules import Permissions, Preset
from nexus.control.runners.tools import files
from nexus.control.runners.tools.files import ToolFailed
from nexus.core import foreign_files

NAMES = ("NEXUS.md", "AGENTS.md")  # in a directory the first that exists counts
MOST = 128 * 1024  # bytes of all together; the nearest to the agent come first
CUT = "[cut off here: it is too long]"


def read_instructions(cwd: str) -> str:
    """Return the instructions for an agent in a directory, each file with its path; empty if there are none. Reads the
    disk and the store."""
    found, left = list[str](), MOST
    for directory in reversed(list(_directories(cwd))):
        for path in (os.path.join(directory, name) for name in NAMES):
            text = _text(cwd, directory, path, left)
            if text is not None:
                found += [f"Instructions from {path}:\n\n{text}"] if text else []
                left -= len(text.encode())
                break
        if left <= 0:
            break
    return "\n\n".join(reversed(found))


def _directories(cwd: str) -> Iterator[str]:
    """Yield the directories that may hold instructions, the most general first. Above a worktree come those above the
    work tree that it was made from."""
    home = protected_paths.home()
    yield home
    inner = PurePath(cwd)
    to_cwd = [*reversed(inner.parents), inner]
    tree = PoolWorktree.objects.filter(path__in=map(str, to_cwd)).first()
    if tree is not None:
        inside = [each for each in to_cwd if each.is_relative_to(tree.path)]
        to_cwd = [*reversed(PurePath(tree.origin).parents), *inside]
    yield from (str(each) for each in to_cwd if str(each) != home)


def _text(cwd: str, directory: str, path: str, most: int) -> str | None:
    """Return the text of a file, at most so many bytes; None if it is missing or not to be read. It may be a symlink to
    another file in its directory."""
    try:
        with foreign_files.open_file(_real(directory, path)) as opened:
            if not rules.within(directory, (cwd,)) and not _is_operators(os.fstat(opened.fileno())):
                return None
            data = opened.read(most + 1)
    except (ToolFailed, OSError):
        return None
    text = data[:most].decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}").strip()
    return f"{text}\n{CUT}" if len(data) > most else text


def _real(directory: str, path: str) -> str:
    """Return the path to open. Raises ToolFailed."""
    if directory == protected_paths.home():
        return path
    return files.readable(Permissions(Preset.WORKER, directory, ()), path)


def _is_operators(found: os.stat_result) -> bool:
    """Return whether only the hub's account and root can have written a file."""
    return found.st_uid in (os.geteuid(), 0) and not found.st_mode & stat.S_IWOTH
