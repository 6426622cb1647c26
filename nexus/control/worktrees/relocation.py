"""The paths that the pool keeps of a project, when its directory is renamed."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from coordination.paths import moved
from nexus.control.models import Budget, PermissionRule, PoolAgent, PoolWorktree, WorktreeMerge
from nexus.control.permissions.budgets import budget_id
from nexus.control.runners.git import quoted
from nexus.core import foreign_files

COLUMNS: dict[Any, tuple[str, ...]] = {
    PoolAgent: ("cwd", "write_paths"),
    PoolWorktree: ("path", "git_dir", "origin", "origin_git_dir", "borrowed", "local_files"),
    WorktreeMerge: ("repository",),
    Budget: ("name",),
    PermissionRule: ("name",),
}


def follow(old: str, new: str) -> None:
    """Change the paths in the pool's rows and in its clones."""
    for model, columns in COLUMNS.items():
        for row in model._default_manager.all():
            changed = {name: _moved(getattr(row, name), old, new) for name in columns}
            if all(getattr(row, name) == value for name, value in changed.items()):
                continue
            if isinstance(row, Budget):
                changed["budget_id"] = budget_id(row.scope, changed["name"], row.measure, row.period)
                if Budget.objects.filter(pk=changed["budget_id"]).exists():
                    continue  # the new path has a limit of its own
            model._default_manager.filter(pk=row.pk).update(**changed)
            if isinstance(row, PoolWorktree):
                with suppress(FileNotFoundError):  # it was discarded, or is on another machine
                    _lead(row, **{name: changed[name] for name in ("path", "git_dir", "borrowed", "local_files")})


def _moved(value: Any, old: str, new: str) -> Any:
    if isinstance(value, dict):
        return {name: moved(path, old, new) for name, path in value.items()}
    return moved(value, old, new) if isinstance(value, str) else [moved(path, old, new) for path in value]


def _lead(row: PoolWorktree, path: str, git_dir: str, borrowed: list[str], local_files: dict[str, str]) -> None:
    """Let a clone find the objects that it borrows, and its links the project's files. An agent may write there."""
    content = "".join(f"{quoted(each)}\n" for each in borrowed).encode()
    foreign_files.replace(os.path.join(git_dir, "objects", "info", "alternates"), content)
    for name, target in local_files.items():
        folder, link = os.path.split(os.path.join(path, name))
        with suppress(OSError), foreign_files.directory(folder) as opened:
            if target and os.readlink(link, dir_fd=opened) == row.local_files[name]:  # the agent changed it otherwise
                os.unlink(link, dir_fd=opened)
                os.symlink(target, link, dir_fd=opened)
