"""Paths and globs as agents write them, as patterns: what they mean depends on the project that they are of."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from coordination.paths import workspace_id_of
from coordination.services.workspaces import ProjectDirectory
from nexus.core.operations.errors import NexusError, invalid
from nexus.reservations import patterns
from nexus.reservations.guard import repository

DRIVE = re.compile(r"[A-Za-z]:[\\/]")


def patterns_of(paths: Iterable[str], *, project_root: str, place: ProjectDirectory) -> list[str]:
    """The normalized patterns of paths, each once, in order. Raises VALIDATION_ERROR."""
    return list(dict.fromkeys(pattern_of(path, project_root=project_root, place=place) for path in paths))


def pattern_of(path: str, *, project_root: str, place: ProjectDirectory) -> str:
    """The normalized pattern of a path or glob; an absolute one is made relative to the project.

    What exists is taken for what it is: a name with brackets for itself and no glob, and a directory with an extension
    for a directory, a link for what it leads to. Raises VALIDATION_ERROR, with what to write instead.
    """
    try:
        text = _relative(path, (place.root, os.path.normpath(project_root)))
        pattern = patterns.normalized("/".join(_names(text, place.root)))
        if not pattern.endswith("/") and _is_directory(os.path.join(place.root, pattern.strip("/"))):
            pattern = patterns.normalized(pattern + "/")
    except ValueError as why:
        raise refused(path, str(why)) from None
    return pattern


def refused(path: str, why: str) -> NexusError:
    """The error for a path that cannot be reserved."""
    return invalid(f"The path {path[:200]!r} {why}.", field="paths", path=path[:200])


def _relative(path: str, roots: Iterable[str]) -> str:
    """A path below the root with `./` in its place; an absolute one that leads elsewhere raises ValueError."""
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
    """The names of a path; one in brackets that exists is that name, as `app/[id]/page.tsx`, and a link within the
    project is what it leads to: two agents must not have one file by two names."""
    names, directory = [], root
    for name in text.split("/"):
        directory = os.path.join(directory, name)
        if os.path.islink(directory) and (leads := os.path.realpath(directory)).startswith(f"{root}/"):  # noqa: PTH114
            names = [patterns.literal(each) for each in leads.removeprefix(f"{root}/").split("/")]
            directory = leads
        elif "[" in name and not set(name) & set("*?\\") and os.path.lexists(directory):
            names.append(patterns.literal(name))
        else:
            names.append(name)
    return names


def shared_by(place: ProjectDirectory) -> list[str]:
    """The ids of the workspaces in which the same names are the same files: the project's own first, and those in its
    place in the other work trees, whether or not anybody works there."""
    here = repository.find(place.root)
    if here is None:
        return [place.workspace_id]
    inner = place.root[len(here.top) :]
    return [place.workspace_id, *(workspace_id_of(tree + inner) for tree in here.trees if tree != here.top)]
