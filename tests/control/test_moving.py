"""A person's work tree while the hub moves it: whatever a kill leaves is taken back, and nobody's change is lost."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nexus.control.runners.git import Git, GitFailed, origin_of
from nexus.control.worktrees import merging, moving, trees
from nexus.control.worktrees.half_moves import HalfMoves
from nexus.control.worktrees.moving import Locked
from nexus.core.background_work import work_once
from tests.acceptance.pool import arguments, until
from tests.control.test_worktrees import made, pool, repository
from tests.git import git

__all__ = ["made", "pool", "repository"]

NAMES = ("changed.txt", "new\nline.txt", "gone.txt", "added/a.txt", "-dash", "deep/é.bin")
OLD = {name: f"{name} was\n" * 3 for name in NAMES if not name.startswith(("added", "-"))}
NEW = {name: f"{name} is\n" * 4 for name in NAMES if name != "gone.txt"}
STATES = st.sampled_from(["old", "new", "missing", "begun", "theirs", "staged"])


def half_moved(place: Path) -> tuple[str, str]:
    """Copy a repository of two commits whose branch is at the first, with the note of a move to the second."""
    directory, onto, commit = _made_once()
    shutil.copytree(Path(directory.name, "repository"), place)
    git(place, "status")  # git knows the files by more than is copied
    return onto, commit


@cache
def _made_once() -> tuple[tempfile.TemporaryDirectory[str], str, str]:
    directory = tempfile.TemporaryDirectory(prefix="nexus-moving-")
    place = Path(directory.name, "repository")
    place.mkdir()
    git(place, "init", "--quiet")
    for name, text in {**OLD, "mine.txt": "committed\n"}.items():
        _write(place / name, text)
    git(place, "add", ".")
    git(place, "commit", "--quiet", "-m", "Old")
    for name, text in NEW.items():
        _write(place / name, text)
    (place / "gone.txt").unlink()
    git(place, "add", ".")
    git(place, "commit", "--quiet", "-m", "New")
    onto, commit = git(place, "rev-parse", "HEAD~1"), git(place, "rev-parse", "HEAD")
    git(place, "update-ref", "refs/heads/main", onto)
    git(place, "update-ref", f"{moving.MOVING}/main", commit)
    return directory, onto, commit


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _aged(lock: Path) -> None:
    os.utime(lock, (time.time() - 90,) * 2)


@pytest.mark.usefixtures("runs_git")
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    states=st.fixed_dictionaries(dict.fromkeys(NAMES, STATES)),
    index=st.sampled_from(["old", "new"]),
    mine=st.booleans(),
)
def test_whatever_a_kill_leaves_is_taken_back(states: dict[str, str], index: str, mine: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="nexus-moving-") as directory:
        place = Path(directory) / "repository"
        onto, commit = half_moved(place)
        git(place, "read-tree", onto if index == "old" else commit)
        if mine:
            (place / "mine.txt").write_text("not committed\n")
            (place / "untracked.txt").write_text("not tracked\n")
        theirs = set()
        for name, state in states.items():
            path, text = place / name, {"old": OLD, "new": NEW}.get(state, {}).get(name)
            if state == "begun":
                text = NEW.get(name, "")[:7] or None
            elif state in ("theirs", "staged"):
                text = f"{name} of a person\n"
                theirs.add(name)
            path.unlink(missing_ok=True) if text is None else _write(path, text)
            if state == "staged":
                git(place, "update-index", "--add", "--", name)
        (place / ".git" / "index.lock").touch()
        _aged(place / ".git" / "index.lock")
        origin = origin_of(str(place))
        if theirs:
            with pytest.raises(GitFailed) as refusal:
                merging.roll_back(origin)
            assert all(repr(name) in str(refusal.value) for name in theirs), refusal.value
        merging.roll_back(origin)
        for name in NAMES:
            path = place / name
            if name in theirs:
                assert path.read_text() == f"{name} of a person\n"
            else:
                assert (path.read_text() if path.exists() else None) == OLD.get(name), name
        changed = theirs | ({"mine.txt", "untracked.txt"} if mine else set())
        said = git(place, "status", "--porcelain", "-z", "--untracked-files=all").split("\0")
        assert {line.lstrip().partition(" ")[2].lstrip() for line in said if line} == changed
        assert git(place, "rev-parse", "HEAD") == onto
        if not theirs:
            merging.fast_forward(origin, "main", onto, commit)
            assert {name: (place / name).read_text() for name in NEW} == NEW and not (place / "gone.txt").exists()
            assert git(place, "for-each-ref", moving.MOVING) == ""


@pytest.mark.usefixtures("runs_git")
def test_a_lock_of_git_that_may_run_is_waited_for(tmp_path: Path) -> None:
    place = tmp_path / "repository"
    half_moved(place)
    lock = place / ".git" / "index.lock"
    lock.touch()
    origin = origin_of(str(place))
    with pytest.raises(Locked, match=r"index\.lock"):
        merging.roll_back(origin)
    assert lock.exists() and (place / "changed.txt").read_text() == NEW["changed.txt"]
    _aged(lock)
    merging.roll_back(origin)
    assert git(place, "status", "--porcelain") == ""


def test_a_lock_that_is_not_of_a_move_stays(repository: Path) -> None:
    lock = repository / ".git" / "index.lock"
    lock.touch()
    _aged(lock)
    merging.roll_back(origin_of(str(repository)))
    assert lock.exists()


@pytest.mark.usefixtures("runs_git")
def test_a_move_that_a_person_finished_is_over(tmp_path: Path) -> None:
    place = tmp_path / "repository"
    half_moved(place)
    git(place, "commit", "--quiet", "-m", "By hand")
    merging.roll_back(origin_of(str(place)))
    assert git(place, "status", "--porcelain") == "" and (place / "changed.txt").read_text() == NEW["changed.txt"]


def half_merged(repository: Path, tree: Path) -> None:
    """Leave a merge of a worktree as a kill leaves it that came when all files were written."""
    _write(tree / "new.txt", "new\n")
    git(tree, "add", ".")
    git(tree, "commit", "--quiet", "-m", "Work")
    onto = git(repository, "rev-parse", "HEAD")
    git(repository, "fetch", "--quiet", str(tree))
    commit = git(repository, "commit-tree", "-p", onto, "-p", "FETCH_HEAD", "-m", "Merge", "FETCH_HEAD^{tree}")
    git(repository, "update-ref", f"{moving.MOVING}/main", commit)
    git(repository, "read-tree", "-u", "-m", onto, commit)


def test_the_start_of_a_hub_takes_back_a_half_merge(made: Path, repository: Path) -> None:
    half_merged(repository, made)
    lock = repository / ".git" / "index.lock"
    lock.touch()
    work = HalfMoves()
    item = work.claim(work.lanes()[0])
    assert item is not None
    assert not work.settle(item, work.act(item)) and lock.exists()  # git may be at work: it is looked at again
    _aged(lock)
    assert work_once(work) == [True]
    assert work.lanes() == [] and git(repository, "status", "--porcelain") == ""
    assert git(repository, "for-each-ref", moving.MOVING) == ""


def test_what_a_person_changed_since_is_in_the_log(
    made: Path, repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    half_merged(repository, made)
    (repository / "new.txt").write_text("of a person\n")
    assert work_once(HalfMoves()) == [True]
    assert "somebody changed 'new.txt'" in caplog.text and (repository / "new.txt").read_text() == "of a person\n"


def test_a_work_tree_that_is_gone_is_left_out(made: Path, repository: Path) -> None:
    repository.rename(repository.with_name("elsewhere"))
    assert HalfMoves().lanes() == []


@pytest.mark.usefixtures("sandboxed")
def test_a_hub_that_is_killed_while_git_moves_it_is_followed_by_one_that_moves_it(
    repository: Path, tmp_path: Path
) -> None:
    """The head of a repository on no branch; on a branch, acceptance/test_merge_lane.py kills a real hub."""
    tree = trees.make(origin_of(str(repository)), str(tmp_path / "tree"), "smith")
    for number in range(2_000):
        _write(Path(tree.path) / f"{number % 40}" / f"{number}.txt", f"{number}\n")
    git(repository, "checkout", "--quiet", "--detach")
    lock = repository / ".git" / "index.lock"
    child = os.fork()
    if child == 0:
        try:
            trees.merge(tree, "Merge")
        finally:
            os._exit(0)
    ended = False
    while not lock.exists() and not (ended := os.waitpid(child, os.WNOHANG)[0] == child):
        pass
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    until(lambda: not any(str(repository) in word for word in arguments()))  # git ends with its sandbox
    for each in (repository / ".git").rglob("*.lock"):
        _aged(each)
    if (merged := trees.merge(tree, "Merge").commit) is not None:
        assert git(repository, "rev-parse", "HEAD") == merged
    assert git(repository, "status", "--porcelain") == "" and (repository / "39" / "1999.txt").exists()


class Killed(BaseException):
    """The end of a hub."""


@pytest.mark.usefixtures("runs_git")
def test_a_kill_while_it_moves_over_several_commits_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "repository"
    onto, first = half_moved(place)
    git(place, "update-ref", "-d", f"{moving.MOVING}/main")
    git(place, "reset", "--quiet", "--hard")
    last = git(place, "commit-tree", "-p", first, "-m", "Newer", f"{first}^{{tree}}")
    origin = origin_of(str(place))
    run = Git.run

    def half(self: Git, *arguments: str, **more: Any) -> Any:
        if arguments[0] != "merge":
            return run(self, *arguments, **more)
        git(place, "read-tree", "-u", "-m", onto, last)
        git(place, "read-tree", onto)  # which git writes last
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Git, "run", half)
        merging.fast_forward(origin, "main", onto, last)
    assert git(place, "status", "--porcelain") != ""
    merging.fast_forward(origin, "main", onto, last)
    assert git(place, "status", "--porcelain") == "" and git(place, "rev-parse", "HEAD") == last


@pytest.mark.usefixtures("runs_git")
def test_a_merge_that_git_refuses_changes_nothing(tmp_path: Path) -> None:
    place = tmp_path / "repository"
    onto, commit = half_moved(place)
    git(place, "update-ref", "-d", f"{moving.MOVING}/main")
    git(place, "reset", "--quiet", "--hard")
    (place / "changed.txt").write_text("of a person\n")
    (place / "gone.txt").unlink()
    (place / "deep/é.bin").write_text("")
    before = git(place, "status", "--porcelain")
    with pytest.raises(GitFailed, match="local changes") as refusal:
        merging.fast_forward(origin_of(str(place)), "main", onto, commit)
    assert "killed" not in str(refusal.value)
    assert git(place, "status", "--porcelain") == before and (place / "deep/é.bin").read_text() == ""
    assert git(place, "for-each-ref", moving.MOVING) == ""
