"""What the operators' commands share: operations called as the operator, tables for people, `--json` for scripts."""

from __future__ import annotations

import argparse
import getpass
import json
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.core.management.base import CommandParser

from coordination import store
from coordination.access import LOCAL_OPERATOR
from coordination.clock import now
from coordination.command import NexusCommand
from coordination.errors import Code, NexusError
from coordination.operation import Caller, Data
from coordination.runner import run

NOTHING = 3  # exit code: it went well, and there was nothing
WIDEST = 60  # columns of a cell in a table
EXIT_CODES = "exit codes:\n  0  done\n  1  refused or failed; stderr has the code and what to do"


class OperatorCommand(NexusCommand):
    """A command of whoever runs it: `act` calls operations, prints a table or JSON and gives the exit code."""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print JSON, for scripts.")

    def run(self, **options: Any) -> None:
        store.prepare()
        sys.exit(self.act(options))

    def act(self, options: Mapping[str, Any]) -> int:
        """What the command does; its exit code."""
        raise NotImplementedError

    def call(self, name: str, **arguments: Any) -> Data:
        """The data of an operation, called as the operator; None is not given. Raises what the envelope says."""
        given = {key: value for key, value in arguments.items() if value is not None}
        envelope = run(Caller(transport="cli", operator=login()), name, given)
        if not envelope["ok"]:
            error = envelope["error"]
            raise NexusError(Code(error["code"]), error["message"], error.get("details"))
        data: Data = envelope["data"]
        return data

    def print_json(self, data: Mapping[str, Any]) -> None:
        self.stdout.write(json.dumps(data, indent=2))

    def print_table(self, headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        listed = list(rows)
        for line in table(headings, listed) if listed else ["none"]:
            self.stdout.write(line)


def login() -> str:
    """The name of the person at this machine."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as containers have
        return LOCAL_OPERATOR


def add_project_root(parser: CommandParser) -> None:
    """The project a command is about: `--project-root`, or the directory it is run in."""
    parser.add_argument("--project-root", default=".", help="The project's directory. Default: the current one.")


def positive(text: str) -> int:
    """The type of an argument that is a count."""
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) < 10**6:
        raise argparse.ArgumentTypeError("use a whole number from 1")
    return int(text)


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Lines of a table with aligned columns; texts from agents are made harmless to a terminal."""
    cells = [list(headings), *([one_line(value) for value in row] for row in rows)]
    widths = [max(map(columns, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell + " " * (width - columns(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in cells]  # fmt: skip


def one_line(value: Any, widest: int = WIDEST) -> str:
    """A value as one line of printable text, shortened to `widest` characters; nothing becomes a dash."""
    text = "-" if value is None or value == "" else str(value)
    printable = "".join(character if character.isprintable() else " " for character in text)
    return printable if len(printable) <= widest else printable[: widest - 1] + "…"


def columns(text: str) -> int:
    """How many columns of a terminal a text takes."""
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


def ago(moment: str | datetime | None) -> str:
    """How long ago a time was, or how far ahead it is: `3 min ago`, `in 2 h`."""
    if moment is None:
        return "-"
    then = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    seconds = (now() - then).total_seconds()
    size, unit = next((size, unit) for size, unit in UNITS if abs(seconds) >= size or size == 1)
    span = f"{int(abs(seconds) // size)} {unit}"
    return f"{span} ago" if seconds >= 0 else f"in {span}"


UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def size(count: int) -> str:
    """A number of bytes for people."""
    return f"{count / 2**20:.1f} MB" if count >= 2**20 else f"{count / 2**10:.1f} kB"
