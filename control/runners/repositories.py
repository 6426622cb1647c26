"""What stays read-only of the operator's repositories where a sandboxed agent writes.

git runs what a `.git` says. So that the operator's next `git status` runs nothing that an agent chose, each `.git`
below a write path is read-only in the agent's sandbox, unless a write path names it, and so are the files that the
configuration leads git to. The directories above them are mounts, too, since a mount cannot be renamed.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from control import hidden, rules
from control.rules import Permissions, within
from control.runners import sandbox
from control.runners.base import RunnerFailed
from control.worktrees import trees
from control.worktrees.git import Git, GitFailed

MOST_DIRECTORIES = 200_000  # below the write paths of an agent
MOST_FIXED = 1_000  # of repositories and files
BARE = frozenset(("HEAD", "objects", "refs"))  # what git takes for a repository without a work tree
KEPT_SECONDS = 10  # a look is good for the next commands of a turn
CONFIG_BYTES = 2_000_000
WORDS = re.compile(r"[^\s;&|()<>\"'`!]+")
RUNS = re.compile(  # the keys whose values git runs
    r"(filter\..*\.(clean|smudge|process)|diff\..*\.(command|textconv)|diff\.external|merge\..*\.driver"
    r"|core\.(fsmonitor|editor|pager|sshcommand|askpass)|sequence\.editor|gpg\.(.*\.)?program|pager\..*)",
    re.DOTALL,
)
CONFIGURED = """
(unset GIT_CONFIG_GLOBAL GIT_CONFIG_NOSYSTEM GIT_CONFIG_COUNT; git --git-dir="$DIRECTORY" config --list -z)
printf '\\0\\0'
git --git-dir="$DIRECTORY" ls-files --stage -z | grep -z '^160000 ' || true
"""


@dataclass
class Fixed:
    """What stays read-only below the write paths `roots`."""

    roots: Sequence[str]
    paths: set[str] = field(default_factory=set)

    def mounts(self) -> dict[str, list[str]]:
        """Bubblewrap's words by place."""
        words: dict[str, list[str]] = {}
        for path in self.paths:
            for above in map(str, PurePath(path).parents):
                if above in self.roots or not within(above, self.roots):
                    break
                words[above] = ["--bind-try", above, above]
        return words | {path: ["--ro-bind-try", path, path] for path in self.paths}


_looks: dict[tuple[str, ...], tuple[float, Fixed]] = {}


def fixed(permissions: Permissions, own: str | None) -> Fixed:
    """What stays read-only for an agent, except in `own`, the worktree that is its own repository.

    Raises RunnerFailed where that cannot be found out.
    """
    opened = rules.opens_git(permissions.write_paths)
    mine = () if own is None else (own,)
    roots = [path for path in permissions.write_paths if path not in opened and not within(path, mine)]
    key = (*roots, "", *opened)
    at, found = _looks.get(key, (-float("inf"), Fixed(())))
    if time.monotonic() - at > KEPT_SECONDS:
        found = _look(roots, opened)
        if len(_looks) > 100:
            _looks.clear()
        _looks[key] = time.monotonic(), found
    return found


def remove_placeholders(write_paths: Iterable[str]) -> None:
    """Remove the empty directories that stood for repositories which are not there."""
    for path in write_paths:
        with suppress(OSError):
            os.rmdir(os.path.join(path, ".git"))  # noqa: PTH106  # fails for one that holds anything


def _look(roots: Sequence[str], opened: Sequence[str]) -> Fixed:
    found = Fixed(tuple(roots))
    for root in roots:
        there = sandbox.found(root)
        if there is None or not stat.S_ISDIR(there.st_mode):
            continue
        for directory, names in _directories(root):
            if ".git" in names:
                found.paths.add(os.path.join(directory, ".git"))
            elif names >= BARE and directory != root:
                found.paths.add(directory)
        place = os.path.join(root, ".git")
        with suppress(OSError):
            os.mkdir(place)  # noqa: PTH102  # git passes by an empty one; with it, nobody can make another
        found.paths.add(place)
        _configured(root, found)
    found.paths = {path for path in found.paths if not within(path, opened)}
    for path in found.paths:
        if os.path.islink(path):  # noqa: PTH114
            raise RunnerFailed(f"{path} is a symlink, and cannot be kept from being replaced; give it a worktree")
    if len(found.paths) > MOST_FIXED:
        raise RunnerFailed(f"below its write paths are over {MOST_FIXED} repositories; give it narrower ones")
    return found


