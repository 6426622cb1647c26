"""The syntax of source code, found by Pygments in a process of its own.

The expressions of its lexers can take hours over a text that is made for it, and Python cannot interrupt one in a
thread. The other process interrupts itself, text by text, and is killed if it does not.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from nexus.core import processes

if TYPE_CHECKING:
    from pygments.lexer import Lexer

# CPU seconds in which all texts, and one of them, are read; seconds after which the process is killed, which it never
# needs unless the machine is busy.
ALL_SECONDS, ONE_SECONDS, KILL_SECONDS = 0.5, 0.2, 5.0
MOST_LETTERS = 400_000  # of all texts
LARGEST = 8_000_000  # bytes of an answer
Pieces = list[tuple[int, str]]  # of a line, from its start: how long each is, and its class ("" if it is plain)

# Lexers by the ends of names. Pygments' own list takes `.sql` for T-SQL and `go.mod` for Modula-2, and is slow to load.
LEXERS = {
    end: name
    for name, ends in {
        "python": ".py .pyi",
        "javascript": ".js .mjs .cjs",
        "jsx": ".jsx",
        "typescript": ".ts .mts .cts",
        "tsx": ".tsx",
        "vue": ".vue",
        "html+django": ".html .htm .jinja .j2",
        "xml": ".xml .svg .xsd .csproj .plist",
        "css": ".css",
        "scss": ".scss",
        "less": ".less",
        "json": ".json .jsonc .webmanifest",
        "yaml": ".yml .yaml",
        "toml": ".toml",
        "ini": ".ini .cfg .conf .editorconfig .gitconfig",
        "markdown": ".md .markdown",
        "rst": ".rst",
        "bash": ".sh .bash .zsh .bashrc .profile",
        "powershell": ".ps1",
        "make": "Makefile .mk",
        "cmake": "CMakeLists.txt .cmake",
        "docker": "Dockerfile Containerfile .dockerfile",
        "nix": ".nix",
        "terraform": ".tf .hcl",
        "sql": ".sql",
        "graphql": ".graphql .gql",
        "protobuf": ".proto",
        "c": ".c .h",
        "cpp": ".cc .cpp .cxx .hh .hpp .hxx",
        "csharp": ".cs",
        "go": ".go",
        "rust": ".rs",
        "zig": ".zig",
        "java": ".java",
        "kotlin": ".kt .kts",
        "scala": ".scala",
        "groovy": ".groovy .gradle",
        "swift": ".swift",
        "dart": ".dart",
        "ruby": ".rb Gemfile Rakefile",
        "php": ".php",
        "perl": ".pl .pm",
        "lua": ".lua",
        "r": ".r .R",
        "julia": ".jl",
        "elixir": ".ex .exs",
        "erlang": ".erl",
        "haskell": ".hs",
        "ocaml": ".ml .mli",
        "clojure": ".clj .cljs .edn",
        "diff": ".diff .patch",
    }.items()
    for end in ends.split()
}


def lexer_of(path: str) -> str:
    """Return the name of the lexer for a file; empty if there is none."""
    name = path.rpartition("/")[2]
    return LEXERS.get(name) or LEXERS.get("." + name.rpartition(".")[2], "")


def highlighted(texts: Sequence[tuple[str, str]]) -> list[list[Pieces]]:
    """Return the pieces of each line of texts, which are given with the names of their lexers.

    What was not read in time, or is no code, has no pieces. Never fails.
    """
    known, letters = [], 0
    for number, (lexer, text) in enumerate(texts):
        letters += len(text) if lexer else 0
        if lexer and letters <= MOST_LETTERS:
            known.append((number, lexer, text))
    found: list[list[Pieces]] = [[] for _ in texts]
    if not known:
        return found
    try:
        done = processes.run(
            processes.python("nexus.web.highlighting"),
            cwd=processes.NEUTRAL,
            env=processes.own_environment(settings=False),
            input=json.dumps([each[1:] for each in known]).encode(),
            seconds=KILL_SECONDS,
            largest=LARGEST,
        )
        for (number, *_), pieces in zip(known, json.loads(done.output or b"[]"), strict=False):
            found[number] = [[(length, kind) for length, kind in line] for line in pieces]
    except (OSError, ValueError):  # TimeoutError is an OSError
        pass
    return found


class _Late(Exception):
    pass


class _Alarm:
    """Interrupts the reading of a text. Python's expressions notice a signal, in a process's first thread alone."""

    armed = False

    def __init__(self) -> None:
        signal.signal(signal.SIGVTALRM, self._ring)

    def set(self, seconds: float) -> None:
        self.armed = True
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)

    def _ring(self, *_: Any) -> None:
        if self.armed:
            self.armed = False
            raise _Late


def main() -> None:
    """Read texts as JSON, and write the pieces of their lines."""
    from pygments.lexers import get_lexer_by_name

    lexers: dict[str, Lexer] = {}
    answer, alarm, until = [], _Alarm(), time.process_time() + ALL_SECONDS
    for name, text in json.load(sys.stdin):
        tokens: list[tuple[int, str]] = []
        with suppress(Exception):  # _Late, and what a lexer fails with: the rest of the text stays plain
            if (left := until - time.process_time()) > 0:
                alarm.set(min(left, ONE_SECONDS))
                if name not in lexers:
                    lexers[name] = get_lexer_by_name(name, stripnl=False, ensurenl=False)
                for token in _classed(lexers[name], text):
                    tokens.append(token)  # one by one: those before an alarm count
            alarm.armed = False
        answer.append(_lines(text, tokens))
    json.dump(answer, sys.stdout, separators=(",", ":"))


def _classed(lexer: Lexer, text: str) -> Iterator[tuple[int, str]]:
    """Yield where each token starts, in order, and its class."""
    classes: dict[Any, str] = {}
    last = 0
    for start, kind, _ in lexer.get_tokens_unprocessed(text):
        if kind not in classes:
            classes[kind] = _class(kind)
        if start >= last:
            yield start, classes[kind]
            last = start


def _class(kind: Any) -> str:
    from pygments.token import Comment, Generic, Keyword, Literal, Name, Number, Operator, String

    for known, name in {
        Comment.Preproc: "k",
        Comment: "c",
        String: "s",
        Number: "n",
        Literal: "n",
        Keyword.Constant: "n",
        Keyword: "k",
        Operator.Word: "k",
        Name.Function: "f",
        Name.Class: "f",
        Name.Decorator: "f",
        Name.Tag: "f",
        Name.Attribute: "n",
        Generic.Heading: "k",
        Generic.Subheading: "k",
        Generic.Inserted: "s",
        Generic.Deleted: "n",
    }.items():
        if kind in known:
            return name
    return ""


def _lines(text: str, starts: Sequence[tuple[int, str]]) -> list[Pieces]:
    """Cut tokens into lines; neighbours of one class are one piece."""
    lines: list[Pieces] = []
    at, position, current = 0, 0, ""
    for line in text.split("\n"):
        pieces: Pieces = []
        end = position + len(line)
        while True:
            while at < len(starts) and starts[at][0] <= position:
                current = starts[at][1]
                at += 1
            until = min(end, starts[at][0]) if at < len(starts) else end
            if until <= position:
                break
            if pieces and pieces[-1][1] == current:
                pieces[-1] = (pieces[-1][0] + until - position, current)
            else:
                pieces.append((until - position, current))
            position = until
        lines.append(pieces)
        position = end + 1
    return lines


if __name__ == "__main__":
    main()
