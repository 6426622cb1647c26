"""Files and directories that others made: no link is followed, nothing waits, no depth is too much."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nexus.core import foreign_files
from nexus.core.foreign_files import Bounds, is_dot_git, is_of_repository
from tests.conftest import Nest


def test_it_removes_any_depth_and_follows_no_link(tmp_path: Path, nested: Nest) -> None:
    tree, kept = tmp_path / "tree", tmp_path / "kept"
    (tree / "some").mkdir(parents=True)
    nested(tree)
    kept.mkdir()
    (kept / "file").write_text("mine")
    (tree / "some" / "link").symlink_to(kept)
    os.mkfifo(tree / "some" / "fifo")
    (tree / "closed").mkdir(mode=0)
    foreign_files.remove(str(tree))
    foreign_files.remove(str(tree))  # it is gone
    (tmp_path / "link").symlink_to(kept)
    foreign_files.remove(str(tmp_path / "link"))
    assert os.listdir(tmp_path) == ["kept"] and (kept / "file").read_text() == "mine"  # noqa: PTH208


def test_a_removal_has_a_time_limit_and_goes_on_later(tmp_path: Path, nested: Nest) -> None:
    nested(tmp_path, 3)
    with pytest.raises(TimeoutError):
        foreign_files.remove(str(tmp_path / "d"), seconds=0)
    foreign_files.remove(str(tmp_path / "d"))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def deep(tmp_path: Path, nested: Nest) -> Path:
    """A tree that only a walk without recursion can pass."""
    (tmp_path / "deep").mkdir()
    nested(tmp_path / "deep")
    return tmp_path / "deep"


def test_a_walk_is_bounded_in_depth_entries_and_time(deep: Path) -> None:
    for bounds, count, reached in (
        (Bounds(), foreign_files.DEEPEST, None),
        (Bounds(entries=10), 5, "10 entries were looked at"),
        (Bounds(seconds=-1), 0, "-1 seconds were over"),
    ):
        with foreign_files.directory(str(deep)) as top:
            found = [path for path, _, _ in foreign_files.walk(top, bounds)]
        assert (len(found), bounds.reached, bounds.missed) == (count, reached, reached is None)


@pytest.fixture(params=["fifo", "device", "socket", "link", "link to a device", "directory"])
def strange(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """What is no file of its own."""
    path = tmp_path / "strange"
    (tmp_path / "kept").write_text("mine")
    match request.param:
        case "fifo":
            os.mkfifo(path)
        case "device":
            return Path("/dev/zero")
        case "socket":
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(str(path))
        case "directory":
            path.mkdir()
        case link:
            path.symlink_to("/dev/zero" if "device" in link else tmp_path / "kept")
    return path


@pytest.mark.parametrize(
    "act", [foreign_files.read_file, foreign_files.open_file, lambda path: foreign_files.replace(path, b"ours")]
)
def test_only_regular_files_are_read_and_replaced(strange: Path, act: Callable[[str], Any]) -> None:
    before = strange.lstat()
    with pytest.raises(OSError, match=r"is a link|symbolic links|no regular file|is a directory|No such device"):
        act(str(strange))
    assert os.path.samestat(before, strange.lstat())
    assert foreign_files.beginning(str(strange), 10) is None


def test_it_is_led_nowhere_by_a_directory(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    path = str(tmp_path / "link" / "file")
    for act in (
        foreign_files.read_file,
        foreign_files.unlink,
        foreign_files.remove,
        lambda path: foreign_files.replace(path, b"ours", may_make=lambda _: True),
    ):
        with pytest.raises(NotADirectoryError):
            act(path)
    assert (tmp_path / "real" / "file").read_text() == "mine"


def test_it_replaces_in_one_step_and_keeps_the_mode(tmp_path: Path) -> None:
    file = tmp_path / "new" / "file"
    with pytest.raises(FileNotFoundError):
        foreign_files.replace(str(file), b"one")
    foreign_files.replace(str(file), b"one", may_make=lambda path: path == str(file.parent))
    file.chmod(0o750)
    foreign_files.replace(str(file), b"two", durable=True)
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"two", 0o750)
    assert list(file.parent.iterdir()) == [file]
    with pytest.raises(OSError, match="over 2 bytes"):
        foreign_files.read_file(str(file), largest=2)


@pytest.mark.parametrize(
    "name",
    [".git", ".GIT", ".Git ", ".git.", ".g\u200cit", "\ufeff.git", ".gi\u0307t", "GIT~1", ".git::$DATA"],
)
def test_it_knows_git_under_every_name(name: str) -> None:
    assert is_dot_git(name) and is_of_repository(name)


@pytest.mark.parametrize("name", [".gitignore", "git", "x.git", "gît", "headers", "object"])
def test_it_takes_no_other_name_for_gits(name: str) -> None:
    assert not is_of_repository(name)