def _directories(root: str) -> Iterator[tuple[str, set[str]]]:
    """Every directory at and below one, with the names in it, but for what repositories hold."""
    home = hidden.home()
    for seen, (directory, folders, files) in enumerate(os.walk(root)):
        if seen > MOST_DIRECTORIES:
            raise RunnerFailed(
                f"below {root} are over {MOST_DIRECTORIES} directories, too many to keep their repositories read-only; "
                "give it narrower write paths, or a worktree"
            )
        names = {*folders, *files}
        if ".git" in names and os.path.islink(os.path.join(directory, ".git")) and directory != root:  # noqa: PTH114
            names.discard(".git")  # a nested one: what it leads to is where it is
        yield directory, names
        is_bare = names >= BARE and directory != root
        folders[:] = [
            name for name in folders if not is_bare and name != ".git" and os.path.join(directory, name) != home
        ]


def _configured(root: str, found: Fixed) -> None:
    """What the repository around a write path leads git to in there, and the places of its submodules."""
    try:
        origin = trees.origin_of(root, is_shown=False)
    except trees.NoRepository:
        return
    except GitFailed as failed:
        raise RunnerFailed(f"{failed}; give the agent another directory") from None
    top = origin.top
    found.paths |= {path for path in (origin.git_dir, origin.common) if within(path, (root,))}
    own = [str(Path.home() / name) for name in (".gitconfig", ".config/git")]
    git = Git(origin.common, origin.git_dir, (top, origin.git_dir, origin.common), files=tuple(own))
    try:
        said = git.script(CONFIGURED, {"DIRECTORY": origin.git_dir, "HOME": str(Path.home())}, largest=CONFIG_BYTES)
    except GitFailed as failed:
        raise RunnerFailed(f"git cannot read the repository of {root}: {failed}") from None
    if said.cut:
        raise RunnerFailed(f"the configuration of the repository of {root} is too large")
    configured, _, links = said.output.partition(b"\0\0\0")
    for entry in os.fsdecode(configured).split("\0"):
        key, _, value = entry.partition("\n")
        found.paths |= _led_to(key, value, origin, root)
    for line in os.fsdecode(links).split("\0"):
        below = os.path.join(top, line.partition("\t")[2])
        if line and within(below, (root,)) and below != root and not os.path.lexists(os.path.join(below, ".git")):
            found.paths.add(below)


def _led_to(key: str, value: str, origin: trees.Origin, root: str) -> set[str]:
    """The files below a write path that a value of git's configuration names. Raises RunnerFailed."""
    if key == "core.hookspath":
        place = _within(value, origin.top, root)
        if place is None:
            return set()
        if PurePath(place).name == "_" and str(PurePath(place).parent) != root:
            place = str(PurePath(place).parent)  # husky's own hooks run those beside it
        Path(place).mkdir(parents=True, exist_ok=True)
        return {place}
    if key.startswith("include"):
        bases = {origin.git_dir, origin.common, origin.top}
        places = [place for base in bases if (place := _within(value, base, root))]
        needed = not any(map(os.path.lexists, places))
    else:
        words = WORDS.findall(value)
        places = [place for word in [value, *words] if (place := _within(word, origin.top, root))]
        needed = bool(RUNS.fullmatch(key) and places and "/" in words[0] and _within(words[0], origin.top, root))
    there = {place for place in places if Path(place).is_file()}
    if places and needed and not there:
        raise RunnerFailed(
            f"git's configuration of {origin.top} has {key} = {value[:200]}, which is not there: an agent could put it "
            "there for git to use; make it or remove that setting"
        )
    return there


def _within(value: str, base: str, root: str) -> str | None:
    """The path that a value means, where it is below a write path."""
    path = os.path.normpath(os.path.join(base, os.path.expanduser(value)))  # noqa: PTH111
    return path if path != root and within(path, (root,)) and "\0" not in path else None
