"""The life of a worktree: whatever happens, every line that was written is in a branch, a worktree or a kept ref."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from nexus.control.maintenance import RETENTION_RULES, clear
from nexus.control.models import PoolWorktree
from nexus.control.runners.git import GitFailed, origin_of
from nexus.control.worktrees import trees
from nexus.control.worktrees.trees import Tree, Unsaved
from nexus.core.clock import now
from tests.control.test_worktrees import does, made, merge, pool, repository
from tests.git import git

__all__ = ["made", "pool", "repository"]


def discard(tree: Tree, *, changes_too: bool = False, lost_too: bool = False) -> None:
    with trees.removal(tree, "Discarded", changes_too=changes_too, lost_too=lost_too):
        pass


def held(repository: Path) -> set[str]:
    """The objects that a ref of a repository, or one of its stashes, holds."""
    stashes = subprocess.run(
        ["git", "rev-list", "--walk-reflogs", "refs/stash"], cwd=repository, capture_output=True, text=True, check=False
    ).stdout.split()
    return {line.split()[0] for line in git(repository, "rev-list", "--objects", "--all", "HEAD", *stashes).split("\n")}


def hashed(path: Path) -> str:
    return git(path.parent, "hash-object", "--no-filters", path.name)


class Life(RuleBasedStateMachine):
    """One repository, and worktrees of it that come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp(prefix="nexus-life-"))
        self.trees: list[Tree] = []
        self.lines: set[str] = set()
        self.count = 0

    def teardown(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)

    @initialize()
    def begin(self) -> None:
        self.origin = self.place / "repository"
        self.origin.mkdir()
        git(self.origin, "init", "--quiet")
        (self.origin / ".gitignore").write_text("*.log\n")
        git(self.origin, "add", ".")
        git(self.origin, "commit", "--quiet", "-m", "Begin")
        self.create()

    @rule()
    def create(self) -> None:
        if len(self.trees) < 2:
            self.count += 1
            path = str(self.place / f"tree-{self.count}")
            self.trees.append(trees.make(origin_of(str(self.origin)), path, "smith"))

    def written(self, place: Path) -> Path:
        self.count += 1
        path = place / f"file {self.count}\n"
        path.write_text(f"line {self.count}\n")
        self.lines.add(hashed(path))
        return path

    @precondition(lambda self: self.trees)
    @rule(how=st.sampled_from(["", "add", "commit", "stash", "amend", "detach", "branch", "tag"]))
    def write(self, how: str) -> None:
        place = Path(self.trees[-1].path)
        self.written(place)
        if how:
            git(place, "add", ".")
        if how in ("commit", "amend", "branch", "tag", "detach"):
            git(place, "commit", "--quiet", "-m", "Work", *(["--amend"] if how == "amend" else []))
        if how in ("branch", "tag"):
            git(place, how, f"other-{self.count}")
            git(place, "reset", "--quiet", "--hard", "HEAD~1")
        if how == "detach":
            git(place, "checkout", "--quiet", "--detach", "HEAD~1")
        if how == "stash":
            git(place, "stash", "--quiet")

    @rule(rewritten=st.booleans())
    def others(self, rewritten: bool) -> None:
        """The people commit, and take that back; that line is theirs."""
        before = set(self.lines)
        self.written(self.origin)
        git(self.origin, "add", ".")
        git(self.origin, "commit", "--quiet", "-m", "Theirs")
        if rewritten:
            git(self.origin, "reset", "--quiet", "--hard", "HEAD~1")
            self.lines = before

    @rule()
    def housekeeping(self) -> None:
        git(self.origin, "worktree", "prune")
        git(self.origin, "reflog", "expire", "--expire=now", "--all")
        git(self.origin, "gc", "--quiet", "--prune=now")

    @precondition(lambda self: self.trees)
    @rule()
    def branch_is_deleted(self) -> None:
        """By a person, as far as git does that without force."""
        branch = self.trees[-1].branch
        subprocess.run(["git", "branch", "-d", branch], cwd=self.origin, capture_output=True, check=False)

    @precondition(lambda self: self.trees)
    @rule(verb=st.sampled_from(["keep", "merge"]))
    def decide(self, verb: str) -> None:
        try:
            merge(self.trees[-1]) if verb == "merge" else trees.keep(self.trees[-1], "Decided")
        except GitFailed as error:
            assert "does not have" in str(error), error  # the branch

    @precondition(lambda self: self.trees)
    @rule(changes_too=st.booleans(), fails=st.booleans())
    def leave(self, changes_too: bool, fails: bool) -> None:
        tree = self.trees[-1]
        try:
            with trees.removal(tree, "Discarded", changes_too=changes_too, lost_too=False):
                if fails:
                    raise OSError("no space left")
        except Unsaved as error:
            assert error.field == "changes_too" and error.names and not changes_too
        except OSError:
            assert Path(tree.path).is_dir()
        else:
            self.trees.pop()
            assert not Path(tree.path).exists()

    @invariant()
    def nothing_is_lost(self) -> None:
        if not self.lines:
            return
        found = held(self.origin)
        for tree in self.trees:
            found |= held(Path(tree.path)) | {hashed(path) for path in Path(tree.path).glob("file*")}
        assert self.lines <= found


