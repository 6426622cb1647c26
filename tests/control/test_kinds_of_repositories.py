"""Worktrees of repositories as people have them: shallow, partial, sparse, with settings of their own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from nexus.control.models import PoolAgent
from nexus.control.runners.git import origin_of
from nexus.control.worktrees import trees
from tests.control.test_worktrees import does, made, merge, pool, repository
from tests.git import git

__all__ = ["made", "pool", "repository"]

AHEAD = 4  # commits of the source after its first


@pytest.fixture
def source(repository: Path) -> Path:
    """A repository with a history, that serves parts of it."""
    for number in range(AHEAD):
        (repository / "src" / "main.py").write_text(f"print({number})\n")
        git(repository, "commit", "--quiet", "--all", "-m", f"Commit {number}")
    for name in ("uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"):
        git(repository, "config", name, "true")
    return repository


def cloned(source: Path, *how: str) -> Path:
    git(source.parent, "clone", "--quiet", *how, f"file://{source}", "place")
    return source.parent / "place"


def worked(place: Path, path: str = "src/new.txt") -> Path:
    """Let an agent write a file in a worktree of a repository, and merge it; return the worktree."""
    tree = trees.make(origin_of(str(place)), str(place.parent / "tree"), "smith")
    made = Path(tree.path)
    assert git(made, "status", "--porcelain") == ""
    (made / path).parent.mkdir(parents=True, exist_ok=True)
    (made / path).write_text("new\n")
    assert [file["path"] for file in trees.survey(tree).files] == [path]
    merge(tree)
    assert (place / path).read_text() == "new\n" and git(place, "status", "--porcelain") == ""
    return made


def test_long_names_with_line_breaks_are_merged(source: Path) -> None:
    worked(source, "/".join([*["d" * 199] * 19, "a\nb"]))


def test_a_branch_without_a_commit_is_named(made: Path, repository: Path) -> None:
    git(repository, "checkout", "--quiet", "--orphan", "unborn")
    for operation in ("diff", "queue"):
        error = does(f"pool_worktree_{operation}", agent_id="smith")["error"]
        assert error["code"] == "WORKTREE_REFUSED" and "has no commit yet" in error["message"]


@pytest.mark.parametrize("how", ["--depth=2", "--filter=blob:none", "--filter=tree:0"])
def test_what_git_lacks_of_the_history_stops_nobody(source: Path, how: str) -> None:
    made = worked(cloned(source, how))
    git(made, "fsck", "--no-dangling")
    assert "print(3)" in git(made, "blame", "src/main.py")
    git(made, "rebase", "--quiet", "HEAD~1")
    assert len(git(made, "log", "--format=%s").splitlines()) == (3 if how == "--depth=2" else AHEAD + 2)


def test_a_sparse_worktree_has_the_files_of_its_origin(source: Path) -> None:
    (source / "docs").mkdir()
    (source / "docs" / "large.txt").write_text("large\n")
    git(source, "add", ".")
    git(source, "commit", "--quiet", "-m", "Docs")
    place = cloned(source, "--sparse")
    git(place, "sparse-checkout", "set", "src")
    made = worked(place)
    assert not (made / "docs").exists()
    assert git(place, "ls-tree", "-r", "--name-only", "HEAD").split() == [
        *("docs/large.txt", "notes.txt", "src/main.py", "src/new.txt")
    ]


def test_a_format_of_longer_ids(runs_git: None, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    git(place, "init", "--quiet", "--object-format=sha256")
    (place / "notes.txt").write_text("one\n")
    git(place, "add", ".")
    git(place, "commit", "--quiet", "-m", "Begin")
    worked(place, "new.txt")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of the operator."""
    home = tmp_path / "operator"
    (home / ".config" / "git").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return home


def test_what_the_operator_ignores_everywhere_is_no_work(home: Path, source: Path) -> None:
    (home / ".config" / "git" / "ignore").write_text(".DS_Store\n**/.claude/settings.local.json\n")
    tree = trees.make(origin_of(str(source)), str(source.parent / "tree"), "smith")
    made = Path(tree.path)
    (made / ".DS_Store").touch()
    (made / ".claude").mkdir()
    (made / ".claude" / "settings.local.json").touch()
    (made / "new.txt").touch()
    assert git(made, "status", "--porcelain") == "?? new.txt"
    assert [file["path"] for file in trees.survey(tree).files] == ["new.txt"]
    trees.keep(tree, "Kept")
    assert git(source, "ls-tree", "--name-only", tree.branch).split() == ["new.txt", "notes.txt", "src"]


def test_line_endings_are_those_of_the_operator(home: Path, source: Path) -> None:
    (home / ".gitconfig").write_text("[include]\n\tpath = team.gitconfig\n")
    (home / "team.gitconfig").write_text("[core]\n\tautocrlf = true\n")
    place = cloned(source)
    tree = trees.make(origin_of(str(place)), str(source.parent / "tree"), "smith")
    notes = Path(tree.path) / "notes.txt"
    assert notes.read_bytes() == (place / "notes.txt").read_bytes() == b"one\r\n"
    notes.write_bytes(b"two\r\n")
    assert trees.survey(tree).stat == "1 file changed, 1 insertion(+), 1 deletion(-)"
    merge(tree)
    assert (place / "notes.txt").read_bytes() == b"two\r\n" and git(place, "status", "--porcelain") == ""


def test_a_submodule_with_a_relative_address_is_found(source: Path) -> None:
    git(source.parent, "clone", "--quiet", "--bare", str(source), "part.git")
    allowed = ("-c", "protocol.file.allow=always")
    git(source, *allowed, "submodule", "--quiet", "add", "../part.git", "part")
    git(source, "commit", "--quiet", "-m", "A part")
    place = cloned(source)
    tree = trees.make(origin_of(str(place)), str(source.parent / "tree"), "smith")
    git(Path(tree.path), *allowed, "submodule", "--quiet", "update", "--init")
    assert (Path(tree.path) / "part" / "notes.txt").read_text() == "one\n"


def test_an_address_is_taken_over_without_its_password(source: Path) -> None:
    git(source, "remote", "add", "origin", "https://ann:s3cret@git.example/shop.git")
    tree = trees.make(origin_of(str(source)), str(source.parent / "tree"), "smith")
    assert git(Path(tree.path), "remote", "get-url", "origin") == "https://git.example/shop.git"


def test_a_git_that_is_too_old_is_named(db: None, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    older = repository.parent / "bin"
    older.mkdir()
    (older / "git").write_text(
        f'#!/bin/sh\ncase "$*" in *merge-tree*) echo "usage: git merge-tree <base-tree> <branch1> <branch2>" >&2; '
        f'exit 129;; esac\nexec {shutil.which("git")} "$@"\n'
    )
    (older / "git").chmod(0o755)
    before = git(repository, "for-each-ref")
    monkeypatch.setenv("PATH", f"{older}:{os.environ['PATH']}")
    error = does("pool_create_agent", agent_id="smith", cwd=str(repository))["error"]
    why = "this machine's git is too old: worktrees of agents need git 2.38 or newer"
    assert error["code"] == "WORKTREE_REFUSED" and error["message"].startswith(
        f"The worktree: {why}; with `worktree: false`"
    )
    assert git(repository, "for-each-ref") == before and not PoolAgent.objects.exists()
