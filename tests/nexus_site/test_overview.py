"""What `nexus` says of itself: its commands in groups, its version, and the nearest to what is mistyped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nexus.core import command_list
from nexus.core.cli import CommandGroup
from tests.acceptance.processes import ROOT, nexus

SCREEN = 52  # lines, 100 columns wide


@pytest.mark.usefixtures("starts_processes")
def test_it_lists_our_commands_alone_each_in_a_line(tmp_path: Path) -> None:
    home = tmp_path / "home"
    said = nexus(home, "--help")
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout == nexus(home).stdout == nexus(home, "help").stdout
    lines = said.stdout.splitlines()
    assert [line for line in lines if line in set(CommandGroup)] == list(CommandGroup)
    listed = [found[1] for line in lines if (found := re.match(r"  ([a-z-]+) {2,}\S", line))]
    assert sorted(listed) == sorted(command_list.names()) and {"serve", "dead-letters", "agents"} <= set(listed)
    assert "makemigrations" not in said.stdout and max(map(len, lines)) <= 110
    assert not home.exists()


@pytest.mark.usefixtures("starts_processes")
def test_it_tells_the_version_that_the_changelog_tells(tmp_path: Path) -> None:
    released = re.search(r"^## \[(\d\S+)\] - ", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert released and nexus(tmp_path, "--version").stdout == f"nexus {released[1]}\n"


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["agnets"], "There is no command 'agnets'; did you mean `nexus agents`?"),
        (["dead-leters"], "did you mean `nexus dead-letters`?"),
        (["zzz"], "There is no command 'zzz'; `nexus --help` lists them."),
        (["--home", "/x", "status"], "--home comes after the command"),
    ],
)
def test_it_says_that_a_command_is_unknown(tmp_path: Path, arguments: list[str], told: str) -> None:
    said = nexus(tmp_path, *arguments)
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr.startswith("[nexus] CONFIG_ERROR: ") and told in said.stderr


@pytest.mark.parametrize("name", command_list.names())
def test_it_shows_options_and_examples_on_a_screen_and_the_settings_when_asked(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    command = command_list.commands()[name]
    parser = command.create_parser("nexus", name)
    shown = parser.format_help()
    assert 0 < shown.index("options:") < shown.index("examples:") < shown.index("exit codes")
    assert len(shown.splitlines()) <= SCREEN
    with pytest.raises(SystemExit):
        parser.parse_args(["--help-all"])
    everything = capsys.readouterr().out
    assert everything.startswith(shown) and "\nsettings (a flag overrides" in everything
    assert command_list.summary(command.help) in " ".join(shown.split())


@pytest.mark.usefixtures("starts_processes")
def test_it_shows_the_help_of_a_command_and_of_a_verb(tmp_path: Path) -> None:
    assert nexus(tmp_path, "help", "agents").stdout == nexus(tmp_path, "agents", "--help").stdout
    shown = nexus(tmp_path, "agents", "create", "--help").stdout
    assert "--capability" in shown and "nexus agents create builder" in shown and "exit codes" in shown
    assert "--busy-timeout-ms" not in shown
    refused = nexus(tmp_path, "agents", "crate", "x")
    assert refused.returncode == 1 and "'crate'" in refused.stderr and "create" in refused.stderr
