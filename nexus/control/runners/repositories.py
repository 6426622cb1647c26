"""Read-only parts of the operator's repositories below the write paths of a sandboxed agent.

git runs commands that a `.git` configures. So that the operator's next `git status` runs nothing that an agent chose,
each `.git` below a write path is read-only in the agent's sandbox, unless a write path names it; so are the files that
git's configuration refers to. The directories above them are mounts, too, since a mount cannot be renamed.

Mounts do not keep a program from making a new repository, which is as dangerous as a new Makefile.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from nexus.control.permissions import protected_paths, rules
from nexus.control.permissions.rules import Permissions, within
from nexus.control.runners import sandbox
from nexus.control.runners.base import RunnerFailed
from nexus.control.runners.git import ANY_CODE, Git, GitFailed, NoRepository, Origin, Step, origin_of
from nexus.core import foreign_files
from nexus.core.processes import NEUTRAL, environment, run

LOOK_SECONDS = 30  # time limit of a search below an agent's write paths
FOUND_BYTES = 4_000_000  # of their paths
MOST_FIXED = 1_000  # of repositories and files
DOT_GIT, HEAD, COMMON = ".git", "HEAD", "commondir"
PARTS = (HEAD, COMMON, "objects", "refs")  # by which git takes a directory for a repository
KEPT_SECONDS = 10  # a result is reused for the next commands of a turn
CONFIG_BYTES, INDEX_BYTES = 2_000_000, 64_000_000
MODULE = "160000 "  # how git lists a submodule
WORDS = re.compile(r"[^\s;&|()<>\"'`!]+")
RUNS = re.compile(  # the keys whose values git runs
    r"(filter\..*\.(clean|smudge|process)|diff\..*\.(command|textconv)|diff\.external|merge\..*\.driver"
    r"|core\.(fsmonitor|editor|pager|sshcommand|askpass)|sequence\.editor|gpg\.(.*\.)?program|pager\..*)",
    re.DOTALL,
)


@dataclass
class Fixed:
    """The paths that stay read-only below the write paths `roots`."""

    roots: Sequence[str]
    paths: set[str] = field(default_factory=set)

    def mounts(self) -> dict[str, list[str]]:
        """Return bubblewrap's arguments, by path."""
        words: dict[str, list[str]] = {}
        for path in self.paths:
            for above in map(str, PurePath(path).parents):
                if above in self.roots or not within(above, self.roots):
                    break
                words[above] = ["--bind-try", above, above]
        return words | {path: ["--ro-bind-try", path, path] for path in self.paths}


_looks: dict[tuple[str, ...], tuple[float, Fixed]] = {}


def fixed(permissions: Permissions, own: str | None, *, anew: bool = False) -> Fixed:
    """Return what stays read-only for an agent, except in `own`, the worktree that is its own repository.

    `anew`: look now; otherwise the result may be up to KEPT_SECONDS old. Raises RunnerFailed if it cannot be found out.
    """
    opened = rules.opens_git(permissions.write_paths)
    mine = () if own is None else (own,)
    roots = [path for path in permissions.write_paths if path not in opened and not within(path, mine)]
    key = (*roots, "", *opened)
    at, found = _looks.get(key, (-float("inf"), Fixed(())))
    if anew or time.monotonic() - at > KEPT_SECONDS:
        found = _look(roots, opened)
        if len(_looks) > 100:
            _looks.clear()
        _looks[key] = time.monotonic(), found
    return found


def remove_placeholders(write_paths: Iterable[str]) -> None:
    """Remove the empty `.git` directories that kept others from making repositories there."""
    for path in write_paths:
        with suppress(OSError):
            os.rmdir(os.path.join(path, ".git"))  # noqa: PTH106  # fails for one that holds anything


@dataclass(frozen=True)
class SearchResult:
    """The result of one search; `cut`: there is more."""

    repositories: set[str]  # `.git` entries, and directories that git takes for a repository
    closed: list[str]  # our own directories that are not readable
    cut: bool = False


