"""What no agent opens, whatever directory of its own holds it: the hub's home and its database.

With what stands there an agent would be the administrator, or choose what the hub starts.
"""

from __future__ import annotations

import os

from nexus.control.rules import within
from nexus.core.config import CoreSettings

STORE_FILES = ("", "-wal", "-shm", "-journal")  # SQLite's, behind the name of the database


def home() -> str:
    """The real path of the hub's home."""
    return os.path.realpath(CoreSettings.current().home)


def database() -> list[str]:
    """The real paths of the database's files, there or not."""
    path = os.path.realpath(CoreSettings.current().database)
    return [path + behind for behind in STORE_FILES]


def is_hidden(path: str, cwd: str) -> bool:
    """Whether a real path is the hub's own, for an agent of this directory: one that lies in the home itself, as a
    worktree does, is the agent's."""
    hubs = home()
    lives_there = cwd != hubs and within(cwd, (hubs,))
    return (within(path, (hubs,)) and not lives_there) or path in database()
