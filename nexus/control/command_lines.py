"""Lines of shell, as rules of permissions see them: which commands a line starts, and which patterns they match.

A pattern is words. The word `*` stands for any number of words, `*` and `?` inside a word for characters of it, and a
backslash makes the next character an ordinary one. The program's name matches with and without its directory.

An allowing rule needs a line that starts one program and that the shell changes in nothing; every other line matches
only letter by letter. A forbidding rule looks for its command wherever it stands in the line: after `;`, `&&` or a
pipe, in `$(…)`, behind `sudo` or in `sh -c`. Whatever cannot be seen through counts as a possible match.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, lru_cache
from itertools import zip_longest
from pathlib import PurePath
from typing import Any

import re2

LONGEST_LINE = 8_192  # characters; a longer line is not walked
DEEPEST = 8  # levels of substitutions, and of lines in the words of others
MOST_COMMANDS = 200  # of a line, with those that the words of a command may start: each meets each rule
LONGEST_PATTERN = 1_000  # characters

BARE = r"[\w@%+=:,./^-]"
ODD = r"\x00-\x1f\x7f\ud800-\udfff"  # what no text of one line holds
PLAIN = re.compile(rf"""(?:{BARE}|'[^'{ODD}]*'|"[^"$`\\!{ODD}]*"|[ \t])+""", re.ASCII)
SURROGATE = re.compile(r"[\ud800-\udfff]")  # text that has no encoding
SCRIPT = re.compile(r"[\s;&|<>()$`]")
BRACES = re.compile(r"\{(?!\s)[^{}\n]*(?:,|\.\.)")
TEST = re.compile(r"\[\[?(?=\s|$)")
BACKTICKS = re.compile(r"(?:[^`\\]|\\.)*", re.DOTALL)
REDIRECTION = re.compile(r"[<>&|!]*[ \t]*")
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[.*\])?\+?=")
SHELLS = frozenset(("sh", "ash", "bash", "dash", "ksh", "mksh", "zsh", "fish", "rbash"))
# Programs that start the program that their words name. A script may stand in one of them, too.
STARTERS = SHELLS | frozenset(
    """
    . source busybox builtin chroot chrt command coproc dbus-run-session doas entr env eval exec fakeroot fd find flock
    ionice nice nohup nsenter parallel pkexec prlimit proxychains rlwrap runuser script setpriv setsid ssh stdbuf strace
    su sudo systemd-run taskset time timeout toybox trap unbuffer unshare watch watchexec xargs xvfb-run
    """.split()
)
LINES = SHELLS | frozenset(  # of these, a word may be a line of shell
    "doas entr env eval flock parallel runuser script ssh su sudo systemd-run trap watch watchexec".split()
)
FROM_INPUT = frozenset(("xargs", "parallel"))  # they add words from their input
SETTERS = STARTERS | frozenset("declare export local readonly typeset".split())
HEADS = frozenset("! { } if then else elif fi while until do done".split())  # a command follows
HEADERS = frozenset("for select case esac function".split())  # no command follows at once


class Match(Enum):
    """Whether a pattern matches."""

    NO = 0
    MAYBE = 1
    YES = 2


@dataclass
class Word:
    """A word of a command. The shell may make others of one that is not `known`."""

    text: str = ""
    known: bool = True
    quoted: bool = False


@dataclass(frozen=True)
class Command:
    """A command of a line, as its words and as the text that patterns match."""

    words: tuple[Word, ...]

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The words as one text; a second one has the program's name without its directory."""
        text = _joined([word.text if word.known else "\1" for word in self.words])
        name = _name(self.words[0])
        return (text, name + text[len(self.words[0].text) :]) if self.words[0].known and name else (text,)


UNKNOWN = Word(known=False)


class Unreadable(Exception):
    """A line that cannot be taken apart."""


def hit(pattern: str, line: str) -> Match:
    """Return whether a command that matches a pattern stands anywhere in a line."""
    if line == literal(pattern):
        return Match.YES
    commands = commands_in(line) if len(line) <= LONGEST_LINE else None  # the cache keeps no long line
    if commands is None:
        return Match.MAYBE
    return max((_match(pattern, command) for command in commands), key=lambda match: match.value, default=Match.NO)


