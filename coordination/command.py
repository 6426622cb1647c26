"""The base of Nexus's management commands: settings as flags, errors with a code, no traceback."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandParser

from coordination.errors import Code, NexusError
from coordination.knobs import TABLE, flag, variable


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
