"""The base classes of commands: errors with a code and no traceback, tables and facts for people, `--json` for
scripts."""

from __future__ import annotations

import argparse
import errno
import json
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from enum import StrEnum
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandParser
from django.db import DatabaseError

from nexus.core.apps import as_commands, nexus_apps
from nexus.core.clock import now
from nexus.core.config import TABLE, flag, variable, written
from nexus.core.database.store import store
from nexus.core.operations import dispatch
from nexus.core.operations.caller import LOCAL_OPERATOR, Caller, process_connection
from nexus.core.operations.errors import Code, NexusError, invalid
from nexus.core.operations.parameters import whole_number
from nexus.core.operations.registry import TOOLSETS
from nexus.core.operations.replies import Data
from nexus.core.progress import at_work
from nexus.core.quoting import visible

NOTHING = 3  # exit code: it went well, and there was nothing
CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)
WIDEST = 60  # columns of a cell in a table
LONG = 100  # characters of a fact beside its name; a longer one stands below it
EXIT_CODES = "exit codes:\n  0  done\n  1  refused or failed; stderr has the code and what to do"


class CommandGroup(StrEnum):
    """The heading under which `nexus --help` lists a command."""

    HUB = "Run the hub"
    TEAM = "See and steer the team"
    CLIENTS = "Connect agents"
    STORE = "Keep the store"


