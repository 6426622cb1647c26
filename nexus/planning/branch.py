"""The current branch of a project, read from git's files without starting a program."""

from __future__ import annotations

import re
from pathlib import Path

from nexus.core.files import read_regular

NONE = "_default"  # where there is no branch, because consumers need a name
LONGEST = 4096  # bytes of a file that are read
POINTER = "gitdir: "
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
REF = re.compile(r"ref: refs/(?:heads/)?(?P<name>[^\x00-\x20\x7f~^:?*\[\\]{1,255})")
UNUSABLE = re.compile(r"\.\.|@\{|//|/\.|^[./]|[./]$|\.lock$|\.lock/|\ufffd")  # as in `git check-ref-format`


def branch_of(root: str) -> str:
    """Return the branch's name; the commit's first twelve digits on a detached head; `_default` without git.

    An agent may write `.git`: a link there is not followed, and content that is no ref or commit is not shown.
    """
    here = Path(root)
    for folder in (here, *here.parents):
        if head := _line(_git_dir(folder / ".git") / "HEAD"):
            return _named(head) or NONE
    return NONE


def _git_dir(git: Path) -> Path:
    """Return the git directory: `.git` itself, or the one that a worktree's `.git` file names."""
    pointer = _line(git)
    return git.parent / pointer.removeprefix(POINTER) if pointer.startswith(POINTER) else git


def _named(head: str) -> str:
    """Return the branch or the commit in a HEAD; the empty string for any other content, which is never shown."""
    if COMMIT.fullmatch(head):
        return head[:12]
    ref = REF.fullmatch(head)
    return ref["name"] if ref and not UNUSABLE.search(ref["name"]) else ""


def _line(path: Path) -> str:
    content = read_regular(str(path), LONGEST) or b""
    return content.partition(b"\n")[0].decode(errors="replace").replace("\0", "").strip()
