"""The architecture page: its picture is what the import linter checks, and the files it names are there."""

from __future__ import annotations

import re

import pytest

from docs import make_picture

ROOT = make_picture.ROOT


def test_its_picture_is_what_the_contracts_say() -> None:
    assert make_picture.main(["--check"]) == 0, "run `python -m docs.make_picture`"


def test_its_picture_shows_every_room() -> None:
    shown = re.findall(r'"([\w.]+)"\]', make_picture.picture(make_picture.layers()))
    below = {f"nexus.{each.name}" for each in (ROOT / "nexus").iterdir() if (each / "__init__.py").is_file()}
    assert len(shown) == len(set(shown))
    assert set(shown) == below | {"coordination", "inbox", "handoffs", "mcp_bridge", "nexus_site"}


def test_a_page_without_a_place_for_it_is_refused() -> None:
    with pytest.raises(ValueError, match="0 places"):
        make_picture.with_picture("# Architecture\n")


def test_the_files_it_names_are_there() -> None:
    named = set(re.findall(r"`((?:\w+/)+(?:\w+\.\w+)?)`", make_picture.PAGE.read_text()))
    assert len(named) > 20
    assert {path for path in named if not (ROOT / path).exists()} == set()
