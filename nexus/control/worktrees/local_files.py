"""Files that agents need and git does not have: copied into a worktree, or linked to where the project has them.

`[worktrees]` in nexus.toml lists them, and an operator approves that list (docs/how-to/review.md). git ignores
each in the worktree, and what git tracks is not brought, so that none becomes part of the work.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from handoffs.checks import LocalFiles
from nexus.control.permissions import protected_paths
from nexus.control.runners.git import Git, Step
from nexus.core import foreign_files
from nexus.core.foreign_files import Bounds, is_dot_git

MOST_BYTES = 256 * 1024 * 1024  # of a path that is copied
MOST_ENTRIES = 50_000  # likewise
SECONDS = 30  # to copy all of them
MOST_NAMED, LONGEST_NAME = 10, 200  # paths that a sentence names; characters of each
EXCLUDE = os.path.join("info", "exclude")
SPECIAL = re.compile(r"([\\*?\[\] ])")  # in a pattern of git's
IN_THE_WAY = "a link or a file is in its way"
WHY = {
    errno.ENOENT: "it is not there",
    errno.EFBIG: f"it has over {MOST_BYTES} bytes; link it instead",
    errno.ELOOP: IN_THE_WAY,
    errno.ENOTDIR: IN_THE_WAY,
    errno.EEXIST: IN_THE_WAY,
}


def bring(files: LocalFiles, git: Git) -> tuple[dict[str, str], str]:
    """Bring local files into a new worktree that git has filled. Return those that it got, each with where it links to
    (empty for a copy), and a sentence on the others. Raises GitFailed."""
    if files.why_none:
        return {}, f"It has no local files: {files.why_none}."
    if not files.paths:
        return {}, ""
    exclude = Path(git.git_dir, EXCLUDE)
    exclude.parent.mkdir(exist_ok=True)
    before = (foreign_files.beginning(str(exclude), foreign_files.LARGEST) or b"") + b"\n"
    exclude.write_bytes(before + _patterns(files.paths))
    # 1: git tracks it, or a .gitignore brings it back. 128: it lies beyond a link, or in a submodule.
    said = git.steps(*(Step("check-ignore", "--quiet", "--", f"./{path}", expect=(0, 1, 128)) for path in files.paths))
    ignored = {path for path, each in zip(files.paths, said, strict=True) if each.code == 0}
    until, brought, left_out = time.monotonic() + SECONDS, dict[str, str](), dict[str, str]()
    for path in files.paths:
        try:
            if path not in ignored:
                raise OSError(errno.EPERM, "git tracks it, or a .gitignore says that it should")
            brought[path] = _bring_one(files, path, git.work_tree, until)
        except OSError as error:
            left_out[path] = WHY.get(error.errno or 0) or str(error.strerror)
    exclude.write_bytes(before + _patterns(brought))
    return brought, _sentence(files.root, left_out)


def _patterns(paths: Iterable[str]) -> bytes:
    return "".join("/" + SPECIAL.sub(r"\\\1", path) + "\n" for path in paths).encode()


def _sentence(root: str, left_out: Mapping[str, str]) -> str:
    if not left_out:
        return ""
    named = [f"{path[:LONGEST_NAME]!r} ({why})" for path, why in left_out.items()]
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return f"It lacks local files of {root}: {', '.join(named[:MOST_NAMED])}{more}."


def _bring_one(files: LocalFiles, path: str, worktree: str, until: float) -> str:
    """Copy or link a path; return where the link leads. Raises OSError, and leaves nothing then."""
    full = os.path.join(files.root, path)
    if protected_paths.holds_hidden(full):
        raise OSError(errno.EPERM, "it has the hub's own files")
    with foreign_files.directory(files.root) as source, foreign_files.directory(worktree) as target:
        about = foreign_files.status(path, source)
        if about is None:
            raise OSError(errno.ENOENT, "")
        if not stat.S_ISDIR(about.st_mode) and not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "it is neither a file nor a directory")
        if foreign_files.status(path, target) is not None:
            raise OSError(errno.EEXIST, "")
        if path in files.symlink:
            above, name = os.path.split(path)
            with foreign_files.directory(above, target, flags=foreign_files.PASSING, may_make=_always) as made:
                os.symlink(full, name, dir_fd=made)
            return full
        try:
            _copy(path, source, target, Bounds(MOST_ENTRIES, until - time.monotonic()), stat.S_ISDIR(about.st_mode))
        except BaseException:
            foreign_files.remove(path, target)
            raise
    return ""


def _copy(path: str, source: int, target: int, bounds: Bounds, is_directory: bool) -> None:
    left = MOST_BYTES
    if not is_directory:
        if not bounds.stop():
            foreign_files.copy(path, source, path, target, largest=left)
    else:
        with (
            foreign_files.directory(path, source) as top,
            foreign_files.directory(path, target, may_make=_always) as made,
        ):
            for below, at, entry in foreign_files.walk(top, bounds, _is_repository):
                if not _is_repository(below):
                    left -= foreign_files.copy(entry.name, at, below, made, largest=left)
    if bounds.reached is not None:
        what = f"it has over {MOST_ENTRIES} entries, or to copy takes over {SECONDS} seconds; link it instead"
        raise OSError(errno.ETIMEDOUT, what)
    if bounds.missed:
        raise OSError(errno.EACCES, "a directory in it cannot be read, or is too deep")


def _is_repository(path: str) -> bool:
    return is_dot_git(path.rpartition("/")[2])


def _always(_path: str) -> bool:
    return True
