"""What is done to a work tree and its branch: made, compared, merged, taken away; none of it half."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from control.rules import Permissions
from control.worktrees.git import Git, GitFailed

DIFF_BYTES = 200_000
COMPARE = ("diff", "--no-renames", "--ignore-submodules=none")  # whatever the repository's configuration has
NESTED = b" 160000 "  # the mode of another repository's commit
MOST_BRANCHES = 100  # of one name that are tried
LOCK_SECONDS, LOOK_SECONDS = 60, 0.05  # that a repository is waited for, and between two looks whether it is free


@dataclass(frozen=True)
class Tree:
    """A work tree of an agent's own, and the one that it began from."""

    path: str
    git_dir: str
    branch: str
    base: str  # the commit that it began at
    origin: str  # the work tree that it was made from, and merges into
    origin_git_dir: str

    @property
    def as_kept(self) -> dict[str, str]:
        """Its fields, as a row has them."""
        return asdict(self)

    def there(self, place: str) -> str:
        """The same place as one in the origin."""
        return os.path.normpath(os.path.join(self.path, os.path.relpath(place, self.origin)))

    def moved(self, permissions: Permissions) -> Permissions:
        """What was granted in the origin, at the same places in the tree; no more."""
        return replace(
            permissions,
            cwd=self.there(permissions.cwd),
            write_paths=tuple(self.there(place) for place in permissions.write_paths),
        )


@dataclass(frozen=True)
class Difference:
    """A tree against where it began, what is not committed included."""

    diff: str
    cut: bool
    files: list[str]


@dataclass(frozen=True)
class Merge:
    """What a merge came to; with conflicts nothing was merged."""

    commit: str | None
    conflicts: list[str]


def origin_of(directory: str, git_dir: str | None = None) -> tuple[str, str]:
    """The top of the work tree that holds a directory, and its git directory. Raises GitFailed."""
    git = Git.at(directory, git_dir)
    top = os.path.realpath(git.line("rev-parse", "--show-toplevel"))
    return top, os.path.realpath(git.line("rev-parse", "--absolute-git-dir"))


def make(origin: str, origin_git_dir: str, path: str, wanted: str) -> Tree:
    """A new branch at the origin's commit, and a work tree of it at `path`. Raises GitFailed, with nothing left."""
    git = Git.at(origin, origin_git_dir)
    try:
        base = git.line("rev-parse", "--verify", "--end-of-options", "HEAD^{commit}")
    except GitFailed:
        raise GitFailed("the repository has no commit yet") from None
    with _alone(git):
        tree = Tree(path, "", _new_branch(git, wanted, base), base, origin, origin_git_dir)
        try:
            git.run("worktree", "add", "--quiet", "--", path, tree.branch)
            return replace(tree, git_dir=os.path.realpath(Git.at(path).line("rev-parse", "--absolute-git-dir")))
        except GitFailed:
            _forget(git, tree)
            raise


def _new_branch(git: Git, wanted: str, base: str) -> str:
    """`nexus/<name>`, with a number where there is one of that name: made in one step, so that no two get the same."""
    for number in range(1, MOST_BRANCHES):
        branch = f"nexus/{wanted}" + (f"-{number}" if number > 1 else "")
        if git.run("show-ref", "--verify", "--quiet", f"refs/heads/{branch}", expect=(0, 1)).code == 0:
            continue
        if git.run("update-ref", f"refs/heads/{branch}", base, "0" * len(base), expect=(0, 128)).code == 0:
            return branch
    raise GitFailed(f"no branch nexus/{wanted} can be made")


def difference(tree: Tree) -> Difference:
    """What became of a tree since it began. Raises GitFailed."""
    git = Git.at(tree.path, tree.git_dir)
    compared = (*COMPARE, "--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short")
    with _content(git) as content:
        said = git.run(*compared, tree.base, content, largest=DIFF_BYTES)
        names = git.run(*compared, "--name-only", "-z", tree.base, content)
    whole = names.output.rpartition(b"\0")[0]  # the last one may be cut, too
    return Difference(said.output.decode(errors="replace"), said.cut or names.cut, _names(whole))


