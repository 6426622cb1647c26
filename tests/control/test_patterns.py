"""Patterns of commands: what an allowing rule covers, and what a forbidding one finds."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.control.permissions.patterns import LONGEST_LINE, Match, covers, escaped, finds, literal, plain_words

REFUSED = (
    "git status; rm x",
    "git status && rm x",
    "git status | rm x",
    "git status & rm x",
    "git status $(rm x)",
    'git status "$(rm x)"',
    "git status `rm x`",
    "git status <(rm x)",
    "git status > x",
    "git status < x",
    "git status\nrm x",
    "git status \\\nrm x",
    "git status\rrm x",
    "GIT_PAGER=rm git status",
    "sh -c 'git status'",
    "env git status",
    "(git status)",
    "git status $HOME",
    "git status *.py",
    "git status {a,b}",
    "git status ~/x",
    "git status # rm x",
    "git status 'a",
    "git status \\",
    "git status \x00",
    "git status \ud800",
    "git status .git/hooks/x",
    "git status --file=.git/config",
    "git -c core.pager=rm status",
    "/tmp/git status",
    "git",
    "git statusx",
    "",
    " ",
    f"git status {'x' * LONGEST_LINE}",
)


@pytest.mark.parametrize("line", REFUSED)
def test_a_rule_that_allows_a_command_allows_nothing_else(line: str) -> None:
    assert not covers("git status *", line)


@pytest.mark.parametrize(
    ("pattern", "line", "is_covered"),
    [
        ("git status *", "git status", True),
        ("git status *", "git\tstatus -s 'a; b'", True),
        ("git status *", 'git "status" x=1', True),
        ("*", "ls -l", True),
        ("*", "ls; rm x", False),
        ("*", "PATH=/tmp/x ls", False),
        ("npm run test", "npm run test", True),
        ("npm run test", "npm run test x", False),
        ("git commit -m 'fix it' *", "git commit -m 'fix it' -s", True),
        ("env CI=1 npm *", "env CI=1 npm test", True),
        ("cd x && make", "cd x && make", False),
        ("npm * --watch", "npm run --watch", False),
        ("ls -?", "ls -l", False),
    ],
)
def test_patterns_that_allow(pattern: str, line: str, is_covered: bool) -> None:
    assert covers(pattern, line) is is_covered


@pytest.mark.parametrize(
    ("pattern", "line", "match"),
    [
        ("rm *", "rm x", Match.YES),
        ("rm", "rm x", Match.YES),
        ("rm *", "/bin/rm x", Match.YES),
        ("rm *", "r''m x", Match.YES),
        ("rm *", "\\rm x", Match.YES),
        ("rm *", "r\\\nm x", Match.YES),
        ("rm *", "ls && /bin/rm x", Match.YES),
        ("rm *", "ls;rm x", Match.YES),
        ("rm *", "ls\nrm x", Match.YES),
        ("rm *", "echo `rm x`", Match.YES),
        ("rm *", "A=$(rm x) ls", Match.YES),
        ("rm *", "bash -lc 'ls && rm x'", Match.YES),
        ("rm *", "cat <<E | sh\nrm x\nE", Match.YES),
        ("rm *", "ls # rm x", Match.YES),
        ("rm *", "rm *", Match.YES),
        ("git push *", "cd x && git status", Match.YES),
        ("*", "ls; $X", Match.YES),
        ("rm *", "sudo -u root rm x", Match.MAYBE),
        ("rm *", "xargs rm", Match.MAYBE),
        ("rm *", "sh -c 'rm x'", Match.MAYBE),
        ("rm *", "git rm x", Match.MAYBE),
        ("rm *", "env GIT_SSH_COMMAND=rm git fetch", Match.MAYBE),
        ("rm *", "env 'LD_PRELOAD=/tmp/x y' ls", Match.MAYBE),
        ("rm *", "PATH=/tmp/x git status", Match.MAYBE),
        ("rm *", "$X x", Match.MAYBE),
        ("rm *", "`x` y", Match.MAYBE),
        ("rm *", "x" * (LONGEST_LINE + 1), Match.MAYBE),
        ("git * push *", "git status", Match.MAYBE),
        ("git * push *", "ls; git status", Match.MAYBE),
        ("r? *", "ls", Match.MAYBE),
        ("git push *", "git status", Match.NO),
        ("git push *", "git -C x push", Match.NO),
        ("git * push *", "ls", Match.NO),
        ("/opt/x", "x", Match.NO),
        ("rm *", "rmdir x", Match.NO),
        ("rm *", "ls | head > x", Match.NO),
        ("rm *", "", Match.NO),
    ],
)
def test_patterns_that_forbid(pattern: str, line: str, match: Match) -> None:
    assert finds(pattern, line) is match


PIECES = st.sampled_from(
    ["git", "status", "rm", "x", " ", " ", "\t", "\n", ";", "&", "|", "(", ")", "<", ">", "'", '"', "\\", "$", "`", "{",
     "}", "*", "?", "[", "]", "#", "!", "~", "=", "sh", "-c", "sudo", "\x00", "\ud800", "é", "eval"]
)  # fmt: skip
LINES = st.lists(PIECES, max_size=24).map("".join) | st.text(max_size=60)
SIGNS = st.sampled_from(["\n", *";&|<>()$`*?[]{}#!~\\"])


@given(LINES, LINES)
def test_every_line_and_pattern_has_an_answer(pattern: str, line: str) -> None:
    assert isinstance(finds(pattern, line), Match)
    assert isinstance(covers(pattern, line), bool)


@given(LINES)
def test_what_is_plain_is_what_the_shell_reads(line: str) -> None:
    words = plain_words(line)
    assert words is None or (shlex.split(line) == words and "=" not in words[0])


@given(LINES)
def test_what_always_writes_allows_that_line_alone(line: str) -> None:
    assert literal(escaped(line)) == line
    if covers("*", line):
        assert covers(escaped(line), line)
        assert not covers(escaped(line), f"{line} more")
        assert finds(escaped(line), f"{line} more") is Match.YES


@given(LINES, SIGNS, LINES)
def test_no_rule_allows_a_line_with_a_sign_of_the_shell(before: str, sign: str, after: str) -> None:
    line = f"{before} {sign} {after}"
    if not {"'", '"'} & set(line):
        assert not covers("*", line)


@given(LINES, LINES, st.sampled_from([";", "\n", "&&", "||", "|", "&"]))
def test_a_denied_program_is_found_before_and_behind_any_other(before: str, after: str, between: str) -> None:
    for line in (f"rm x {between} {after}", f"{before} {between} rm x"):
        assert finds("rm *", line) is Match.YES
