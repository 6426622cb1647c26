"""A git without git: worktrees are directories, and what changed is found by comparing files."""

from __future__ import annotations

import difflib
import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from nexus.control.runners.git import Origin
from nexus.control.worktrees import merging, trees
from nexus.control.worktrees.trees import Merge, Survey, Tree
from nexus.core.unified_diff import ChangedFile


class PlayedGit:
    """What `trees` and `merging` do, as far as reviews need it. Nothing is merged."""

    def __init__(self, bases: Path) -> None:
        self.bases = bases  # what each worktree began with
        self.kept = set[str]()  # of what was removed, as refs keep it

    def make(self, origin: Origin, path: str, wanted: str, *_: object) -> Tree:
        for copy in (Path(path), self.bases / Path(path).name):
            shutil.copytree(origin.top, copy, ignore=shutil.ignore_patterns(".git", "part"))
        return Tree(path, f"{path}/.git", f"nexus/{wanted}", "0" * 40, origin.top, origin.git_dir, origin.objects)

    def survey(self, tree: Tree) -> Survey:
        before, after = _lines(self.bases / Path(tree.path).name), _lines(Path(tree.path))
        shown: list[str] = []
        files: list[ChangedFile] = []
        for name in sorted({*before, *after}):
            old, new = before.get(name, []), after.get(name, [])
            if old != new:
                ends, ids = (_quoted("a", name), _quoted("b", name)), (_id(old), _id(new))
                shown += [f"diff --git {ends[0]} {ends[1]}", f"index {ids[0]}..{ids[1]}"]
                shown += difflib.unified_diff(old, new, *ends, lineterm="")
                signs = [line[0] for line in difflib.ndiff(old, new)]
                record = {"path": name, "status": "M", "old_mode": "100644", "new_mode": "100644", "shown": True}
                numbers = {"added": signs.count("+"), "removed": signs.count("-")}
                files.append(cast(ChangedFile, {**record, **numbers, "old": ids[0], "new": ids[1]}))
        diff = "\n".join([*shown, ""])
        return replace(trees.NOTHING, state="merged", content=self.content(tree), files=files, diff=diff)

    def content(self, tree: Tree) -> str:
        return _id(sorted(_lines(Path(tree.path)).items()))

    def hand_in(self, tree: Tree, message: str) -> str:
        self.handed_in = self.content(tree)
        return "main"

    def prepare(self, *_: object, **__: object) -> tuple[Merge, str]:
        merge = Merge("merged", f"commit of {self.handed_in}", "onto", "onto", self.handed_in)
        return merge, f"merge of {merge.work}"

    @contextmanager
    def removal(self, tree: Tree, message: str, *, changes_too: bool, lost_too: bool) -> Iterator[None]:
        self.kept.add(self.content(tree))
        yield
        shutil.rmtree(tree.path)


def _id(content: object) -> str:
    return hashlib.sha1(repr(content).encode()).hexdigest()


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
    for name in ("make", "survey", "hand_in", "removal"):
        monkeypatch.setattr(trees, name, getattr(git, name))
    monkeypatch.setattr(merging, "prepare", git.prepare)
    return git


@pytest.fixture
def repository(tmp_path: Path, played_git: PlayedGit) -> Path:
    """What looks like a repository with a commit."""
    place = tmp_path / "repository"
    (place / ".git").mkdir(parents=True)
    (place / ".git" / "HEAD").touch()
    (place / "notes.txt").write_text("one\n")
    return place
