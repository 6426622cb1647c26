"""`nexus reservations`: what it prints, and what it exits with."""

from __future__ import annotations

import json

import pytest
from django.core.management import call_command

from tests.reservations.conftest import Project


def nexus(capsys: pytest.CaptureFixture[str], project: Project, *arguments: str) -> tuple[int, str]:
    """Run `nexus reservations`; its exit code, and all that it printed."""
    place = [] if "end" in arguments else ["--project", str(project.root)]
    with pytest.raises(SystemExit) as ended:
        call_command("reservations", *arguments, *place)
    shown = capsys.readouterr()
    return int(ended.value.code or 0), shown.out + shown.err


def test_it_reserves_lists_shows_and_releases(shop: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert nexus(capsys, shop, "list")[0] == 3
    code, told = nexus(capsys, shop, "reserve", "src/", "--agent", "ann", "--reason", "the parser", "--seconds", "60")
    assert code == 0 and "/src/" in told
    assert all(word in nexus(capsys, shop, "list")[1] for word in ("/src/", "ann", "the parser", "exclusive"))
    assert nexus(capsys, shop, "who", "docs/")[0] == 3
    code, told = nexus(capsys, shop, "reserve", "src/a.py", "--agent", "bob")
    assert code == 1 and "FILES_RESERVED" in told and "'ann'" in told
    assert "You still hold" in nexus(capsys, shop, "release", "src/a.py", "--agent", "ann")[1]
    code, told = nexus(capsys, shop, "release", "--agent", "ann", "--json")
    assert code == 0 and json.loads(told)["released"][0]["pattern"] == "/src/"
    assert "had it last" in nexus(capsys, shop, "who", "src/a.py")[1]
    assert "/src/" in nexus(capsys, shop, "list", "--ended")[1]


def test_it_extends_and_ends(shop: Project, capsys: pytest.CaptureFixture[str]) -> None:
    [held] = shop.reserve("ann", "src/")
    assert nexus(capsys, shop, "extend", "src/", "--agent", "ann", "--seconds", "3600")[0] == 0
    code, told = nexus(capsys, shop, "end", held, "--reason", "left behind", "--yes")
    assert code == 0 and "released" in told
    code, told = nexus(capsys, shop, "end", held, "--yes")
    assert code == 1 and "INVALID_TRANSITION" in told


def test_it_says_in_words_of_the_terminal_what_helps(shop: Project, capsys: pytest.CaptureFixture[str]) -> None:
    shop.reserve("ann", "src/")
    told = nexus(capsys, shop, "reserve", "src/", "--agent", "bob")[1]
    assert "nexus reservations reserve --wait" in told and "timeout_seconds" not in told
