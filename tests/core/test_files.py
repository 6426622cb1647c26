"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nexus.core import files


def test_it_replaces_a_file_in_one_step(tmp_path: Path) -> None:
    file = tmp_path / "place"
    files.replace(file, b"old", mode=0o644)
    with file.open("rb") as reader:
        files.replace(file, b"new", durable=True)
        assert reader.read() == b"old"  # who reads meanwhile reads on in the old one
    assert file.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["place"]  # noqa: PTH208


def test_it_keeps_a_file_to_its_owner_unless_told(tmp_path: Path) -> None:
    file = tmp_path / "place"
    files.replace(file, b"x", mode=0o644)
    assert file.stat().st_mode & 0o777 == 0o644
    files.replace(file, b"x")
    assert file.stat().st_mode & 0o777 == 0o600


def test_it_leaves_the_old_file_and_no_draft_where_it_fails(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "full").touch()
    with pytest.raises(OSError):
        files.replace(tmp_path / "place", b"a secret")
    assert os.listdir(tmp_path) == ["place"]  # noqa: PTH208


def test_it_publishes_under_a_name_once(tmp_path: Path) -> None:
    file = tmp_path / "place"
    for content in (b"first", b"second"):
        with files.draft(file) as draft:
            draft.write_bytes(content)
            if content == b"first":
                files.publish(draft, file)
            else:
                with pytest.raises(FileExistsError):
                    files.publish(draft, file)
    assert file.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["place"]  # noqa: PTH208
