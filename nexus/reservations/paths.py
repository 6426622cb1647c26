"""Conversion of agents' paths and globs into patterns, which depends on the project's files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from coordination.paths import on_this_machine, workspace_id_of
from coordination.services.workspaces import ProjectDirectory
from nexus.core.operations.errors import NexusError, invalid
from nexus.reservations import patterns
from nexus.reservations.guard import repository

DRIVE = re.compile(r"[A-Za-z]:[\\/]")


def patterns_of(paths: Iterable[str], *, project_root: str, project: ProjectDirectory) -> list[str]:
    """Return the normalized patterns of paths, without duplicates, in order. Raises VALIDATION_ERROR."""
    return list(dict.fromkeys(pattern_of(path, project_root=project_root, project=project) for path in paths))


def pattern_of(path: str, *, project_root: str, project: ProjectDirectory) -> str:
    """Return the normalized pattern of a path or glob; an absolute one is made relative to the project.

    Existing files decide: a directory with an extension is a directory, a link is its target. Raises VALIDATION_ERROR,
    with what to write instead.
    """
    try:
        text = _relative(on_this_machine(path), (project.root, on_this_machine(os.path.normpath(project_root))))
        pattern = patterns.normalized("/".join(_names(text, project.root)))
        if not pattern.endswith("/") and _is_directory(os.path.join(project.root, pattern.strip("/"))):
            pattern = patterns.normalized(pattern + "/")
    except ValueError as why:
        raise refused(path, str(why)) from None
    return pattern


def refused(path: str, why: str) -> NexusError:
    """Return the error for a path that cannot be reserved."""
    return invalid(f"The path {path[:200]!r} {why}.", field="paths", path=path[:200])


def _relative(path: str, roots: Iterable[str]) -> str:
    """Return a path relative to the root, starting with `./`. Raises ValueError for an absolute one outside of it."""
    for root in roots:
        if path == root or path.startswith(root.rstrip("/") + "/"):
            return "./" + path[len(root) :].lstrip("/")
    first = path.split("/")[1] if path.startswith("/") else ""
    elsewhere = first and os.path.lexists(f"/{first}") and not any(os.path.lexists(f"{root}/{first}") for root in roots)
    if elsewhere or path.startswith("~/") or DRIVE.match(path):
        raise ValueError(f"leads outside of the project; write it relative to the root, such as ./{first or 'src'}")
    return path


def _is_directory(path: str) -> bool:
    return os.path.isdir(path)  # noqa: PTH112  # False for a path that is too long, too


def _names(text: str, root: str) -> list[str]:
    """Return the names of a path. A link within the project is its target: two agents must not hold one file by two
    names."""
    names, directory = [], root
    for name in text.split("/"):
        directory = os.path.join(directory, name)
        if os.path.islink(directory) and (leads := os.path.realpath(directory)).startswith(f"{root}/"):  # noqa: PTH114
            names = [patterns.literal(each) for each in leads.removeprefix(f"{root}/").split("/")]
            directory = leads
        else:
            names.append(name)
    return names


def shared_by(project: ProjectDirectory) -> list[str]:
    """Return the ids of the workspaces that have the same files under the same names: the project's own first, then the
    corresponding ones in the other work trees, whether or not anybody works there."""
    here = repository.find_repository(project.root)
    if here is None:
        return [project.workspace_id]
    inner = project.root[len(here.top) :]
    return [project.workspace_id, *(workspace_id_of(tree + inner) for tree in here.trees if tree != here.top)]