def covers(pattern: str, line: str) -> bool:
    """Return whether a line is a pattern letter by letter, or starts one program, as it matches a pattern.

    A line that names git's own directory is no match: git runs what is written there.
    """
    if line == literal(pattern):
        return True
    words = plain_words(line)
    if not words or any(".git" in PurePath(part).parts for word in words for part in word.lower().split("=")):
        return False
    return _expression(pattern).fullmatch(_joined(words)) is not None


def plain_words(line: str) -> list[str] | None:
    """Return the words of a line that starts one program and that the shell changes in nothing; None for others."""
    if len(line) > LONGEST_LINE or not PLAIN.fullmatch(line):
        return None
    words = shlex.split(line)
    return words if words and words[0] and not ASSIGNMENT.match(words[0]) and words[0] not in HEADS | HEADERS else None


@lru_cache(maxsize=32)  # up to 2 MB each: rules ask one after another about the line of one call
def commands_in(line: str) -> tuple[Command, ...] | None:
    """Return every command in a line, with those that its commands start; None for a line that cannot be read."""
    if len(line) > LONGEST_LINE or SURROGATE.search(line):
        return None
    found: list[Command] = []
    try:
        _Reader(line, found, 0).read()
    except Unreadable:
        return None
    return tuple(found)


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


@lru_cache(maxsize=1024)
def _expression(pattern: str) -> Any:
    words = pattern.split()
    return compiled("".join("(?:[^\0]*\0)*" if word == "*" else _word(word) + "\0" for word in words))


@lru_cache(maxsize=1024)
def _word(pattern: str) -> str:
    return wildcards(pattern, "[^\0\1]*", "[^\0\1]")


def _joined(words: Sequence[str]) -> str:
    return "".join(f"{word}\0" for word in words)


def _match(pattern: str, command: Command) -> Match:
    expression = _expression(pattern)
    if any(expression.fullmatch(text) for text in command.texts):
        return Match.YES
    return Match.MAYBE if _may_match(pattern, command) else Match.NO


def _may_match(pattern: str, command: Command) -> bool:
    """Return whether a command may match once the shell has made words of those that are not known."""
    unknown = next((number for number, word in enumerate(command.words) if not word.known), None)
    if unknown is None:
        return False
    for wanted, word in zip_longest(pattern.split(), command.words[:unknown]):
        if word is None or wanted == "*":
            return True
        names = {word.text, _name(word)} if word is command.words[0] else {word.text}
        if wanted is None or not any(compiled(_word(wanted)).fullmatch(name) for name in names):
            return False
    return True


