"""Resolution of paths before they are trusted: workspace identity and containment."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from coordination.config import CoordinationSettings, pairs
from coordination.errors import CoordinationCode
from nexus.core.files import Reached
from nexus.core.operations.errors import NexusError


def resolve_root(project_root: str) -> str:
    """Return the real path of a project directory; for a path of the current call, as it was resolved before the call.

    Raises WORKSPACE_UNRESOLVED when it is empty, broken, missing or not a directory.
    """
    root: str | None = project_root.led_to if isinstance(project_root, Reached) else _real_directory(project_root)
    if root is None:
        raise NexusError(
            CoordinationCode.WORKSPACE_UNRESOLVED,
            "project_root does not lead to an existing directory of the hub's machine; pass the project's absolute "
            "path there. An operator maps the paths of a container with the setting project_paths.",
            {"project_root": project_root[:200]},
        )
    return root


def _real_directory(path: str) -> str | None:
    try:
        root = os.path.realpath(on_this_machine(path), strict=True) if path else ""
        root.encode()  # a link may lead to a name that is not UTF-8, which no transport can carry
    except (OSError, ValueError):
        return None
    return root if root and Path(root).is_dir() else None


def on_this_machine(path: str) -> str:
    """Return the path on this machine of one in a container; a path that the setting does not map stays."""
    mapping = CoordinationSettings.current().project_paths
    plain = str(Path(path))  # without "//" and "/./"
    for inside, here in pairs(mapping):
        if f"{plain}/".startswith(f"{inside}/"):
            ending = "/" if path.endswith("/") else ""  # which makes a pattern one of a directory
            return here + plain[len(inside) :] + ending or "/"
    return path


def workspace_id_of(root: str) -> str:
    """Return the SHA-256 of the real path, 64 lowercase hex digits."""
    return hashlib.sha256(os.fsencode(root)).hexdigest()


def moved(path: str, old: str, new: str) -> str:
    """Return a path as it is once the directory `old` is called `new`; both are real paths."""
    return new + path[len(old) :] if path == old or path.startswith(f"{old}/") else path


def resolve_inside(root: str, path: str) -> str:
    """Return the real path of `path` below `root`.

    Raises PATH_OUTSIDE_WORKSPACE when `..`, an absolute path or a symbolic link leaves it.
    """
    resolved = os.path.realpath(os.path.join(root, on_this_machine(path)))
    if not Path(os.path.normcase(resolved)).is_relative_to(os.path.normcase(root)):
        raise NexusError(
            CoordinationCode.PATH_OUTSIDE_WORKSPACE,
            "path leads outside the workspace; use one below project_root.",
            {"path": path[:200]},
        )
    return resolved
