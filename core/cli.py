"""What commands share: settings as flags, errors with a code, tables for people, `--json` for scripts."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandParser

from core.access import LOCAL_OPERATOR
from core.clock import now
from core.config import TABLE, flag, variable
from core.database import store
from core.operations import runner
from core.operations.caller import Caller
from core.operations.errors import Code, NexusError
from core.operations.registry import TOOLSETS
from core.operations.replies import Data

NOTHING = 3  # exit code: it went well, and there was nothing
WIDEST = 60  # columns of a cell in a table
EXIT_CODES = "exit codes:\n  0  done\n  1  refused or failed; stderr has the code and what to do"


class Parser(CommandParser):
    """Answers a bad command line with CONFIG_ERROR and exit code 1."""

    def error(self, message: str) -> NoReturn:
        self.exit(1, f"[nexus] {Code.CONFIG_ERROR}: {message}. See --help.\n")


class NexusCommand(BaseCommand):
    """A command whose `run` may raise NexusError; `examples` end its --help."""

    requires_system_checks: list[str] = []
    examples = ""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        parser = Parser(
            prog=f"nexus {subcommand}",
            description=self.help,
            epilog=self.examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self.add_arguments(parser)
        parser.usage = parser.format_usage().removeprefix("usage: ").rstrip() + " [settings]"
        knobs = parser.add_argument_group("settings (flag over environment over stored over default)")
        for name, field in TABLE.items():
            # Parsed before Django starts; listed here for --help.
            knobs.add_argument(flag(name), help=f"{field.metadata['help']} [{variable(name)}; {field.default}]")
        for name in ("force_color", "no_color", "skip_checks", "traceback"):
            parser.set_defaults(**{name: False})
        parser.set_defaults(verbosity=1, settings=None, pythonpath=None)
        return parser

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self.run(**options)
        except NexusError as error:
            self.stderr.write(f"[nexus] {error.code}: {error.message}")
            sys.exit(1)
        except BrokenPipeError:  # `| head` has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)

    def run(self, *args: Any, **options: Any) -> None:
        """What the command does; its own options come as keywords."""
        raise NotImplementedError


class OperatorCommand(NexusCommand):
    """A command of whoever runs it: `act` calls operations, prints a table or JSON and gives the exit code."""

    toolset = "coordination"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print JSON, for scripts.")

    def run(self, **options: Any) -> None:
        store().prepare()
        sys.exit(self.act(options))

    def act(self, options: Mapping[str, Any]) -> int:
        """What the command does; its exit code."""
        raise NotImplementedError

    def call(self, name: str, **arguments: Any) -> Data:
        """The data of an operation, called as the operator; None is not given. Raises its error."""
        given = {key: value for key, value in arguments.items() if value is not None}
        caller = Caller(transport="cli", operator=login())
        return runner.perform(TOOLSETS[self.toolset], caller, name, given).result()

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