@dataclass
class _Reader:
    """Reads a line as a shell does, and appends every command that it finds."""

    line: str
    found: list[Command]
    depth: int
    at: int = 0
    words: list[Word] = field(default_factory=list)
    word: Word | None = None

    def __post_init__(self) -> None:
        if self.depth > DEEPEST:
            raise Unreadable

    def read(self, until: str = "") -> None:
        """Read to the end of the line, or to the parenthesis that closes a substitution. Raises Unreadable."""
        level = 0
        while self.at < len(self.line):
            character = self.line[self.at]
            self.at += 1
            if character == ")" and until and level == 0:
                self._end_command()
                return
            level += (character == "(") - (character == ")")
            self._take(character)
        if until:
            raise Unreadable
        self._end_command()

    def _take(self, character: str) -> None:
        match character:
            case " " | "\t":
                self._end_word()
            case "\n" | ";" | "&" | "|" | "(" | ")":
                self._end_command()
            case "<" | ">":
                self._redirection(character)
            case "#" if self.word is None:
                end = self.line.find("\n", self.at)
                self.at = len(self.line) if end < 0 else end
            case "'":
                self._quoted(self._until("'"))
            case '"':
                self._in_double_quotes()
            case "\\":
                self._escape()
            case "$" | "`":
                self._expansion(character)
            case _ if character < " " or character == "\x7f":
                raise Unreadable  # shells differ in what ends a word
            case _:
                self._add(character, known=not self._expands(character))

    def _expands(self, character: str) -> bool:
        """Return whether the shell may make other words of an unquoted character."""
        if character == "{":
            return BRACES.match(self.line, self.at - 1) is not None
        if character == "[" and self.word is None:
            return TEST.match(self.line, self.at - 1) is None
        return character in "*?["

    def _redirection(self, character: str) -> None:
        if self.line.startswith("(", self.at):  # of a process
            self.at += 1
            self._substitution()
            return
        if character == "<" and self.line.startswith("<", self.at):
            raise Unreadable  # lines of text follow, which their program may run
        if self.word is not None and not self.word.text.isdigit():
            self._end_word()
        self.word = None  # the number of a file, if any
        rest = REDIRECTION.match(self.line, self.at)
        assert rest is not None
        self.at = rest.end()
        before, self.words = self.words, []
        while self.at < len(self.line) and self.line[self.at] not in " \t\n;&|()<>":
            self.at += 1
            self._take(self.line[self.at - 1])
        self.word, self.words = None, before

    def _in_double_quotes(self) -> None:
        self._quoted("")
        while self.at < len(self.line):
            character = self.line[self.at]
            self.at += 1
            if character == '"':
                return
            if character in "$`":
                self._expansion(character)
            elif character == "\\" and self.line[self.at : self.at + 1] in ("$", "`", '"', "\\", "\n"):
                self._escape()
            else:
                self._quoted(character)
        raise Unreadable

    def _escape(self) -> None:
        if self.at == len(self.line):
            raise Unreadable
        if self.line[self.at] != "\n":
            self._quoted(self.line[self.at])
        self.at += 1

    def _expansion(self, character: str) -> None:
        if character == "`":
            script = BACKTICKS.match(self.line, self.at)
            assert script is not None
            self.at = script.end() + 1
            if self.at > len(self.line):
                raise Unreadable
            _Reader(re.sub(r"\\([$`\\])", r"\1", script[0]), self.found, self.depth + 1).read()
            self._add("", known=False)
        elif self.line.startswith("(", self.at):
            self.at += 1
            self._substitution()
        elif self.line.startswith("'", self.at):
            raise Unreadable  # shells read the text in quotes differently
        else:
            self.at += self.line.startswith("{", self.at)
            self._add("", known=False)

    def _substitution(self) -> None:
        inner = _Reader(self.line, self.found, self.depth + 1, self.at)
        inner.read(until=")")
        self.at = inner.at
        self._add("", known=False)

    def _until(self, quote: str) -> str:
        end = self.line.find(quote, self.at)
        if end < 0:
            raise Unreadable
        text, self.at = self.line[self.at : end], end + 1
        return text

    def _add(self, text: str, *, known: bool = True, quoted: bool = False) -> None:
        if self.word is None:
            self.word = Word()
        self.word.text += text
        self.word.known = self.word.known and known
        self.word.quoted = self.word.quoted or quoted

    def _quoted(self, text: str) -> None:
        self._add(text, quoted=True)

    def _end_word(self) -> None:
        if self.word is not None:
            self.words.append(self.word)
            self.word = None

    def _end_command(self) -> None:
        self._end_word()
        words, self.words = self.words, []
        before = words
        while words and not words[0].quoted and words[0].known and (
            words[0].text in HEADS or ASSIGNMENT.match(words[0].text)
        ):  # fmt: skip
            words = words[1:]
        while words and ASSIGNMENT.match(words[0].text):  # of a value that is not known
            words = words[1:]
        if not words or _name(words[0]) not in SETTERS:  # else any of its words may set a variable
            before = before[: len(before) - len(words)]
        if any(ASSIGNMENT.match(word.text) for word in before):
            self._keep([UNKNOWN])  # programs start others that variables name: PATH, GIT_PAGER, LD_PRELOAD
        if words and not (words[0].known and not words[0].quoted and words[0].text in HEADERS):
            self._keep(words)
            if words[0].known and _name(words[0]) in STARTERS:
                self._started(words)

    def _started(self, words: Sequence[Word]) -> None:
        """Keep what a command may start: from each of its words on, and each word that may be a line of shell."""
        names = [_name(word) for word in words]
        added = [UNKNOWN] if FROM_INPUT.intersection(names) else []
        for first in range(1, len(words)):
            self._keep([*words[first:], *added])
        if LINES.intersection(names):
            for word in words[1:]:
                if word.known and SCRIPT.search(word.text):
                    _Reader(word.text, self.found, self.depth + 1).read()
        shell = next((number for number, name in enumerate(names) if name in SHELLS), None)
        if shell is not None and all(word.text.startswith("-") for word in words[shell + 1 :]):
            self._keep([UNKNOWN])  # it runs its input

    def _keep(self, words: Sequence[Word]) -> None:
        self.found.append(Command(tuple(words)))
        if len(self.found) > MOST_COMMANDS:
            raise Unreadable


def _name(word: Word) -> str:
    return PurePath(word.text).name