@pytest.mark.usefixtures("runs_git")
def test_every_line_stays_whatever_happens() -> None:
    short = settings(
        max_examples=4, stateful_step_count=10, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
    )
    run_state_machine_as_test(Life, settings=short)


def test_a_refusal_names_all_that_goes(made: Path, repository: Path) -> None:
    (repository / ".gitignore").write_text("*.bin\ncache/\n")
    git(repository, "add", ".gitignore")
    git(repository, "commit", "--quiet", "-m", "Ignore")
    shutil.copy(repository / ".gitignore", made)
    (made / "new\nline.txt").write_text("new\n")
    git(made, "commit", "--quiet", "--allow-empty", "-m", "Mine")
    (made / "notes.txt").write_text("stashed\n")
    git(made, "stash", "--quiet")
    (made / "notes.txt").write_text("stashed later\n")
    git(made, "stash", "--quiet")
    (made / "small.bin").write_bytes(b"x")
    (made / "large.bin").write_bytes(bytes(trees.LARGE_BYTES))
    (made / "cache" / "deep").mkdir(parents=True)
    (made / "cache" / "deep" / "one").write_bytes(bytes(trees.LARGE_BYTES))
    (made / "clone").mkdir()
    git(made / "clone", "init", "--quiet")
    git(made / "clone", "commit", "--quiet", "--allow-empty", "-m", "Nested")
    does("pool_destroy_agent", agent_id="smith")

    def refusal(**agreed: Any) -> dict[str, Any]:
        error = does("pool_worktree_discard", agent_id="smith", **agreed)["error"]
        return {**error["details"], "message": error["message"]}

    said = refusal()
    assert said["field"] == "changes_too" and "'new\\nline.txt'" in said["message"]
    files, commits = said["names"][:3], said["names"][3:]
    assert files == [".gitignore", "clone", "new\nline.txt"]
    assert {name.split(" ", 2)[2] for name in commits} >= {"Mine"} and len(commits) >= 3
    said = refusal(changes_too=True)
    assert said["field"] == "lost_too"
    assert said["names"] == ["the repository clone", "cache/, which is ignored", "large.bin, which is ignored"]
    assert does("pool_worktree_discard", agent_id="smith", changes_too=True, lost_too=True)["ok"]
    kept = f"{trees.DISCARDED}/{made.name}"
    assert git(repository, "show", f"{kept}/work:new\nline.txt") == "new"
    stashes = git(repository, "for-each-ref", "--format=%(refname)", f"{kept}/nexus/stash").split()
    assert {git(repository, "show", f"{ref}:notes.txt") for ref in stashes} == {"stashed", "stashed later"}
    assert git(repository, "branch", "--list", "nexus/*") == "" and not made.exists()