def search(roots: Sequence[str], seconds: float) -> SearchResult:
    """Find whatever git could take for a repository at and below these directories. No symlink is followed.

    Uses the program `find`, which handles any depth and lets other threads run. Raises RunnerFailed after so many
    seconds.
    """
    home = re.sub(r"([\\*?\[\]])", r"\\\1", protected_paths.home())
    wanted = ["-iname", DOT_GIT, "-prune", *(word for name in PARTS for word in ("-o", "-name", name))]
    closed = ["-type", "d", "-user", str(os.geteuid()), "!", "-perm", "-500"]
    line = ["find", "-P", *roots, "-path", home, "-prune", "-o", "(", *wanted, "-o", *closed, ")", "-print0"]
    try:
        said = run(line, cwd=NEUTRAL, env=environment(LC_ALL="C"), seconds=seconds, largest=FOUND_BYTES)
    except TimeoutError:
        raise RunnerFailed(
            f"its write paths cannot be searched for repositories within {LOOK_SECONDS} seconds; give it narrower "
            "ones, or a worktree"
        ) from None
    except OSError as error:
        raise RunnerFailed(f"its write paths cannot be searched for repositories: find: {error.strerror}") from None
    paths = os.fsdecode(said.output).split("\0")[:-1]  # after the last NUL there is nothing, or half a path
    there = {path: status for path in paths if (status := _mode(path)) is not None}
    closed = [path for path, mode in there.items() if stat.S_ISDIR(mode) and mode & 0o500 != 0o500]
    parts = {(PurePath(path).parent, PurePath(path).name) for path in there}
    bare = {str(above) for above, name in parts if name == HEAD and _is_repository(above, parts)}
    return SearchResult({path for path in there if PurePath(path).name.lower() == DOT_GIT} | bare, closed, said.cut)


def _is_repository(directory: PurePath, parts: set[tuple[PurePath, str]]) -> bool:
    """Return whether git takes a directory with a HEAD for a repository."""
    return (directory, COMMON) in parts or {(directory, "objects"), (directory, "refs")} <= parts


def _mode(path: str) -> int | None:
    """Return the mode of what is at a path, without following links; None if nothing is there."""
    with suppress(OSError):
        return (about := foreign_files.status(path)) and about.st_mode
    return None


def _look(roots: Sequence[str], opened: Sequence[str]) -> Fixed:
    found = Fixed(tuple(roots))
    existing = [root for root in roots if (at := sandbox.stat_of(root)) is not None and stat.S_ISDIR(at.st_mode)]
    if not existing:
        return found
    for root in existing:
        with suppress(OSError):
            # git ignores an empty one, and it keeps others from making one
            os.mkdir(os.path.join(root, DOT_GIT))  # noqa: PTH102
    seen = search(existing, LOOK_SECONDS)
    if seen.cut:
        raise RunnerFailed("below its write paths are too many repositories; give it narrower ones")
    if seen.closed:
        raise RunnerFailed(f"nobody can look for repositories in {seen.closed[0]}; make it readable")
    for path in seen.repositories:
        if path in roots:
            raise RunnerFailed(f"{path} is a git repository itself; give the agent another write path")
        is_nested_link = os.path.islink(path) and os.path.dirname(path) not in roots  # noqa: PTH114, PTH120
        if not is_nested_link:  # its target is searched where it is
            found.paths.add(path)
    nested = {str(PurePath(path).parent) for path in seen.repositories if PurePath(path).name.lower() == DOT_GIT}
    for root in existing:
        found.paths.add(os.path.join(root, DOT_GIT))
        _configured(root, sorted(path for path in nested if within(path, (root,))), found)
    found.paths = {path for path in found.paths if not within(path, opened)}
    for path in found.paths:
        if os.path.islink(path):  # noqa: PTH114
            raise RunnerFailed(f"{path} is a symlink, and cannot be kept from being replaced; give it a worktree")
    if len(found.paths) > MOST_FIXED:
        raise RunnerFailed(f"below its write paths are over {MOST_FIXED} repositories; give it narrower ones")
    return found


