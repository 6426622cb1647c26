"""The branch that a project is on, read as git leaves it; no program is started for it."""

from __future__ import annotations

from pathlib import Path

NONE = "_default"  # where there is no branch: consumers want a name all the same
LONGEST = 4096  # characters of a file that is looked into


def branch_of(root: str) -> str:
    """The branch's name; the commit's first twelve digits on a detached head; `_default` without git."""
    here = Path(root)
    for folder in (here, *here.parents):
        git = folder / ".git"
        head = _first_line(git / "HEAD") if git.is_dir() else _first_line(_linked(git) / "HEAD")
        if head:
            name = head.removeprefix("ref: refs/heads/")
            return (name if name != head else head.removeprefix("ref: ")[:12]) or NONE
    return NONE


def _linked(git: Path) -> Path:
    """The directory that a worktree's `.git` file names."""
    return git.parent / _first_line(git).removeprefix("gitdir: ") if git.is_file() else git


def _first_line(path: Path) -> str:
    try:
        if not path.is_file():  # a pipe, say, would never end
            return ""
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.readline(LONGEST).replace("\0", "").strip()
    except (OSError, ValueError):  # a worktree's file may name anything, a path with NUL too
        return ""
