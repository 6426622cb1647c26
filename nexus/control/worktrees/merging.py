"""The git steps of the merge queue: merge a commit onto the head of a branch, and move the branch to the result.

Each step can be repeated: it reads where the branch is, and moves it only from there.
"""

from __future__ import annotations

import re

from typing_extensions import TypedDict

from nexus.control.runners.git import SETTINGS, GitFailed, NothingToClone, Origin, Step, format_of, printable
from nexus.control.worktrees import trees
from nexus.control.worktrees.trees import DIFF, RECORDS_BYTES, Merge, alone, merge_onto

FILES, THEIRS = 10, 5  # whose conflicts are shown, and commits of the other side for each
HUNK_LINES, HUNK_BYTES = 60, 4_000  # from where a conflict begins; of all in a file
CHANGE_BYTES = 32 * 1024 * 1024  # of a merge's change; beyond that it equals no other
PLACES = re.compile(rb"^(?:index .*\n|@@ .*)", re.MULTILINE)  # ids of whole files, numbers of lines


class MergeConflict(TypedDict):
    """A file in conflict, and whose work the other side is."""

    file: str
    hunk: str
    theirs: list[str]


class BranchMoved(GitFailed):
    """The branch is not where it was any more."""


def prepare(
    origin: Origin, branch: str, base: str, work: str, message: str, made: str = "", ref: str = ""
) -> tuple[Merge, str]:
    """Merge a commit onto the head of a branch, outside of every work tree. Return that with its commit, which a `ref`
    holds; there is none if there are conflicts, or it changes nothing. Raises GitFailed.

    `made` is the commit of an earlier try. It is used again while the branch is where it was, since git may take it
    after a kill of the hub.
    """
    try:
        merge = merge_onto(origin, base, work, f"refs/heads/{branch}")
    except NothingToClone:
        raise GitFailed(f"there is no branch {branch} any more, or it has no commit yet") from None
    if merge.state == "rewritten":
        raise GitFailed(
            f"{branch} was rewritten: it does not have the commit any more where the work began, and a merge would "
            "bring back what was removed; rebase the work"
        )
    if merge.conflicts or not merge.is_change:
        return merge, ""
    parents = origin.git().run("rev-parse", f"{made}^@", expect=(0, 128)).line.split() if made else []
    if parents == [merge.target, merge.work]:
        return merge, made
    return merge, _commit(origin, merge, message, ref)


def _commit(origin: Origin, merge: Merge, message: str, ref: str) -> str:
    """Make the commit of a merge, let a ref hold it, if one is named, and return it. Raises GitFailed.

    It is as the operator where they allow that, with the signature that they configured. What is merged into an agent's
    worktree is never theirs.
    """
    command = ("commit-tree", "-p", merge.target, "-p", merge.work, "-m", message)
    made = Step(*command, merge.content)
    if not origin.is_worktree and trees.commits_as_operator():
        try:
            git = origin.as_operator(format_of(merge.target))
            signs = git.line("config", "--type=bool", "--default=false", "commit.gpgSign") == "true"
            signed = Step(*command, *(["-S"] if signs else []), merge.content)
            text = git.steps(signed, Step("cat-file", "commit", -1))[1].output
        except GitFailed as error:
            said = " ".join(str(error).split())
            raise GitFailed(
                f"git cannot commit the merge as you ({said}); correct your own git configuration, or unlock your key "
                "(`ssh-add`, or sign something in a terminal), and try again; or set `pool_commit_as` to nexus"
            ) from None
        made = Step("hash-object", "-t", "commit", "-w", "--stdin", input=text)
    return origin.git().steps(made, *([Step("update-ref", ref, -1)] if ref else []))[0].line


def is_as_approved(origin: Origin, approved: str, commit: str) -> bool:
    """Return whether a merge brings its branch what the approved one would have brought: the same content, or the same
    change. A change is the same if each file of it has the same lines added and removed, between the same lines.

    Raises GitFailed.
    """
    if commit == approved:
        return True
    trees_of, ours, theirs = origin.beside(format_of(commit)).steps(
        Step("rev-parse", f"{commit}^{{tree}}", f"{approved}^{{tree}}"),
        *(Step(*DIFF, "--text", f"{merge}^1", merge, largest=CHANGE_BYTES, apart=True) for merge in (approved, commit)),
    )
    if len(set(trees_of.line.split())) == 1:
        return True
    return not ours.cut and not theirs.cut and PLACES.sub(b"", ours.output) == PLACES.sub(b"", theirs.output)


def conflicts_of(origin: Origin, merge: Merge) -> list[MergeConflict]:
    """Return the files in conflict; of the first ones what is in conflict, with git's markers and what follows, and
    whose work that is. Raises GitFailed."""
    log = ("log", "--max-count", str(THEIRS), "--no-show-signature", "--format=%h %an: %s")
    grep = ("grep", "-h", "-I", "--no-color", f"--after-context={HUNK_LINES}", "-e", "^<<<<<<< ")
    shown = [f":(top,literal){name}" for name in merge.conflicts[:FILES]]
    said = origin.beside(format_of(merge.target)).steps(
        *(Step(*grep, merge.made, "--", each, expect=(0, 1), largest=HUNK_BYTES, apart=True) for each in shown),
        *(Step(*log, f"{merge.work}..{merge.target}", "--", each) for each in shown),
    )
    found = [MergeConflict(file=printable(name), hunk="", theirs=[]) for name in merge.conflicts]
    for each, hunk, theirs in zip(found, said[: len(shown)], said[len(shown) :], strict=False):
        each["hunk"] = hunk.output.decode(errors="replace").replace("\0", "")
        each["theirs"] = [line[:200] for line in theirs.line.splitlines()]
    return found


def fast_forward(origin: Origin, branch: str, onto: str, commit: str) -> None:
    """Move a branch from `onto` to a commit that follows it, with the work tree of the origin if that is on it.

    git refuses if that would overwrite uncommitted changes there. Raises BranchMoved and GitFailed before any change.
    """
    git, ref = origin.git(), f"refs/heads/{branch}"
    where = Step("for-each-ref", "--format=%(objectname) %(worktreepath)", ref)
    head = Step("symbolic-ref", "--quiet", "HEAD", expect=(0, 1))
    written = ("diff-tree", "-r", "-z", "--no-renames", "--diff-filter=d", onto, commit)
    with alone(origin.common):
        said = git.steps(where, head, SETTINGS, Step(*written, largest=RECORDS_BYTES))
        about, at_head, configured, changed = said
        at, _, elsewhere = about.line.partition(" ")
        if at != onto:
            raise BranchMoved(f"{branch} moved")
        try:
            if at_head.line == ref:
                at = trees.move(origin, configured.settings, changed, commit, branch)
            elif elsewhere:
                raise GitFailed(f"{branch} is checked out at {elsewhere}")
            else:
                git.run("update-ref", "-m", "nexus: merge", ref, commit, onto)
                at = commit
        except GitFailed:
            if git.steps(where)[0].line.partition(" ")[0] != onto:
                raise BranchMoved(f"{branch} moved") from None
            raise
        if at != commit:
            raise BranchMoved(f"{branch} moved")
