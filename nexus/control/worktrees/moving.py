"""Move a person's work tree to a commit that follows its own, so that a kill in the middle is found and rolled back.

git changes the files and the index first, and the branch last. A ref of the repository names a note meanwhile: a commit
with the files of the move's end, whose parent is its start. If the ref is left, and the branch is where it was, git was
killed in between.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from nexus.control.runners.git import Git, GitFailed

MOVING = "refs/nexus/moving"  # below it a ref for each branch; HEAD: of a work tree that is on none
LARGEST = 100_000_000  # bytes of the names of all files that one move changes
NAMED = 10  # files that a refusal names
NOWHERE, MODULE = b"000000", b"160000"  # modes
OPEN = """
export GIT_DIR="$OWN" GIT_WORK_TREE="$TOP"
cd "$TOP"
mkdir -p "$SCRATCH"
"""
# A lock of git's that is a minute old is of the git that was killed: no command of ours holds one as long.
UNLOCK = """
branch=$(git rev-parse --git-path "refs/heads/$BRANCH.lock")
for lock in "$OWN/index.lock" "$OWN/HEAD.lock" "$OWN/ORIG_HEAD.lock" "$branch"; do
    [ -e "$lock" ] || continue
    if [ -z "$(find "$lock" -maxdepth 0 -mmin +1)" ]; then printf '%s' "$lock"; exit; fi
    rm -f "$lock"
done
"""
COMPARE = """
export GIT_INDEX_FILE="$SCRATCH/index"
git update-index -z --index-info
git update-index -q --refresh > /dev/null || true
git diff-files --no-renames --ignore-submodules=all --name-status -z
"""
IS_BEGUN = """
git cat-file blob "$BLOB" > "$SCRATCH/whole"
[ -L "./$NAME" ] || [ ! -f "./$NAME" ] || ! head -c "$(wc -c < "./$NAME")" "$SCRATCH/whole" | cmp -s - "./$NAME" ||
    echo begun
