"""The ratchet of CI: numbers that may only fall."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("runs_git")

CI = Path(__file__).parents[2] / ".ci"
FILES = {
    "shop/config.py": "size: int = setting(1, 'Size.')\n",
    "shop/operations.py": "import os\n\n@operation(Params)\ndef sell(): ...\n",
    "shop/urls.py": "from nexus.core.contributions import Page\nPAGES = (Page(1, 1, 1), Page(2, 2, 2), Page(3))\n",
    "shop/migrations/__init__.py": "",
    "shop/migrations/0001_initial.py": "\n",
    "tests/counts.toml": "[quick]\ngit = { tests = 1, processes = 7 }\nhub = { tests = 1, processes = 2 }\n",
    "tests/test_shop.py": "def test(): ...\n",
    "docs/README.md": "# The shop\n",
    "docs/explanation/glossary.md": "\n| **cart** |\n",
}
NUMBERS = {
    "lines": 8,
    "test_lines": 1,
    "migrations": 1,
    "settings": 1,
    "operations": 1,
    "pages": 2,
    "doc_words": 6,
    "glossary_terms": 1,
    "quick_processes": 9,
}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A small repository that stands at its limits."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / ".ci").mkdir()
    shutil.copy(CI / "ratchet.py", tmp_path / ".ci")
    limit(tmp_path, **NUMBERS)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "shop", "tests", "docs")
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True)


def limit(folder: Path, **numbers: int) -> None:
    lines = [f"{name} = {number}  # why\n" for name, number in numbers.items()]
    (folder / ".ci" / "ratchet.toml").write_text("".join(lines))


def limits(folder: Path) -> dict[str, int]:
    return tomllib.loads((folder / ".ci" / "ratchet.toml").read_text())


def ratchet(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, ".ci/ratchet.py", *arguments]
    return subprocess.run(program, cwd=folder, capture_output=True, text=True)


def test_it_counts_what_it_limits(shop: Path) -> None:
    ran = ratchet(shop)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert limits(CI.parent).keys() == NUMBERS.keys()


def test_it_fails_where_a_number_is_over_its_limit_and_says_by_how_much(shop: Path) -> None:
    limit(shop, **{**NUMBERS, "pages": 0})
    ran = ratchet(shop)
    assert ran.returncode == 1
    assert "pages: 2, which is 2 over its limit" in ran.stderr and "which user it serves" in ran.stderr


def test_it_says_which_limits_can_be_lowered_and_lowers_them(shop: Path) -> None:
    limit(shop, **{**NUMBERS, "settings": 5, "pages": 1})
    assert "settings: 1, limit 5." in ratchet(shop).stdout
    assert ratchet(shop, "--lower").returncode == 0
    assert limits(shop) == {**NUMBERS, "pages": 1}, "it raises none"
