"""`nexus rpc` on its command line: what it takes, and what its help says."""

from __future__ import annotations

import pytest

from control.management.commands.rpc import EXIT_CODES, Command

VERBS = "list create destroy send cancel status messages logs compact runners detect discover shutdown".split()


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["create"],
        ["send", "x"],
        ["list", "extra"],
        ["list", "--json"],
        ["send", "x", "y", "--timeout", "nan"],
        ["send", "x", "y", "--timeout", "-1"],
        ["detect", "--port", "0"],
        ["detect", "--port", "65536"],
        ["detect", "--port", "abc"],
        ["discover", "--ports", "1-"],
        ["create", "x", "--cwd", ""],
    ],
)
def test_a_wrong_command_line_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        Command().create_parser("nexus", "rpc").parse_args(arguments)
    said = capsys.readouterr().err
    assert ended.value.code == 2 and said.startswith("Error: ") and said.endswith("See --help.\n")


def test_it_waits_300_seconds_and_lists_without_a_verb() -> None:
    parser = Command().create_parser("nexus", "rpc")
    assert parser.parse_args(["send", "ana", "Hello"]).timeout == 300
    assert parser.parse_args([]).verb == "list"


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_shows_examples_and_exit_codes(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        Command().create_parser("nexus", "rpc").parse_args([verb, "--help"])
    said = capsys.readouterr().out
    assert f"nexus rpc {verb}" in said and EXIT_CODES in said


def test_its_verbs_are_all_tested() -> None:
    assert [verb.name for verb in Command().verbs()] == VERBS
