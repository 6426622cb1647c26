"""Patterns of permission rules: texts with wildcards, and commands.

`*` and `?` stand for characters, and a backslash makes the next character an ordinary one. The pattern of a command is
a program and the beginning of its arguments, without wildcards but a last word `*`: further arguments may follow.

No line of shell is taken apart. An allowing rule needs a plain line, in which the shell changes nothing. A forbidding
rule also finds its program's name elsewhere. That is advice: only the sandbox limits what a program does.
"""

from __future__ import annotations

import re
import shlex
from enum import Enum
from functools import lru_cache
from pathlib import PurePath
from typing import Any, NamedTuple

import re2

LONGEST_LINE = 8_192  # characters; a longer line is not looked at
LONGEST_PATTERN = 1_000  # characters

BARE = r"\w@%+:,./^-"
ODD = r"\x00-\x1f\x7f\ud800-\udfff"  # what no text of one line holds
PLAIN = re.compile(rf"""(?:[={BARE}]|'[^'{ODD}]*'|"[^"$`\\!{ODD}]*"|[ \t])+""", re.ASCII)
SIGNS = re.compile(r"[;&|<>()$`]")  # they start other commands, and name variables, where they are not quoted
UNSEEN = re.compile(r"""[$`]|(?<![^\s'"])[A-Za-z_]\w*=""")  # it may start programs that the line does not name
QUOTING = re.compile(r"""\\\n|[\\'"]""")
BETWEEN = re.compile(rf"[^{BARE}]+")
SURROGATE = re.compile(r"[\ud800-\udfff]")  # text that has no encoding


class Match(Enum):
    """Whether a pattern matches."""

    NO = 0
    MAYBE = 1
    YES = 2


class CommandPattern(NamedTuple):
    """A program and its first arguments; `is_open`: others may follow. Without words it stands for every program."""

    words: list[str]
    is_open: bool


def covers(pattern: str, line: str) -> bool:
    """Return whether a line is plain, and starts a program as a pattern says.

    A line that names git's own directory is no match: git runs what is written there.
    """
    wanted, words = command_pattern(pattern), plain_words(line) if len(line) <= LONGEST_LINE else None
    if words is None or wanted is None:
        return False
    if any(".git" in PurePath(part).parts for word in words for part in word.lower().split("=")):
        return False
    return words[: len(wanted.words)] == wanted.words and (wanted.is_open or len(words) == len(wanted.words))


def finds(pattern: str, line: str) -> Match:
    """Return whether a line may start a program as a pattern says.

    It does if it begins so, in whichever directory the program is, or if it has signs of the shell, and the program's
    name anywhere. It may if it is plain and the name stands elsewhere, or if it can start what it does not name. A
    pattern that is no program with its first arguments may stand for whatever names its program.
    """
    wanted = command_pattern(pattern)
    if wanted is not None and not wanted.words:
        return Match.YES
    if len(line) > LONGEST_LINE:
        return Match.MAYBE
    words, named = plain_words(line), _programs(line)
    program, found = (literal(pattern.split()[0]), Match.MAYBE) if wanted is None else (wanted.words[0], Match.YES)
    if program is None:
        return Match.MAYBE
    if wanted is not None and words is not None:
        count = len(wanted.words)
        if wanted.words in (words[:count], [_name(words[0]), *words[1:count]]):
            return Match.YES
        named, found = named[1:], Match.YES if SIGNS.search(line) else Match.MAYBE
    if any(program in (each, _name(each)) for each in named):
        return found
    return Match.MAYBE if UNSEEN.search(line) else Match.NO


@lru_cache(maxsize=1024)
def command_pattern(pattern: str) -> CommandPattern | None:
    """Return the command of a pattern; None if it has a wildcard elsewhere than at its end, or is not plain."""
    is_open = pattern.split()[-1:] == ["*"]
    text = literal(pattern.strip()[:-1] if is_open else pattern)
    words = None if text is None else plain_words(text) if text.strip() else []
    return None if words is None else CommandPattern(words, is_open)


@lru_cache(maxsize=32)  # rules ask one after another about the line of one call
def plain_words(line: str) -> list[str] | None:
    """Return the words of a line that starts one program and that the shell changes in nothing; None for others."""
    if not PLAIN.fullmatch(line):
        return None
    words = shlex.split(line)
    return words if words and words[0] and "=" not in words[0] else None


@lru_cache(maxsize=32)
def _programs(line: str) -> list[str]:
    """Return everything in a line that may be the name of a program, in its order."""
    return [text for text in BETWEEN.split(QUOTING.sub("", line)) if text]


def _name(program: str) -> str:
    return PurePath(program).name


def escaped(text: str) -> str:
    """Return the pattern that matches a text letter by letter."""
    return re.sub(r"([\\*?])", r"\\\1", text)


def literal(pattern: str) -> str | None:
    """Return the only text that a pattern stands for; None if it stands for several."""
    if re.search(r"(?<!\\)(?:\\\\)*[*?]", pattern):
        return None
    return re.sub(r"\\(.)", r"\1", pattern, flags=re.DOTALL)


def wildcards(pattern: str, star: str, one: str) -> str:
    """Return the regular expression of a pattern, in which `*` and `?` become `star` and `one`."""
    pattern = SURROGATE.sub("\N{REPLACEMENT CHARACTER}", pattern)
    parts = []
    for found in re.finditer(r"\\(.)|(.)|\\$", pattern, re.DOTALL):
        if found[2] in ("*", "?"):
            parts.append(star if found[2] == "*" else one)
        else:
            parts.append(re2.escape(found[1] or found[2] or "\\"))
    return "".join(parts)


@lru_cache(maxsize=1024)
def compiled(expression: str) -> Any:
    """Return a regular expression of RE2, which takes time linear in the text."""
    options = re2.Options()
    options.log_errors = False
    return re2.compile(f"(?s:{expression})", options)
