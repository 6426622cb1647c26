"""The git repository of a file, read from git's own files: a git process is too slow for a hook.

Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from nexus.core.foreign_files import beginning

POINTER = "gitdir: "
LONGEST = 65_536  # bytes that are read of a file, wherever a link leads
MERGING = "GITHEAD_"  # begins the variables by which `git merge` names what it merges, before it writes MERGE_HEAD
LEFTHOOK = ("lefthook.yml", "lefthook.yaml", "lefthook-local.yml", ".lefthook.yml", ".lefthook.yaml")
# Variables by which git names one repository, or changes its configuration for one command.
OF_ONE = ("DIR", "WORK_TREE", "INDEX_FILE", "COMMON_DIR", "PREFIX", "NAMESPACE", "CONFIG_COUNT", "CONFIG_PARAMETERS")


class Repository(NamedTuple):
    """A repository, seen from one of its work trees; every path is resolved."""

    top: str  # this work tree
    own: str  # its git directory, with its index
    common: str  # the git directory of all work trees
    trees: tuple[str, ...]  # all work trees with these files, with this one

    def names(self, root: str, paths: Iterable[str]) -> list[tuple[str, str]]:
        """Return the files that belong to the project at `root`, each with its path in the work tree and its name in
        the project; a file may have several names.

        All work trees hold the same files: a reservation in one of them counts in all.
        """
        begins = []  # prefixes of paths, and what replaces each in the project
        around = self._tree_around(root)
        if around is not None:
            inner = _from(around, root)
            begins.append((f"{inner}/" if inner else "", ""))
        begins += [("", f"{_from(root, tree)}/") for tree in self.trees if tree != root and _is_below(tree, root)]
        return [(path, new + path[len(old) :]) for path in paths for old, new in begins if path.startswith(old)]

    def concerns(self, root: str) -> bool:
        """Return whether the project at `root` is in this repository, or contains it."""
        return any(_is_below(tree, root) for tree in self.trees) or self._tree_around(root) is not None

    def _tree_around(self, root: str) -> str | None:
        """Return the work tree that the project at `root` is in. With `--separate-git-dir`, git does not record where
        the main one is."""
        known = max((tree for tree in self.trees if _is_below(root, tree)), key=len, default=None)
        if known is not None or os.path.basename(self.common) == ".git":  # noqa: PTH119
            return known
        top = _top(root)
        return None if top is None or _git_dirs(top, ".git")[1] != self.common else top

    def is_guarded(self) -> bool:
        """Return whether git's hooks run the guard's check."""
        from nexus.core.processes import in_foreground  # rarely needed

        command = ["git", "rev-parse", "--git-path", "hooks/pre-commit"]
        asked = in_foreground(command, cwd=self.top, env=without_repository(os.environ), captured=True)
        return runs_check(os.path.join(self.top, os.fsdecode(asked.output).rstrip("\n")))

    def merged(self) -> list[str]:
        """Return the commits that are being merged in this work tree."""
        begun = [name.removeprefix(MERGING) for name in os.environ if name.startswith(MERGING)]
        return (_line(os.path.join(self.own, "MERGE_HEAD")) or "").split() or begun


def runs_check(hook: str) -> bool:
    """Return whether a hook runs the check, or what it calls does: husky's hook in the directory above, or lefthook's
    configuration."""
    directory, name = os.path.split(hook)
    above = os.path.dirname(directory)  # noqa: PTH120
    files = [hook, os.path.join(above, name)]
    if tree := main_tree(above):
        files += [os.path.join(tree, each) for each in LEFTHOOK]
    lines = (f"guard/run.py{end} {name} ".encode() for end in ("", "'"))  # the path may be quoted
    return any(line in (beginning(file, LONGEST) or b"") for line in lines for file in files)


def without_repository(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which git looks for the repository of its working directory."""
    return {name: value for name, value in environ.items() if name.removeprefix("GIT_") not in OF_ONE}


def find_repository(path: str) -> Repository | None:
    """Return the repository whose work tree contains a path; None outside of any."""
    top = _top(path)
    return None if top is None else at(top)


def _top(path: str) -> str | None:
    top = os.path.realpath(path)
    while not os.path.lexists(os.path.join(top, ".git")):
        above = os.path.dirname(top)  # noqa: PTH120  # pathlib costs a third of what a hook may take
        if above == top:
            return None
        top = above
    return top


def _git_dirs(top: str, git_dir: str) -> tuple[str, str]:
    """Return a work tree's git directory, and the one of all work trees of the repository."""
    own = os.path.join(top, git_dir)
    if (pointer := _line(own)) and pointer.startswith(POINTER):
        own = os.path.join(os.path.dirname(own), pointer.removeprefix(POINTER))  # noqa: PTH120
    return own, os.path.realpath(os.path.join(own, _line(os.path.join(own, "commondir")) or ""))


def at(top: str, git_dir: str = ".git") -> Repository:
    """Return the repository with a work tree at `top`, a resolved path."""
    own, common = _git_dirs(top, git_dir)
    trees = {top: None}
    if main := main_tree(common):
        trees[main] = None
    trees |= dict.fromkeys(tree for tree, _ in linked_trees(common))
    # A submodule has a repository of its own in each work tree of the repository around it.
    above = os.path.dirname(top)  # noqa: PTH120
    if above != top and (around := find_repository(above)) and around.common != common:
        trees |= dict.fromkeys(os.path.join(tree, _from(around.top, top)) for tree in around.trees)
    return Repository(top, own, common, tuple(trees))


def linked_trees(common: str) -> Iterator[tuple[str, str]]:
    """Yield a repository's linked work trees, each with its git directory."""
    linked = os.path.join(common, "worktrees")
    try:
        names = os.listdir(linked)  # noqa: PTH208
    except OSError:
        names = []
    for name in names:
        own = os.path.join(linked, name)
        if pointer := _line(os.path.join(own, "gitdir")):
            yield os.path.realpath(os.path.join(own, os.path.dirname(pointer))), own  # noqa: PTH120


def main_tree(common: str) -> str | None:
    """Return a repository's main work tree: the one that git's configuration names, as for a submodule; else the one
    around `.git`."""
    for name in ("config.worktree", "config"):
        in_core = False
        for line in os.fsdecode(beginning(os.path.join(common, name), LONGEST) or b"").splitlines():
            variable, _, value = line.partition("=")
            if line.startswith("["):
                in_core = line.lower().startswith("[core]")
            elif in_core and variable.strip().lower() == "worktree":
                return os.path.realpath(os.path.join(common, value.strip().strip('"')))
    return os.path.dirname(common) if os.path.basename(common) == ".git" else None  # noqa: PTH119, PTH120


def _line(file: str) -> str | None:
    """Return the path in a file of git's; None for a directory, or a file that cannot be read."""
    content = beginning(file, LONGEST)
    return None if content is None else os.fsdecode(content.partition(b"\0")[0]).rstrip("\r\n")


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _from(directory: str, path: str) -> str:
    return path[len(directory.rstrip("/")) + 1 :]