def is_changed(tree: Tree) -> bool:
    """Whether a tree holds anything that where it merges into does not. Raises GitFailed."""
    git = Git.at(tree.path, tree.git_dir)
    with _content(git) as content:
        if content != git.line("rev-parse", "HEAD^{tree}"):
            return True
        modes = git.run(*COMPARE, "--raw", "-z", tree.base, content)
    if modes.cut or NESTED in modes.output:  # a repository in the tree: a merge has its commit's name alone
        return True
    heads = [git.line("rev-parse", f"{ref}^{{commit}}") for ref in ("HEAD", f"refs/heads/{tree.branch}")]
    target = Git.at(tree.origin, tree.origin_git_dir)
    return any(target.run("merge-base", "--is-ancestor", head, "HEAD", expect=(0, 1)).code for head in heads)


def keep(tree: Tree, message: str) -> None:
    """Commit what is not committed, on the tree's own branch. Raises GitFailed."""
    git = Git.at(tree.path, tree.git_dir)
    with _alone(git):
        _commit_all(git, message)


def merge(tree: Tree, message: str) -> Merge:
    """Merge a tree, what is not committed included, into the branch that its origin is on.

    The merge is put together beside every work tree, and the origin then moved to it in one step, which git refuses
    where that would overwrite what is not committed there. Raises GitFailed, with the origin as it was.
    """
    git = Git.at(tree.origin, tree.origin_git_dir)
    with _alone(git):
        head = _commit_all(Git.at(tree.path, tree.git_dir), f"Work of {tree.branch}")
        target = git.line("rev-parse", "HEAD^{commit}")
        if git.run("merge-base", "--is-ancestor", head, target, expect=(0, 1)).code == 0:
            return Merge(None, [])
        said = git.run("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", target, head, expect=(0, 1))
        content, *conflicts = _names(said.output)
        if said.code:
            return Merge(None, sorted(set(conflicts)))
        commit = git.line("commit-tree", "-p", target, "-p", head, "-m", message, content)
        git.run("merge", "--quiet", "--ff-only", "--no-autostash", "--no-overwrite-ignore", commit)
        return Merge(commit, [])


def _commit_all(git: Git, message: str) -> str:
    """Commit what a tree has not committed; its head."""
    head = git.line("rev-parse", "HEAD^{commit}")
    with _content(git) as content:
        if content == git.line("rev-parse", "HEAD^{tree}"):
            return head
        commit = git.line("commit-tree", "-p", head, "-m", message, content)
    git.run("update-ref", "-m", message, "HEAD", commit, head)
    git.run("read-tree", commit)
    return commit


def take_away(tree: Tree) -> None:
    """Remove a tree and its branch, whatever they hold and whether its origin is still there. Raises GitFailed."""
    repository = str(Path(tree.git_dir).parents[1])  # that of all its work trees
    if not Path(repository).is_dir():
        shutil.rmtree(tree.path, ignore_errors=True)
        return
    git = Git.at(repository, repository)
    with _alone(git):
        _forget(git, tree)


def _forget(git: Git, tree: Tree) -> None:
    shutil.rmtree(tree.path, ignore_errors=True)  # first: git looks at its `.git`, which may say anything
    # Not `prune`: that takes every tree whose directory is not there just now, whoever's it is.
    git.run("worktree", "remove", "--force", "--force", "--", tree.path, expect=(0, 128))  # 128: it was not made
    git.run("update-ref", "-d", f"refs/heads/{tree.branch}", expect=(0, 1))


@contextmanager
def _alone(git: Git) -> Iterator[None]:
    """One at a time changes a repository's work trees, among all processes: git reads what another git has half made,
    and of two who merge at once one would be refused. Raises GitFailed where somebody keeps it."""
    held = os.open(os.path.join(git.work_tree, git.line("rev-parse", "--git-common-dir")), os.O_RDONLY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        while not _locked(held):
            if time.monotonic() > deadline:
                raise GitFailed("another process keeps its repository locked")
            time.sleep(LOOK_SECONDS)
        yield
    finally:
        os.close(held)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _content(git: Git) -> Iterator[str]:
    """The id of what a work tree holds now, untracked files included; its index stays as it is."""
    with tempfile.TemporaryDirectory(prefix="nexus-index-") as place:
        index = str(Path(place, "index"))
        git.run("read-tree", "HEAD", index=index)
        git.run("add", "--all", "--", ".", index=index)
        yield git.line("write-tree", index=index)


def _names(output: bytes) -> list[str]:
    return [name for name in output.decode(errors="replace").split("\0") if name]
