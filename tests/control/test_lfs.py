"""Files that git-lfs keeps, and submodules, in worktrees and in the merge queue: pointers stay what they are."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from nexus.control.models import MergeState
from nexus.control.runners.git import origin_of
from tests.control.test_lane import Make, ended, make, queue, refused
from tests.control.test_worktrees import does, pool, repository
from tests.git import git
from tests.outside import program

__all__ = ["make", "pool", "repository"]

CONTENT, OTHER = "pixels\n" * 1_000, "other pixels\n" * 1_000


def pointer(content: str) -> str:
    digest = hashlib.sha256(content.encode()).hexdigest()
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {len(content)}\n"


@pytest.fixture
def tracked(runs_git: None, repository: Path) -> Path:
    """The repository, with a file that git-lfs keeps, and filters of its configuration that leave a trace."""
    (repository / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    (repository / "an image.bin").write_text(pointer(CONTENT))
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "Track")
    for name in ("clean", "smudge", "process"):
        git(repository, "config", f"filter.lfs.{name}", f"touch {repository}/ran; cat")
    return repository


def test_content_that_an_agent_fetched_is_no_change(make: Make, tracked: Path) -> None:
    place = make("smith")
    assert (place / "an image.bin").read_text() == pointer(CONTENT)
    (place / "an image.bin").write_text(CONTENT)
    (place / ".git" / "lfs" / "objects").mkdir(parents=True)  # as git-lfs leaves it
    assert does("pool_worktree_diff", agent_id="smith")["data"]["files"] == []
    assert "nothing to merge" in refused(agent_id="smith")
    (place / "new.txt").write_text("new\n")
    assert ended(queue("smith")).state == MergeState.MERGED
    assert git(tracked, "show", "main:an image.bin") == pointer(CONTENT).strip()
    assert git(tracked, "show", "main:new.txt") == "new" and not (tracked / "ran").exists()


def test_a_new_pointer_and_a_new_submodule_are_merged_as_they_are(make: Make, tracked: Path) -> None:
    place = make("smith")
    (place / "an image.bin").write_text(pointer(OTHER))
    git(place, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},module")
    (place / "module").mkdir()
    git(place, "add", "an image.bin")
    git(place, "commit", "--quiet", "-m", "Mine")
    shown = does("pool_worktree_diff", agent_id="smith")["data"]
    assert shown["files"] == ["an image.bin", "module"]
    assert f"+oid sha256:{hashlib.sha256(OTHER.encode()).hexdigest()}" in shown["diff"]
    assert f"+Subproject commit {'1' * 40}" in shown["diff"]
    assert ended(queue("smith")).state == MergeState.MERGED
    assert (tracked / "an image.bin").read_text() == pointer(OTHER) and not (tracked / "ran").exists()
    assert git(tracked, "ls-tree", "main", "module").split()[:3] == ["160000", "commit", "1" * 40]


def test_what_git_lfs_alone_has_is_named_before_it_goes(make: Make, tracked: Path) -> None:
    program("git-lfs")
    for name in ("clean", "smudge", "process"):
        git(tracked, "config", "--unset", f"filter.lfs.{name}")
    place = make("smith")
    git(place, "lfs", "install", "--local")
    (place / "mine.bin").write_text(OTHER)
    git(place, "add", "mine.bin")
    git(place, "commit", "--quiet", "-m", "Mine")
    assert git(place, "show", "HEAD:mine.bin") == pointer(OTHER).strip()
    assert ended(queue("smith")).state == MergeState.MERGED
    assert git(tracked, "show", "main:mine.bin") == pointer(OTHER).strip()
    does("pool_destroy_agent", agent_id="smith")
    refusal = does("pool_worktree_discard", agent_id="smith", changes_too=True)["error"]["details"]
    digest = hashlib.sha256(OTHER.encode()).hexdigest()
    assert (refusal["field"], refusal["names"]) == ("lost_too", [f"the LFS object {digest}"])
    kept = Path(origin_of(str(tracked)).common, "lfs", "objects", digest[:2], digest[2:4])
    kept.mkdir(parents=True)
    shutil.copy(place / ".git" / "lfs" / "objects" / digest[:2] / digest[2:4] / digest, kept)
    assert does("pool_worktree_discard", agent_id="smith", changes_too=True)["ok"]
