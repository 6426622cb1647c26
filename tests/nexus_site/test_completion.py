"""A shell completes command lines from the commands' own parsers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.processes import nexus

pytestmark = pytest.mark.usefixtures("starts_processes")


@pytest.mark.parametrize(
    ("typed", "offered", "others"),
    [
        ("nexus se", {"send", "serve", "settings", "setup"}, {"agents"}),
        ("nexus agents ", {"list", "create", "issue-keys"}, {"serve"}),
        ("nexus send --ro", {"--role"}, {"--to"}),
        ("nexus completion ", {"bash", "zsh", "fish"}, set()),
    ],
)
def test_it_offers_what_may_come_next(tmp_path: Path, typed: str, offered: set[str], others: set[str]) -> None:
    said = tmp_path / "said"
    shell = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": " ", "_ARGCOMPLETE_SUPPRESS_SPACE": "1"}
    line = {"COMP_LINE": typed, "COMP_POINT": str(len(typed)), "COMP_TYPE": "9"}
    nexus(tmp_path / "home", **shell, **line, _ARGCOMPLETE_STDOUT_FILENAME=str(said))
    found = set(said.read_text().split())
    assert offered <= found and not others & found
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_it_prints_the_script_of_a_shell(tmp_path: Path, shell: str) -> None:
    script = nexus(tmp_path, "completion", shell)
    assert script.returncode == 0 and "nexus" in script.stdout and "_ARGCOMPLETE" in script.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script.stdout, text=True, check=True)
