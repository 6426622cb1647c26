"""Commands with verbs: `nexus agents create builder`. Without a verb the first one is meant."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.core.management.base import CommandParser

from nexus.core.apps import as_commands
from nexus.core.cli import EXIT_CODES, NOTHING, OperatorCommand, Parser
from nexus.core.operations.errors import NexusError
from nexus.core.operations.replies import Data


@dataclass(frozen=True)
class Verb:
    """One verb of a command."""

    name: str
    help: str
    act: Callable[[Mapping[str, Any]], int]  # given the options; its exit code
    arguments: Callable[[CommandParser], None] = lambda parser: None
    examples: Sequence[str] = ()
    nothing: str = ""  # what exit code 3 means, where it is one of the verb's
    asks: bool = False  # before it acts, unless --yes is given
    exit_codes: str = EXIT_CODES

    @property
    def epilog(self) -> str:
        """Examples and exit codes, as --help shows them."""
        codes = self.exit_codes + (f"\n  {NOTHING}  {self.nothing}" if self.nothing else "")
        return "\n  ".join(["examples:", *self.examples]) + f"\n\n{codes}"


class VerbParser(Parser):
    """The parser of one verb; the settings' flags stand in the help of its command."""

    def format_help(self) -> str:
        return argparse.ArgumentParser.format_help(self)


class VerbsParser(Parser):
    """The parser of a command with verbs: a command line that names none means the default."""

    default = ""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        if not given or (given[0].startswith("-") and given[0] not in ("-h", "--help")):
            given.insert(0, self.default)
        return super().parse_args(given, namespace)


class VerbsCommand(OperatorCommand):
    """A command with `verbs`; the first is the default."""

    parser_class = VerbsParser
    verb_parser_class = VerbParser
    prints_json = False  # and nothing else, so that no flag asks for it

    def verbs(self) -> Sequence[Verb]:
        """The verbs, in the order of --help."""
        raise NotImplementedError

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = self.verbs()
        assert isinstance(parser, VerbsParser)
        parser.default = verbs[0].name
        title = f"verbs (without one: {verbs[0].name}; VERB --help has the options)"
        listed = parser.add_subparsers(
            dest="verb", metavar="VERB", title=title, required=True, parser_class=self.verb_parser_class
        )
        for verb in verbs:
            own = listed.add_parser(
                verb.name,
                help=verb.help,
                description=verb.help,
                epilog=verb.epilog,
                formatter_class=argparse.RawDescriptionHelpFormatter,
                allow_abbrev=False,
            )
            verb.arguments(own)
            if not self.prints_json:
                own.add_argument("--json", action="store_true", help="Print JSON, for scripts.")
            if verb.asks:
                own.add_argument("--yes", action="store_true", help="Do it without asking.")

    def act(self, options: Mapping[str, Any]) -> int:
        verb = next(verb for verb in self.verbs() if verb.name == options["verb"])
        return verb.act(options)

    def show(self, options: Mapping[str, Any], data: Mapping[str, Any]) -> int:
        """Print an object, for people or as JSON; exit code 0."""
        if options["json"]:
            self.print_json(data)
        else:
            self.print_facts({name: value for name, value in data.items() if name != "warning"})
            self.warn(data)
        return 0

    def each(self, options: Mapping[str, Any], ids: Sequence[str], act: Callable[[str], Data]) -> int:
        """Act on one thing after another, and print what became of each; exit code 1 when any was refused.

        A refusal stops no other, and of none is it left open whether it was done.
        """
        done: list[Data] = []
        refused: list[dict[str, str]] = []
        for identifier in dict.fromkeys(ids):
            try:
                done.append(act(identifier))
            except NexusError as error:
                refused.append({"id": identifier, "code": error.code.value, "message": as_commands(error.message)})
        if options["json"]:
            self.print_json({"done": done, "refused": refused})
        else:
            for data in done:
                self.print_facts({name: value for name, value in data.items() if value is not None})
            for why in refused:
                self.stderr.write(f"[nexus] {why['id']}: {why['code']}: {why['message']}")
        return 1 if refused else 0


def named(name: str, help: str) -> Callable[[CommandParser], None]:
    """The arguments of a verb that takes one name."""
    return partial(_add_name, name=name, help=help)


def several(name: str, help: str) -> Callable[[CommandParser], None]:
    """The arguments of a verb that takes one or more names."""
    return partial(_add_name, name=name, help=help, nargs="+")


def _add_name(parser: CommandParser, *, name: str, help: str, nargs: str | None = None) -> None:
    parser.add_argument(name, metavar=name.upper(), help=help, nargs=nargs)