@pytest.mark.parametrize("way", ["stash", "branch"])
def test_more_than_refs_keep_is_named(made: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    for number in range(2):
        (made / "notes.txt").write_text(f"{way} {number}\n")
        git(made, *(("stash", "--quiet") if way == "stash" else ("branch", f"branch-{number}")))
    does("pool_destroy_agent", agent_id="smith")
    monkeypatch.setattr(trees, "MOST_REFS", 1)
    error = does("pool_worktree_discard", agent_id="smith", changes_too=True)["error"]
    assert error["details"]["names"] == ["its branches, tags or stashes beside 1"]
    assert does("pool_worktree_discard", agent_id="smith", changes_too=True, lost_too=True)["ok"]


def test_what_is_in_the_way_of_a_new_worktree_stays(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "precious").touch()
    with pytest.raises(GitFailed):
        trees.make(origin_of(str(repository)), str(tmp_path / "tree"), "smith")
    assert (tmp_path / "tree" / "precious").exists()
    assert git(repository, "for-each-ref", "--format=%(refname)") == "refs/heads/main"


def test_a_branch_that_somebody_works_on_stays(repository: Path, tmp_path: Path) -> None:
    tree = trees.make(origin_of(str(repository)), str(tmp_path / "tree"), "smith")
    git(repository, "worktree", "add", "--quiet", str(tmp_path / "side"), tree.branch)
    discard(tree)
    assert git(tmp_path / "side", "log", "-1", "--format=%s") == "Begin"
    tree = trees.make(origin_of(str(repository)), str(tmp_path / "tree"), "smith")
    own = git(repository, "commit-tree", "-p", "HEAD", "-m", "By hand", "HEAD^{tree}")
    git(repository, "update-ref", f"refs/heads/{tree.branch}", own)
    discard(tree)
    assert git(repository, "rev-parse", tree.branch) == own


def read_only(repository: Path) -> None:
    subprocess.run(["mount", "--bind", repository, repository], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", repository], check=True)


def full(repository: Path, left: int = 0) -> None:
    """Let a repository have a disk of its own, with so many bytes left."""
    copy = repository.parent / "copy"
    shutil.copytree(repository, copy, symlinks=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", repository], check=True)
    shutil.copytree(copy, repository, symlinks=True, dirs_exist_ok=True)
    filler = repository / ".git" / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as opened:
        while True:
            opened.write(bytes(4096))
    os.truncate(filler, filler.stat().st_size - left)


def another(tree: Tree) -> None:
    trees.make(origin_of(tree.origin), f"{tree.path}-2", "smith")


DISKS: dict[str, tuple[Callable[[Path], None], Callable[[Tree], object], str]] = {
    "full, at a look": (full, trees.survey, "the disk is full"),
    "full, at a merge": (partial(full, left=300_000), merge, "bytes left, and the files take"),
    "full, at a discard": (full, partial(discard, changes_too=True), "cannot be read or kept (the disk is full)"),
    "full, for another": (full, another, "nexus/smith-2"),
    "read-only, at a merge": (read_only, merge, "a disk that cannot be written to"),
    "read-only, for another": (read_only, another, "a disk that cannot be written to"),
}


@pytest.mark.parametrize("name", DISKS)
def test_a_disk_that_takes_nothing_leaves_no_half(repository: Path, tmp_path: Path, name: str) -> None:
    """The disk of the repository, in a process with mounts of its own."""
    tree = trees.make(origin_of(str(repository)), str(tmp_path / "tree"), "smith")
    (Path(tree.path) / "new.txt").write_text("precious\n" * 100_000)
    (Path(tree.path) / "notes.txt").write_text("mine\n")
    (Path(tree.path) / "random").write_bytes(os.urandom(50_000))
    mount, act, expected = DISKS[name]

    def play() -> str:
        mount(repository)
        try:
            act(tree)
        except GitFailed as error:
            assert [*(repository / ".git").rglob("tmp_*"), *(repository / ".git").rglob("*.lock")] == []
            assert git(repository, "--no-optional-locks", "status", "--porcelain") == ""
            return str(error)
        return "done"

    if (said := with_own_mounts(play, tmp_path / "said")) == "no namespaces":
        pytest.skip("this machine allows no mounts of one's own")
    assert expected in said, said
    assert not (tmp_path / "tree-2").exists()
    assert (Path(tree.path) / "notes.txt").read_text() == "mine\n"


def with_own_mounts(act: Callable[[], str], said: Path) -> str:
    """What a call returns, or raises, in a process with mounts of its own."""
    child = os.fork()
    if child == 0:
        try:
            said.write_text(act() if _unshared() else "no namespaces")
        except BaseException as error:
            said.write_text(repr(error))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    return said.read_text()


def _unshared() -> bool:
    user, group = os.getuid(), os.getgid()
    if ctypes.CDLL(None).unshare(0x10020000):  # a user namespace and one of mounts
        return False
    for name, line in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        Path("/proc/self", name).write_text(line)
    return True


def test_an_end_of_the_agent_and_of_its_row_leaves_the_worktree(made: Path, repository: Path) -> None:
    (made / "new.txt").write_text("precious\n")
    does("pool_destroy_agent", agent_id="smith")
    clear()
    [ended] = [rule for rule in RETENTION_RULES if rule.name == "ended_pool_agents"]
    assert not ended.rows(now() + timedelta(days=9_999)).exists()
    git(repository, "worktree", "prune")
    assert (made / "new.txt").read_text() == "precious\n" and PoolWorktree.objects.get().state == "open"