def _configured(root: str, nested: Iterable[str], found: Fixed) -> None:
    """Add the paths below a write path that the repositories around and in it refer to, and the paths of their
    submodules."""
    origins: dict[str, Origin] = {}
    needed = ""
    for path in (root, *nested):
        try:
            origin = origin_of(path, is_shown=False)
        except NoRepository:
            continue
        except GitFailed as failed:
            if path != root:
                continue  # git stops there, too
            raise RunnerFailed(f"{failed}; give the agent another directory") from None
        if "\n" in origin.git_dir:
            raise RunnerFailed("a repository below its write paths has a line break in its name")
        origins.setdefault(origin.git_dir, origin)
        needed = origin.git_dir if path == root else needed
    if not origins:
        return
    reading = {path for origin in origins.values() for path in (origin.top, origin.git_dir, origin.common)}
    found.paths |= {path for path in reading if within(path, (root,))} - {origin.top for origin in origins.values()}
    first = next(iter(origins.values()))
    own = [str(Path.home() / name) for name in (".gitconfig", ".config/git")]
    git = Git(first.common, first.git_dir, tuple(sorted(reading)), files=tuple(own), as_operator=True)
    steps = list[Step]()
    for directory in origins:  # the last --git-dir counts
        at, codes = ("--git-dir", directory), (0,) if directory == needed else ANY_CODE
        steps += [Step(*at, "config", "--list", "-z", expect=codes, largest=CONFIG_BYTES)]
        steps += [Step(*at, "ls-files", "--stage", "-z", expect=ANY_CODE, largest=INDEX_BYTES)]
    try:
        said = git.steps(*steps)
    except GitFailed as failed:
        raise RunnerFailed(f"git cannot read the repositories at and below {root}: {failed}") from None
    if any(each.cut for each in said):
        raise RunnerFailed(f"the configuration of the repositories at and below {root} is too large")
    for origin, configured, staged in zip(origins.values(), said[::2], said[1::2], strict=True):
        for entry in configured.names:
            key, _, value = entry.partition("\n")
            found.paths |= _led_to(key, value, origin, root)
        for line in staged.names:
            below = os.path.join(origin.top, line.partition("\t")[2])
            is_module = line.startswith(MODULE) and within(below, (root,)) and below != root
            if is_module and not os.path.lexists(os.path.join(below, ".git")):
                found.paths.add(below)


def _led_to(key: str, value: str, origin: Origin, root: str) -> set[str]:
    """Return the files below a write path that a value of git's configuration names. Raises RunnerFailed."""
    if key == "core.hookspath":
        path = _within(value, origin.top, root)
        if path is None:
            return set()
        if PurePath(path).name == "_" and str(PurePath(path).parent) != root:
            path = str(PurePath(path).parent)  # husky's hooks run those in the parent directory
        Path(path).mkdir(parents=True, exist_ok=True)
        return {path}
    if key.startswith("include"):
        bases = {origin.git_dir, origin.common, origin.top}
        paths = [path for base in bases if (path := _within(value, base, root))]
        needed = not any(map(os.path.lexists, paths))
    else:
        words = WORDS.findall(value)
        named = [value, *words]
        if "$" in value or "`" in value:  # a shell makes the beginning of a path: its end may be one below the top
            named += [word[slash.end() :] for word in words for slash in re.finditer("/", word)]
        paths = [path for word in named if (path := _within(word, origin.top, root))]
        needed = bool(RUNS.fullmatch(key) and paths and "/" in words[0] and _within(words[0], origin.top, root))
    existing = {path for path in paths if Path(path).is_file()}
    if paths and needed and not existing:
        raise RunnerFailed(
            f"git's configuration of {origin.top} has {key} = {value[:200]}, which is not there: an agent could put it "
            "there for git to use; make it or remove that setting"
        )
    return existing


def _within(value: str, base: str, root: str) -> str | None:
    """Return the path that a value names; None if it is not below a write path."""
    path = os.path.normpath(os.path.join(base, os.path.expanduser(value)))  # noqa: PTH111
    return path if path != root and within(path, (root,)) and "\0" not in path else None
