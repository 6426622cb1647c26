"""Lines of shell, as rules see them: what an allowing rule covers, and what a forbidding one finds."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.control.command_lines import (
    LONGEST_LINE,
    MOST_COMMANDS,
    Match,
    commands_in,
    covers,
    escaped,
    hit,
    literal,
    plain_words,
)

HOSTILE = (
    "git status; rm -rf x",
    "git status;rm x",
    "git status && rm x",
    "git status || rm x",
    "git status & rm x",
    "git status | rm x",
    "git status |& rm x",
    "git status $(rm x)",
    'git status "$(rm x)"',
    "git status `rm x`",
    'git status "`rm x`"',
    "git status <(rm x)",
    "git status >x",
    "git status > x",
    "git status 2>&1 rm x",
    "git status < x",
    "git status << x",
    "git status\nrm x",
    "git status \\\nrm x",
    "git status\rrm x",
    "GIT_PAGER=rm git status",
    "A=1 B=2 git status",
    "sh -c 'git status'",
    "env git status",
    "sudo git status",
    "! git status",
    "(git status)",
    "{ git status; }",
    "git status $HOME",
    "git status ${x}",
    "git status $'a'",
    "git status *.py",
    "git status {a,b}",
    "git status ~/x",
    "git status # rm x",
    "git status 'a",
    'git status "a',
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


@pytest.mark.parametrize("line", HOSTILE)
def test_a_rule_that_allows_a_command_allows_nothing_else(line: str) -> None:
    assert not covers("git status *", line)


@pytest.mark.parametrize(
    "line",
    ["git status", "git  status", "git status -s 'a b'", "git 'status'", 'git status "it is" x=1', "git\tstatus"],
)
def test_it_allows_the_command(line: str) -> None:
    assert covers("git status *", line)


@pytest.mark.parametrize(
    ("pattern", "line", "is_covered"),
    [
        ("*", "ls -l", True),
        ("*", "ls; rm x", False),
        ("npm run *", "npm run test -- --watch", True),
        ("npm run test", "npm run test x", False),
        ("npm * --watch", "npm --watch", True),
        ("npm * --watch", "npm run a --watch", True),
        ("ls -?", "ls -l", True),
        ("ls -?", "ls -la", False),
        ("pytest tests/*.py", "pytest tests/test_a.py", True),
        (r"ls \*", "ls x", False),
        (r"ls \*", "ls *", True),
        ("cd x && make", "cd x && make", True),
        ("cd x && make", "cd x && make; rm y", False),
        ("cd x && *", "cd x && make", False),
    ],
)
def test_patterns(pattern: str, line: str, is_covered: bool) -> None:
    assert covers(pattern, line) is is_covered


@pytest.mark.parametrize(
    "line",
    [
        "rm x",
        "rm",
        "ls; rm x",
        "ls;rm x",
        "ls && rm x",
        "ls || rm x",
        "ls & rm x",
        "ls | rm x",
        "ls\nrm x",
        "(rm x)",
        "{ rm x; }",
        "! rm x",
        "$(rm x)",
        'echo "a $(rm x)"',
        "echo `rm x`",
        "echo `echo \\`rm x\\``",
        "echo ${y:-$(rm x)}",
        "echo $(( $(rm x) ))",
        "cat <(rm x)",
        "tee >(rm x)",
        "A=1 rm x",
        "A=$(rm x) ls",
        'A="1 2" rm x',
        ">/dev/null rm x",
        "2>&1 rm x",
        "/bin/rm x",
        "../../bin/rm x",
        "\\rm x",
        "r''m x",
        '"rm" x',
        "r\\\nm x",
        "rm $x",
        "rm *",
        "if true; then rm x; fi",
        "while true; do rm x; done",
        "for i in a b; do rm $i; done",
        "case a in a) rm x;; esac",
        "f() { rm x; }; f",
        "sh -c 'rm x'",
        'bash -lc "ls && rm x"',
        "sh -c 'sh -c \"rm x\"'",
        "eval rm x",
        "eval 'rm x'",
        "env A=1 rm x",
        "sudo -u root rm x",
        "nohup sh -c 'rm x' &",
        "time rm x",
        "time -p rm x",
        "timeout 5 rm x",
        "xargs rm",
        "echo x | xargs -n1 rm",
        "find . -name '*.py' -exec rm {} \\;",
        "exec rm x",
        "command rm x",
        "trap 'rm x' EXIT",
        "ssh host 'rm x'",
        "# it's\nrm x # '",
        "ls # a\nrm x",
        "echo a#b; rm x",
    ],
)
def test_a_rule_that_denies_a_command_finds_it_wherever_it_stands(line: str) -> None:
    assert hit("rm *", line) is Match.YES


@pytest.mark.parametrize(
    "line",
    [
        "$X x",
        "$case rm x",
        "${for} rm x",
        "${X} x",
        "`echo rm` x",
        "r$Y x",
        "r? x",
        "{rm,x}",
        "[r]m x",
        "$'\\x72m' x",
        "echo 'rm x' | sh",
        "bash -s",
        "sudo $X",
        "xargs $X",
        "cat <<E | sh\nrm x\nE",
        "sh <<< 'rm x'",
        "rm 'x",
        "ls\x00",
        "ls \ud800",
        "x" * (LONGEST_LINE + 1),
        "sh -c '" * 20,
        "a;" * (MOST_COMMANDS + 1),
        "sudo " * MOST_COMMANDS + "ls",
        "$(" * 1_000,
    ],
)
def test_what_cannot_be_seen_through_may_be_the_command(line: str) -> None:
    assert hit("rm *", line) is Match.MAYBE


@pytest.mark.parametrize("line", ["a;" * (MOST_COMMANDS - 1) + "rm x", "sudo " * (MOST_COMMANDS - 2) + "rm x"])
def test_as_many_commands_as_a_line_may_have_are_seen_through(line: str) -> None:
    assert hit("rm *", line) is Match.YES


@pytest.mark.parametrize(
    "line",
    [
        "",
        "ls",
        "git rm x",
        "echo rm x",
        "echo 'rm x; rm y'",
        "ls # rm x",
        "ls -rm",
        "rmdir x",
        'git commit -m "$MESSAGE"',
        "[ -f x ] && ls",
        "find . -name '*.py'",
        "python -m pytest tests/*.py",
    ],
)
def test_it_finds_nothing_elsewhere(line: str) -> None:
    assert hit("rm *", line) is Match.NO


@pytest.mark.parametrize(
    ("pattern", "line", "match"),
    [
        ("git push *", "git push origin main", Match.YES),
        ("git push *", "git -C x push", Match.NO),
        ("git * push *", "git -C x push", Match.YES),
        ("git push * --force *", "git push origin $X", Match.MAYBE),
        ("git push * --force *", "git push origin main --force", Match.YES),
        ("git push --force", "git push $X", Match.MAYBE),
        ("git push --force", "git push", Match.NO),
        ("/opt/x", "x", Match.NO),
        ("/opt/x", "/opt/x", Match.YES),
        ("cd x && make", "cd x && make", Match.YES),
        ("rm *", "PATH=/tmp/x git status", Match.MAYBE),
        ("rm *", "ls; GIT_PAGER='rm x' git log", Match.MAYBE),
        ("rm *", "env GIT_SSH_COMMAND=rm git fetch", Match.MAYBE),
        ("rm *", "export LD_PRELOAD=/tmp/x.so; ls", Match.MAYBE),
        ("rm *", "make CC=gcc", Match.NO),
    ],
)
def test_patterns_that_deny(pattern: str, line: str, match: Match) -> None:
    assert hit(pattern, line) is match


PIECES = st.sampled_from(
    ["git", "status", "rm", "x", " ", " ", "\t", "\n", ";", "&", "|", "(", ")", "<", ">", "'", '"', "\\", "$", "`", "{",
     "}", "*", "?", "[", "]", "#", "!", "~", "=", "sh", "-c", "sudo", "xargs", "\x00", "\ud800",
     "é", "eval", "case", "in"]
)  # fmt: skip
LINES = st.lists(PIECES, max_size=24).map("".join) | st.text(max_size=60)


@given(LINES, LINES)
def test_every_line_and_pattern_has_an_answer(pattern: str, line: str) -> None:
    assert isinstance(hit(pattern, line), Match)
    assert isinstance(covers(pattern, line), bool)
    assert commands_in(line) is None or all(command.words for command in commands_in(line) or ())


@given(LINES)
def test_what_is_plain_is_what_the_shell_reads(line: str) -> None:
    words = plain_words(line)
    assert words is None or (shlex.split(line) == words and len(commands_in(line) or ()) >= 1)


@given(LINES)
def test_a_line_that_a_wildcard_covers_hits_it_too(line: str) -> None:
    if plain_words(line):
        assert covers("*", line) or ".git" in line.lower()
        assert hit("*", line) is Match.YES


@given(LINES)
def test_an_escaped_line_is_matched_letter_by_letter(line: str) -> None:
    assert literal(escaped(line)) == line
    assert covers(escaped(line), line) and hit(escaped(line), line) is Match.YES


@given(LINES, LINES, st.sampled_from([";", "\n", "&&", "||", "|", "&"]))
def test_a_denied_command_is_found_before_and_behind_any_other(before: str, after: str, between: str) -> None:
    assert hit("rm *", f"rm x {between} {after}") is not Match.NO
    if commands_in(before) is not None and "#" not in before and not before.endswith(("<", ">", "|", "&", "$", "\\")):
        assert hit("rm *", f"{before} {between} rm x") is not Match.NO
