"""The git repository of a file, read from git's own files: a git process is too slow for a hook.

Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from nexus.core.foreign_files import beginning

POINTER = "gitdir: "
LONGEST = 65_536  # bytes that are read of a file, wherever a link leads


class Repository(NamedTuple):
    """A repository, seen from one of its work trees; every path is resolved."""

    top: str  # this work tree
    own: str  # its git directory, with its index
    trees: tuple[str, ...]  # all work trees of the repository, with this one

    def names(self, root: str, paths: Iterable[str]) -> list[tuple[str, str]]:
        """Return the files that belong to the project at `root`, each with its path in the work tree and its name in
        the project; a file may have several names.

        All work trees hold the same files: a reservation in one of them counts in all.
        """
        begins = []  # prefixes of paths, and what replaces each in the project
        around = max((tree for tree in self.trees if _is_below(root, tree)), key=len, default=None)
        if around is not None:
            inner = _from(around, root)
            begins.append((f"{inner}/" if inner else "", ""))
        begins += [("", f"{_from(root, tree)}/") for tree in self.trees if tree != root and _is_below(tree, root)]
        return [(path, new + path[len(old) :]) for path in paths for old, new in begins if path.startswith(old)]

    def concerns(self, root: str) -> bool:
        """Return whether the project at `root` is in this repository, or contains it."""
        return any(_is_below(root, tree) or _is_below(tree, root) for tree in self.trees)

    def is_guarded(self) -> bool:
        """Return whether the guard's hooks are installed."""
        common = os.path.join(self.own, _line(os.path.join(self.own, "commondir")) or "")
        hook = beginning(os.path.join(common, "hooks", "pre-commit"), LONGEST)
        return hook is not None and b"`nexus guard install`" in hook

    def merged(self) -> list[str]:
        """Return the commits that are being merged in this work tree."""
        return (_line(os.path.join(self.own, "MERGE_HEAD")) or "").split()


def find_repository(path: str) -> Repository | None:
    """Return the repository whose work tree contains a path; None outside of any."""
    top = os.path.realpath(path)
    while not os.path.lexists(os.path.join(top, ".git")):
        above = os.path.dirname(top)  # noqa: PTH120  # pathlib costs a third of what a hook may take
        if above == top:
            return None
        top = above
    return at(top)


def at(top: str) -> Repository:
    """Return the repository with a work tree at `top`, a resolved path."""
    own = os.path.join(top, ".git")
    if (pointer := _line(own)) and pointer.startswith(POINTER):
        own = os.path.join(top, pointer.removeprefix(POINTER))
    common = os.path.realpath(os.path.join(own, _line(os.path.join(own, "commondir")) or ""))
    trees = {top: None}
    if os.path.basename(common) == ".git":  # noqa: PTH119
        trees[os.path.dirname(common)] = None  # noqa: PTH120
    linked = os.path.join(common, "worktrees")
    try:
        names = os.listdir(linked)  # noqa: PTH208
    except OSError:
        names = []
    for name in names:
        if pointer := _line(os.path.join(linked, name, "gitdir")):
            trees[os.path.realpath(os.path.join(linked, name, os.path.dirname(pointer)))] = None  # noqa: PTH120
    return Repository(top, own, tuple(trees))


def _line(file: str) -> str | None:
    """Return the path in a file of git's; None for a directory, or a file that cannot be read."""
    content = beginning(file, LONGEST)
    return None if content is None else os.fsdecode(content.partition(b"\0")[0]).rstrip("\n")


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _from(directory: str, path: str) -> str:
    return path[len(directory.rstrip("/")) + 1 :]
