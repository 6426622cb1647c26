"""Paths that no agent may open, even within its own directory: the hub's home and its database.

With these files an agent could become the operator, or choose what the hub starts.
"""

from __future__ import annotations

import os

from nexus.control.permissions.rules import within
from nexus.core.config import CoreSettings

STORE_FILES = ("", "-wal", "-shm", "-journal")  # suffixes of SQLite's files


def home() -> str:
    """Return the real path of the hub's home."""
    return os.path.realpath(CoreSettings.current().home)


def database() -> list[str]:
    """Return the real paths of the database's files, whether or not they exist."""
    path = os.path.realpath(CoreSettings.current().database)
    return [path + behind for behind in STORE_FILES]


def is_hidden(path: str, cwd: str) -> bool:
    """Return whether a real path belongs to the hub, for an agent that works in `cwd`. An agent whose directory lies in
    the home, such as a worktree, may open what is in there, except the database."""
    hubs = home()
    lives_there = cwd != hubs and within(cwd, (hubs,))
    return (within(path, (hubs,)) and not lives_there) or path in database()


def holds_hidden(path: str) -> bool:
    """Return whether a real path is the hub's own, lies in its home, or has any of that below it."""
    own = (home(), *database())
    return within(path, own[:1]) or any(within(each, (path,)) for each in own)