class HelpAll(argparse.Action):
    """`--help-all`: the help with the settings, whose flags every command takes."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        sys.stdout.write(f"{parser.format_help()}\n{_settings_help()}")
        parser.exit()


class Parser(CommandParser):
    """A parser that answers a wrong command line with CONFIG_ERROR and exit code 1."""

    def error(self, message: str) -> NoReturn:
        self.exit(1, f"[nexus] {Code.CONFIG_ERROR}: {message} (see --help).\n")


def _settings_help() -> str:
    """Return the help of the settings' flags. They are parsed before Django starts, so no command's parser takes
    them."""
    shown = argparse.ArgumentParser(usage=argparse.SUPPRESS, add_help=False)
    settings = shown.add_argument_group(
        "settings (a flag overrides the environment, then a stored value, then the default)"
    )
    for name, declared in TABLE.items():
        note = "; ".join(filter(None, [variable(name), written(declared.default)]))
        settings.add_argument(flag(name), help=f"{declared.help} [{note}]")
    return shown.format_help()


class NexusCommand(BaseCommand):
    """A command whose `run` may raise NexusError; `examples` follow the options in its --help.

    The first sentence of `help` is its line in `nexus --help`.
    """

    requires_system_checks: list[str] = []
    group = CommandGroup.TEAM
    examples = ""
    parser_class = Parser

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        parser = self.parser_class(
            prog=f"nexus {subcommand.replace('_', '-')}",
            description=self.help,
            epilog=self.epilog(),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        help = "show the settings, too: every command takes their flags, such as --home"
        parser.add_argument("--help-all", action=HelpAll, nargs=0, dest=argparse.SUPPRESS, help=help)
        self.add_arguments(parser)
        parser.usage = parser.format_usage().removeprefix("usage: ").rstrip() + " [settings]"
        for name in ("force_color", "no_color", "skip_checks", "traceback"):
            parser.set_defaults(**{name: False})
        parser.set_defaults(verbosity=1, settings=None, pythonpath=None)
        return parser

    def epilog(self) -> str:
        """Return the part of --help after the options."""
        return self.examples

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            for app in nexus_apps():
                app.check_settings()
            self.run(**options)
        except NexusError as error:
            self._fail(error)
        except DatabaseError as error:  # of what a command reads without an operation
            known = store().failure(error)
            if known is None:
                raise
            self._fail(known)
        except OSError as error:  # of a file that a command reads or writes itself
            if error.errno not in CLOSED or error.filename is None:
                raise
            why = f"{error.filename} is closed to this user ({error.strerror}). Open it, or choose another --home."
            self._fail(NexusError(Code.CONFIG_ERROR, why))
        except EOFError:  # Ctrl-D where a question was asked
            self.stderr.write("\n[nexus] No answer was given: nothing was changed.")
            sys.exit(1)

    def _fail(self, error: NexusError) -> NoReturn:
        self.stderr.write(f"[nexus] {error.code}: {as_commands(error.message)}")
        sys.exit(1)

    def run(self, *args: Any, **options: Any) -> None:
        """Run the command; its own options are keyword arguments."""
        raise NotImplementedError

    def ask(self, question: str) -> bool:
        """Ask the person at the terminal and return whether they agree. Raises CONFIG_ERROR if nobody can be asked."""
        if not sys.stdin.isatty():
            raise NexusError(Code.CONFIG_ERROR, "Nothing was changed: nobody is there to ask. Pass --yes to do it.")
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


class OperatorCommand(NexusCommand):
    """A command of an operator: `act` calls operations, prints a table or JSON and returns the exit code."""

    toolset = "coordination"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print JSON, for scripts.")

    def run(self, **options: Any) -> None:
        store().prepare()
        sys.exit(self.act(options))

    def act(self, options: Mapping[str, Any]) -> int:
        """Run the command and return its exit code."""
        raise NotImplementedError

    def call(self, name: str, /, **arguments: Any) -> Data:
        """Call an operation as the operator and return its data; arguments that are None are left out. Raises its
        error."""
        given = {key: value for key, value in arguments.items() if value is not None}
        caller = Caller(transport="cli", operator=LOCAL_OPERATOR, connection=process_connection("cli"))
        toolset = TOOLSETS[self.toolset]
        is_long = toolset.find(name).takes_minutes
        with at_work(self.stderr, name.replace("_", " ")) if is_long else nullcontext():
            return dispatch.perform(toolset, caller, name, given).result()

    def print_json(self, data: Mapping[str, Any]) -> None:
        self.stdout.write(json.dumps(data, indent=2))

    def print_facts(self, data: Mapping[str, Any]) -> None:
        """Print names and values, one a line; a text of several lines is indented below its name."""
        width = max(map(len, data), default=0)
        for name, value in data.items():
            text = spelled(value)
            lines = text.splitlines() if len(text.splitlines()) > 1 or len(text) > LONG else []
            self.stdout.write(f"{name.replace('_', ' '):<{width}}  {'' if lines else one_line(text, LONG)}".rstrip())
            for line in lines:
                self.stdout.write(f"  {one_line(line, widest=10_000) if line else ''}".rstrip())

    def warn(self, data: Mapping[str, Any]) -> None:
        """Print an answer's warnings on stderr."""
        for warning in (*([data["warning"]] if "warning" in data else []), *data.get("warnings", ())):
            self.stderr.write(as_commands(warning))

    def print_next_page(self, data: Mapping[str, Any]) -> None:
        """Print on stderr how to see the next page of a list, if there is one."""
        if data.get("has_more"):
            self.stderr.write(f"There are more: --cursor {data['next_cursor']} shows the next page.")

    def print_table(self, headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        lines = list(rows)
        for line in table(headings, lines) if lines else ["none"]:
            self.stdout.write(line)


def spelled(value: Any) -> str:
    """Return a value as people write it, without a programming language's brackets."""
    if value is None or value == "" or value == [] or value == {}:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(item, str | int) for item in value):
        return ", ".join(map(spelled, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def add_project_root(parser: CommandParser) -> None:
    """Add `--project`; by default it is the working directory."""
    help = "The project's directory. [the current one]"
    parser.add_argument("--project", dest="project_root", metavar="DIR", default=".", help=help)


def text_of(given: str) -> str:
    """Return the text of an argument; `-` reads standard input to its end. Raises VALIDATION_ERROR if nothing was
    typed."""
    if given != "-":
        return given
    typed = sys.stdin.isatty()
    if typed:
        sys.stderr.write("[nexus] Type the text; Ctrl-D on a line of its own ends it, Ctrl-C drops it.\n")
    try:
        text = sys.stdin.read()
    except UnicodeDecodeError:
        raise invalid("Standard input holds no text: it is not UTF-8.") from None
    if typed and not text:
        raise invalid("No text was typed: nothing was done.")
    return text


def positive(text: str) -> int:
    """Parse an argument that is a count."""
    number = whole_number(text, 10**6 - 1)
    if not number:
        raise argparse.ArgumentTypeError("use a whole number from 1")
    return number


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]], widest: int = WIDEST) -> list[str]:
    """Return the lines of a table with aligned columns; control characters in agents' texts are made harmless."""
    cells = [list(headings), *([one_line(value, widest) for value in row] for row in rows)]
    widths = [max(map(columns, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell + " " * (width - columns(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in cells]  # fmt: skip


def one_line(value: Any, widest: int = WIDEST) -> str:
    """Return a value as one line of printable text, shortened to `widest` characters; an empty value becomes a dash."""
    text = "-" if value is None or value == "" else spelled(value) if isinstance(value, bool) else str(value)
    printable = visible("".join(" " if character.isspace() else character for character in text))
    return printable if len(printable) <= widest else printable[: widest - 1] + "…"


def columns(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


def ago(moment: str | datetime | None) -> str:
    """Return how long ago a time was, or how far ahead it is: `3 min ago`, `in 2 h`."""
    if moment is None:
        return "-"
    then = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    seconds = (now() - then).total_seconds()
    size, unit = next((size, unit) for size, unit in UNITS if abs(seconds) >= size or size == 1)
    span = f"{int(abs(seconds) // size)} {unit}"
    return f"{span} ago" if seconds >= 0 else f"in {span}"


UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def size(count: int) -> str:
    """Return a number of bytes for people."""
    return f"{count / 2**20:.1f} MB" if count >= 2**20 else f"{count / 2**10:.1f} kB"
