"""The git steps of the merge lane: merge a commit onto the head of a branch, and move the branch to the result.

Each step can be repeated: it reads where the branch is, and moves it only from there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from typing_extensions import TypedDict

from nexus.control.runners.git import Git, GitFailed, Origin, format_of, step
from nexus.control.worktrees import trees
from nexus.control.worktrees.trees import DIFF, alone, commit_merge, merged_tree

LANE = "refs/nexus/lane"  # a ref for each entry, which holds its work
FILES, THEIRS = 10, 5  # whose conflicts are shown, and commits of the other side for each
HUNK_CHARACTERS = 4_000
FILE_BYTES = 500_000  # of a file in conflict that are read
CHANGE_BYTES = 32 * 1024 * 1024  # of a merge's change; beyond that it equals no other
PLACES = re.compile(rb"^(?:index .*\n|@@ .*)", re.MULTILINE)  # ids of whole files, numbers of lines


class MergeConflict(TypedDict):
    """A file in conflict, and whose work the other side is."""

    file: str
    hunk: str
    theirs: list[str]


class BranchMoved(GitFailed):
    """The branch is not where it was any more."""


@dataclass(frozen=True)
class Prepared:
    """A merge that no branch has yet; no commit: it changes nothing, or there are conflicts."""

    onto: str
    commit: str | None = None
    conflicts: list[MergeConflict] = field(default_factory=list)


def target(origin: Origin) -> str:
    """Return the branch that a work tree is on. Raises GitFailed."""
    said = origin.reading().run("symbolic-ref", "--quiet", "HEAD", expect=(0, 1)).line
    if not said.startswith("refs/heads/"):
        raise GitFailed(f"{origin.top} is on no branch; check out the branch to merge into")
    return said.removeprefix("refs/heads/")


def follows(git: Git, later: str, earlier: str) -> bool:
    """Return whether a commit follows another; it may have nothing of its content. Raises GitFailed."""
    return git.run("merge-base", "--is-ancestor", earlier, later, expect=(0, 1)).code == 0


def prepare(origin: Origin, branch: str, base: str, work: str, message: str, made: str | None = None) -> Prepared:
    """Merge a commit onto the head of a branch, outside of every work tree. Raises GitFailed.

    `made` is the commit of an earlier try. It is used again while the branch is where it was, since git may take it
    after a kill of the hub.
    """
    git = origin.git()
    onto = git.commit_of(f"refs/heads/{branch}")
    if not onto:
        raise GitFailed(f"there is no branch {branch} any more")
    if not follows(git, onto, base):
        raise GitFailed(
            f"{branch} was rewritten: it does not have {base[:12]} any more, where the work began, and a merge would "
            "bring back what was removed; rebase the work"
        )
    content, files, is_change = merged_tree(git, onto, work)
    if files:
        conflicts = [_conflict(git, content, name, onto, work) for name in files[:FILES]]
        rest = files[FILES:]
        return Prepared(
            onto, None, [*conflicts, *(MergeConflict(file=_text(name), hunk="", theirs=[]) for name in rest)]
        )
    if not is_change:
        return Prepared(onto)
    if made and git.run("rev-parse", f"{made}^@", expect=(0, 128)).line.split() == [onto, work]:
        return Prepared(onto, made)
    return Prepared(onto, commit_merge(origin, onto, work, content, message))


def is_as_approved(origin: Origin, approved: str, commit: str) -> bool:
    """Return whether a merge brings its branch what the approved one would have brought: the same content, or the same
    change. A change is the same if each file of it has the same lines added and removed, between the same lines.

    Raises GitFailed.
    """
    git = origin.writing()
    content, approved_content = git.line("rev-parse", f"{commit}^{{tree}}", f"{approved}^{{tree}}").split()
    if content == approved_content:
        return True
    objects = origin.objects
    apart = Git(objects[0], "", objects, apart=format_of(commit), borrowed=objects, seconds=origin.seconds)
    ours, theirs = apart.steps(
        *(step(*DIFF, "--text", f"{merge}^1", merge, largest=CHANGE_BYTES) for merge in (approved, commit))
    )
    return not ours.cut and not theirs.cut and PLACES.sub(b"", ours.output) == PLACES.sub(b"", theirs.output)


def _conflict(git: Git, content: str, name: str, onto: str, work: str) -> MergeConflict:
    said = git.run("cat-file", "blob", f"{content}:{name}", expect=(0, 128), largest=FILE_BYTES)
    text = "" if b"\0" in said.output else said.output.decode(errors="replace")
    log = ("log", "--max-count", str(THEIRS), "--no-show-signature", "--format=%h %an: %s")
    theirs = git.run(*log, f"{work}..{onto}", "--", f":(top,literal){name}").line.splitlines()
    return MergeConflict(file=_text(name), hunk=_hunks(text)[:HUNK_CHARACTERS], theirs=[line[:200] for line in theirs])


def _hunks(text: str) -> str:
    """Return the parts of a file that are in conflict, with git's markers."""
    kept, inside = list[str](), False
    for line in text.split("\n"):  # no regular expression: many openings without an end would take it minutes
        inside = inside or line.startswith("<<<<<<< ")
        if inside:
            kept.append(line)
        inside = inside and not line.startswith(">>>>>>> ")
    return "\n".join(kept)


def _text(name: str) -> str:
    return name.encode(errors="surrogateescape").decode(errors="replace")


def fast_forward(origin: Origin, branch: str, onto: str, commit: str) -> None:
    """Move a branch from `onto` to a commit that follows it, with the work tree of the origin if that is on it.

    git refuses if that would overwrite uncommitted changes there. Raises BranchMoved and GitFailed before any change.
    """
    ref = f"refs/heads/{branch}"
    with alone(origin.common):
        git = origin.git()
        if git.commit_of(ref) != onto:
            raise BranchMoved(f"{branch} moved")
        try:
            if git.run("symbolic-ref", "--quiet", "HEAD", expect=(0, 1)).line == ref:
                trees.move(git, commit, branch)
            elif elsewhere := git.line("for-each-ref", "--format=%(worktreepath)", ref):
                raise GitFailed(f"{branch} is checked out at {elsewhere}")
            else:
                git.run("update-ref", "-m", "nexus: merge", ref, commit, onto)
        except GitFailed:
            if git.commit_of(ref) != onto:
                raise BranchMoved(f"{branch} moved") from None
            raise
        if git.commit_of(ref) != commit:
            raise BranchMoved(f"{branch} moved")


def hold(origin: Origin, ref: str, commit: str) -> None:
    """Let a ref keep a commit. Raises GitFailed."""
    origin.writing().run("update-ref", ref, commit)


def release(origin: Origin, refs: list[str]) -> None:
    """Delete refs of entries that ended. Raises GitFailed."""
    origin.writing().steps(*(step("update-ref", "-d", ref) for ref in refs))


def refs(origin: Origin) -> list[str]:
    """Return the refs of the lane's entries. Raises GitFailed."""
    return origin.writing().line("for-each-ref", "--format=%(refname)", LANE).split()