"""
REMOVE = "xargs -0 -r rm -f --\n"
INDEX = "git update-index -z --index-info\n"
WRITE = "git checkout-index -u -z --stdin\n"  # without force: what is there stays


class Locked(GitFailed):
    """git is at work there, or was killed less than a minute ago."""


class Side(NamedTuple):
    """What a file is on one side of a move."""

    mode: bytes
    blob: bytes

    @property
    def is_file(self) -> bool:
        return self.mode not in (NOWHERE, MODULE)


def move(git: Git, commit: str) -> None:
    """Move a work tree, and the branch that it is on, to a commit that follows its own.

    git refuses if that would overwrite uncommitted changes. Raises Locked and GitFailed, and moves nothing then.
    """
    roll_back(git)
    forward = ("merge", "--quiet", "--ff-only", "--no-autostash", "--no-overwrite-ignore", commit)
    ref, onto = f"{MOVING}/{_head(git)}", git.commit_of("HEAD")
    if _is_in_the_way(git, onto, commit):
        git.run(*forward)  # which refuses and begins nothing, so there is nothing to roll back
        return
    git.run("update-ref", ref, git.line("commit-tree", "-p", onto, "-m", "nexus: move", f"{commit}^{{tree}}"))
    try:
        git.run(*forward)
    except GitFailed:
        with suppress(Locked):  # then the next one rolls it back
            roll_back(git)  # it took too long and was killed, or the disk is full
        raise
    git.run("update-ref", "-d", ref)


def _is_in_the_way(git: Git, onto: str, commit: str) -> bool:
    """Return whether there are uncommitted changes of what a move changes."""
    files = _changed(git, onto, commit)
    changed, _ = _compared(git, {name: old for name, (old, _) in files.items()})
    added = {name: new for name, (old, new) in files.items() if not old.is_file}
    _, missing = _compared(git, added)
    return bool(changed) or added.keys() > missing or not files.keys().isdisjoint(_staged(git, onto))


def _head(git: Git) -> str:
    """Return the branch that a work tree is on; HEAD if it is on none."""
    return git.run("symbolic-ref", "--quiet", "--short", "HEAD", expect=(0, 1)).line or "HEAD"


def roll_back(git: Git) -> None:
    """Bring what a killed move has changed back to the commit of the work tree, and record that it is over.

    What anybody has changed since then stays as it is. Raises Locked, and GitFailed that names such changes.
    """
    branch = _head(git)
    ref = f"{MOVING}/{branch}"
    if not (note := git.commit_of(ref)):
        return
    onto = git.commit_of("HEAD")
    theirs = list[bytes]()
    if git.commit_of(f"{note}^") == onto:
        if lock := _script(git, UNLOCK, BRANCH=branch).decode(errors="replace"):
            raise Locked(f"git is at work in {git.work_tree}, or was killed a moment ago: there is {lock}")
        try:
            theirs = _restore(git, onto, note)
        except GitFailed as error:
            raise GitFailed(
                f"git was killed while it moved {git.work_tree} to a merge, and its files cannot be brought back "
                f"({error}): save what you changed there, and `git reset --hard {onto[:12]}`"
            ) from None
    git.run("update-ref", "-d", ref, note)
    if theirs:
        names = ", ".join(repr(name.decode(errors="replace")) for name in theirs[:NAMED])
        raise GitFailed(
            f"git was killed while it moved {git.work_tree} to a merge, and somebody changed {names} there since "
            f"then: commit or take back what `git diff {onto[:12]}` shows of that; all other files are as they were "
            f"before, and {branch} has not moved"
        )


def _restore(git: Git, onto: str, commit: str) -> list[bytes]:
    """Bring the files of a half move back; return those that hold neither side, which stay as they are."""
    files = _changed(git, onto, commit)
    unlike_old, missing = _compared(git, {name: old for name, (old, _) in files.items()})
    unlike_new, missing_new = _compared(git, {name: new for name, (_, new) in files.items()})
    missing |= missing_new
    staged = _staged(git, onto) & _staged(git, commit)
    theirs, entries, removed, written = list[bytes](), list[bytes](), list[bytes](), list[bytes]()
    for name, (old, new) in files.items():
        is_old = old.is_file and name not in missing and name not in unlike_old
        is_new = new.is_file and name not in missing and (name not in unlike_new or _is_begun(git, name, new))
        is_module = MODULE in (old.mode, new.mode)  # whose files git leaves alone
        if name in staged or not (name in missing or is_old or is_new or is_module):
            theirs.append(name)
            continue
        entries.append(name)
        if not is_old and not is_module:
            removed += [name] if is_new else []
            written += [name] if old.is_file else []
    _script(git, REMOVE, b"".join(b"./" + name + b"\0" for name in removed))
    _script(git, INDEX, b"".join(_line(name, files[name][0]) for name in entries))
    _script(git, WRITE, b"".join(name + b"\0" for name in written))
    return theirs


def _changed(git: Git, onto: str, commit: str) -> dict[bytes, tuple[Side, Side]]:
    """Return the files that differ between two commits, with both sides."""
    said = git.run("diff-tree", "-r", "-z", "--no-renames", "--no-abbrev", onto, commit, largest=LARGEST)
    if said.cut:
        raise GitFailed("it changed too many files")
    fields = said.output.split(b"\0")[:-1]
    found = {}
    for about, name in zip(fields[::2], fields[1::2], strict=True):
        old_mode, new_mode, old, new, _ = about.removeprefix(b":").split(b" ")
        found[name] = Side(old_mode, old), Side(new_mode, new)
    return found


def _compared(git: Git, sides: Mapping[bytes, Side]) -> tuple[set[bytes], set[bytes]]:
    """Return which files are not as on one side of a move, and which are not there."""
    known = b"".join(_line(name, side) for name, side in sides.items() if side.is_file)
    fields = _script(git, COMPARE, known).split(b"\0")[:-1]
    found = list(zip(fields[::2], fields[1::2], strict=True))
    return {name for how, name in found if how != b"D"}, {name for how, name in found if how == b"D"}


def _staged(git: Git, commit: str) -> set[bytes]:
    """Return the files whose entry in the index is not that of a commit."""
    said = git.run("diff-index", "--cached", "--no-renames", "--name-only", "-z", commit, largest=LARGEST)
    if said.cut:
        raise GitFailed("too many files are staged")
    return set(said.output.split(b"\0")[:-1])


def _is_begun(git: Git, name: bytes, new: Side) -> bool:
    """Return whether a file is the beginning of what git was writing."""
    return bool(_script(git, IS_BEGUN, NAME=os.fsdecode(name), BLOB=new.blob.decode()).strip())


def _line(name: bytes, side: Side) -> bytes:
    return side.mode + b" " + side.blob + b"\t" + name + b"\0"


def _script(git: Git, text: str, input: bytes = b"", **values: str) -> bytes:
    values |= {"OWN": git.git_dir, "TOP": git.work_tree}
    return git.script(OPEN + text, values, input=input, largest=LARGEST).output
