"""A git without git: worktrees are directories, and what changed is found by comparing files."""

from __future__ import annotations

import difflib
import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from nexus.control import merging, trees
from nexus.control.trees import Difference, Origin, Survey, Tree


class PlayedGit:
    """What `trees` and `merging` do, as far as reviews need it. Nothing is merged."""

    def __init__(self, bases: Path) -> None:
        self.bases = bases  # what each worktree began with
        self.kept = set[str]()  # of what was removed, as refs keep it

    def make(self, origin: Origin, path: str, wanted: str, owner: str | None = "") -> Tree:
        for copy in (Path(path), self.bases / Path(path).name):
            shutil.copytree(origin.top, copy, ignore=shutil.ignore_patterns(".git", "part"))
        return Tree(path, f"{path}/.git", f"nexus/{wanted}", "0" * 40, origin.top, origin.git_dir, origin.objects)

    def difference(self, tree: Tree) -> Difference:
        before, after = _lines(self.bases / Path(tree.path).name), _lines(Path(tree.path))
        shown: list[str] = []
        changed = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
        for name in changed:
            shown.append(f"diff --git {_quoted('a', name)} {_quoted('b', name)}")
            ends = _quoted("a", name), _quoted("b", name)
            shown += difflib.unified_diff(before.get(name, []), after.get(name, []), *ends, lineterm="")
        return Difference("\n".join([*shown, ""]), False, changed, self.content(tree))

    def survey(self, tree: Tree, unchanged: Sequence[str] = ()) -> Survey:
        before, after = _lines(self.bases / Path(tree.path).name), _lines(Path(tree.path))
        files: list[tuple[str, int | None, int | None]] = []
        for name in self.difference(tree).files:
            signs = [line[0] for line in difflib.ndiff(before.get(name, []), after.get(name, []))]
            files.append((name, signs.count("+"), signs.count("-")))
        return Survey("head", self.content(tree), bool(files), 0, [], [], [], "", files, False)

    def content(self, tree: Tree) -> str:
        return hashlib.sha1(repr(sorted(_lines(Path(tree.path)).items())).encode()).hexdigest()

    def hand_in(self, tree: Tree, message: str, ref: str) -> str:
        return f"commit of {self.content(tree)}"

    @contextmanager
    def removal(self, tree: Tree, message: str, *, changes_too: bool, lost_too: bool) -> Iterator[None]:
        self.kept.add(self.content(tree))
        yield
        shutil.rmtree(tree.path)


def _lines(place: Path) -> dict[str, list[str]]:
    found = (path for path in place.rglob("*") if path.is_file())
    return {str(path.relative_to(place)): path.read_bytes().decode().split("\n")[:-1] for path in found}


def _quoted(side: str, name: str) -> str:
    """A name as git has it in a diff."""
    plain = f"{side}/{name}"
    escaped = plain.replace("\r", "\\r").replace("\n", "\\n")
    return plain if name.isascii() and escaped == plain else f'"{escaped}"'


@pytest.fixture
def played_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlayedGit:
    """Let it take the place of git."""
    git = PlayedGit(tmp_path / "bases")
    for name in ("make", "difference", "survey", "hand_in", "removal"):
        monkeypatch.setattr(trees, name, getattr(git, name))
    monkeypatch.setattr(trees, "content_of", lambda tree, commit: commit.removeprefix("commit of "))
    monkeypatch.setattr(merging, "target", lambda origin: "main")
    monkeypatch.setattr(merging, "has", lambda origin, target, commit: False)
    monkeypatch.setattr(merging, "release", lambda origin, refs: None)
    return git


@pytest.fixture
def repository(tmp_path: Path, played_git: PlayedGit) -> Path:
    """What looks like a repository with a commit."""
    place = tmp_path / "repository"
    (place / ".git").mkdir(parents=True)
    (place / ".git" / "HEAD").touch()
    (place / "notes.txt").write_text("one\n")
    return place
