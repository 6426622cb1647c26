"""Commands with verbs: `nexus agents create builder`. Without a verb the first one runs.

A verb is declared: the operation that it calls, the parameters that the command line takes, and what is printed of the
answer. Anything else that a verb does is a method of its command.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from django.core.management.base import CommandParser
from pydantic.fields import FieldInfo

from nexus.core.apps import as_commands
from nexus.core.cli import EXIT_CODES, NOTHING, OperatorCommand, Parser, ago
from nexus.core.operations.errors import NexusError
from nexus.core.operations.parameters import whole_number
from nexus.core.operations.registry import TOOLSETS, Operation
from nexus.core.operations.replies import Data

Row = Mapping[str, Any]
Column = str | Callable[[Row], Any]  # a field of a row, or what is shown of the row


@dataclass(frozen=True)
class Verb:
    """One verb of a command."""

    name: str
    help: str = ""  #: what it does; left out: what the operation's documentation says
    act: Callable[[Mapping[str, Any]], int] | None = None  #: given the options; its exit code
    arguments: Callable[[CommandParser], None] = lambda parser: None  #: which are no parameters of the operation
    examples: Sequence[str] = ()
    nothing: str = ""  #: what exit code 3 means, where it is one of the verb's; it is one of every list's
    asks: str | bool = False  #: the question before it acts, of the options; True where `act` asks. --yes answers it
    exit_codes: str = EXIT_CODES
    operation: str = ""
    words: Sequence[str | Option] = ()  #: the operation's parameters that are positional arguments
    options: Sequence[str | Option] = ()  #: and those with a flag
    each: bool = False  #: the word may be given several times: the operation is called for each by itself
    rows: str = ""  #: the field of the answer that is a list; `columns` show its rows, by their headings
    columns: Mapping[str, Column] = field(default_factory=dict)
    shows: str = ""  #: the field of the answer that people are shown; left out: all of it

    @property
    def declared(self) -> list[Option]:
        """The operation's parameters that the command line takes."""
        return [option(each) for each in (*self.words, *self.options)]

    @property
    def epilog(self) -> str:
        """Examples and exit codes, as --help shows them."""
        nothing = self.nothing or ("there is none" if self.rows else "")
        codes = self.exit_codes + (f"\n  {NOTHING}  {nothing}" if nothing else "")
        examples = "\n  ".join(["examples:", *self.examples]) + "\n\n" if self.examples else ""
        return examples + codes


def time(name: str) -> Column:
    """Return a column that shows a time as how long ago it was."""
    return lambda row: ago(row.get(name))


class VerbsParser(Parser):
    """The parser of a command with verbs; a command line without one means the default."""

    default = ""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.verbs: dict[str, CommandParser] = {}

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        if not given or (given[0].startswith("-") and given[0] not in ("-h", "--help", "--help-all")):
            given.insert(0, self.default)
        return super().parse_args(given, namespace)


class VerbsCommand(OperatorCommand):
    """A command with `verbs`; the first is the default."""

    parser_class = VerbsParser
    verb_parser_class = Parser
    prints_json = False  # and nothing else, so that no flag asks for it

    def verbs(self) -> Sequence[Verb]:
        """Return the verbs, in the order of --help."""
        raise NotImplementedError

    def epilog(self) -> str:
        if self.examples:
            return self.examples
        default, *_ = verbs = self.verbs()
        return replace(default, examples=[verb.examples[0] for verb in verbs if verb.examples]).epilog

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = self.verbs()
        assert isinstance(parser, VerbsParser)
        parser.default = verbs[0].name
        title = f"verbs (without one: {verbs[0].name}; VERB --help has the options)"
        subparsers = parser.add_subparsers(
            dest="verb", metavar="VERB", title=title, required=True, parser_class=self.verb_parser_class
        )
        for verb in verbs:
            help = verb.help or as_commands(self._operation(verb).description)
            own = parser.verbs[verb.name] = subparsers.add_parser(
                verb.name,
                help=help,
                description=help,
                epilog=verb.epilog,
                formatter_class=argparse.RawDescriptionHelpFormatter,
                allow_abbrev=False,
            )
            for word in verb.words:
                add_word(own, self._operation(verb), option(word), several=verb.each)
            for each in verb.options:
                add_option(own, self._operation(verb), option(each))
            verb.arguments(own)
            if not self.prints_json:
                own.add_argument("--json", action="store_true", help="Print JSON, for scripts.")
            if verb.asks:
                own.add_argument("--yes", action="store_true", help="Do it without asking.")

    def act(self, options: Mapping[str, Any]) -> int:
        verb = self._chosen(options)
        if verb.act is not None:
            return verb.act(options)
        if verb.each:
            first, *others = verb.declared
            given = arguments(options, *others)
            names = options[first.parameter]
            return self.each(options, names, lambda one: self.call(verb.operation, **{first.parameter: one}, **given))
        if isinstance(verb.asks, str) and not options["yes"]:
            self._check_names(verb, options)  # a name that is none is no question
            if not self.ask(verb.asks.format(**options)):
                self.stdout.write("Nothing was changed.")
                return 0
        return self.present(options, self.answer(options))

    def answer(self, options: Mapping[str, Any], **more: Any) -> Data:
        """Call the verb's operation with the arguments of the command line and `more`, and return its data."""
        verb = self._chosen(options)
        return self.call(verb.operation, **{**arguments(options, *verb.declared), **more})

    def present(self, options: Mapping[str, Any], data: Mapping[str, Any]) -> int:
        """Print an answer as the verb declares it; exit code 3 for a list without rows."""
        verb = self._chosen(options)
        if not verb.rows:
            if verb.shows and not options["json"]:
                self.warn(data)
                data = data[verb.shows]
            return self.show(options, data)
        rows = data.get(verb.rows, [])
        if not rows:
            self._check_names(verb, options)
        if options["json"]:
            self.print_json(data)
        else:
            self.print_rows(verb.columns, rows)
            self.warn(data)
            self.print_next_page(data)
        return 0 if rows else NOTHING

    def print_rows(self, columns: Mapping[str, Column], rows: Sequence[Row]) -> None:
        """Print a table of rows, with the headings of its columns."""
        self.print_table(
            list(columns),
            [[row.get(shown) if isinstance(shown, str) else shown(row) for shown in columns.values()] for row in rows],
        )

    def _chosen(self, options: Mapping[str, Any]) -> Verb:
        return next(verb for verb in self.verbs() if verb.name == options["verb"])

    def _operation(self, verb: Verb) -> Operation[Any]:
        return TOOLSETS[self.toolset].find(verb.operation)

    def _check_names(self, verb: Verb, options: Mapping[str, Any]) -> None:
        for each in verb.declared:
            if each.exists is not None and options[each.parameter] is not None:
                each.exists(options[each.parameter])

    def show(self, options: Mapping[str, Any], data: Mapping[str, Any]) -> int:
        """Print an object, for people or as JSON; exit code 0."""
        if options["json"]:
            self.print_json(data)
        else:
            self.print_facts({name: value for name, value in data.items() if name != "warning"})
            self.warn(data)
        return 0

    def each(self, options: Mapping[str, Any], ids: Sequence[str], act: Callable[[str], Data]) -> int:
        """Act on one item after another and print each outcome; exit code 1 if any was refused.

        A refusal does not stop the others, and every item's outcome is printed.
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


def name_argument(name: str, help: str) -> Callable[[CommandParser], None]:
    """Return the arguments of a verb that takes one name."""
    return partial(_add_name, name=name, help=help)


def several(name: str, help: str) -> Callable[[CommandParser], None]:
    """Return the arguments of a verb that takes one or more names."""
    return partial(_add_name, name=name, help=help, nargs="+")


def _add_name(parser: CommandParser, *, name: str, help: str, nargs: str | None = None) -> None:
    parser.add_argument(name, metavar=name.removesuffix("_id").upper(), help=help, nargs=nargs)


FLAGS = {"project_root": "--project", "agent_id": "--agent"}  # of what every command calls the same
METAVARS = {"project_root": "DIR", "agent_id": "AGENT"}
HELP = {
    "limit": "At most this many rows.",
    "cursor": "The next page: the next_cursor of the previous page.",
}
HERE = "The project's directory. [the current one]"
PAGE = 100  # rows, where the operation would give all


@dataclass(frozen=True)
class Option:
    """A parameter of an operation on a command line."""

    parameter: str
    #: `--flag`; of a positional argument the word in its place, such as `AGENT`. Left out: made from the parameter.
    spelled: str = ""
    help: str = ""  #: left out: the parameter's description
    default: Any = None  #: left out: the operation's own, and the current directory for a project that it needs
    required: bool = False  #: on the command line, although the operation does without
    repeated: bool = False  #: may be given several times, as one of a list always may
    read: Callable[[str], Any] | None = None  #: turns the text into the argument; may raise NexusError
    exists: Callable[[str], object] | None = None  #: raises NexusError for a name that is none, which a list may hide


def option(given: str | Option) -> Option:
    """Return an option, given as a parameter's name or declared already."""
    return Option(given) if isinstance(given, str) else given


def add_word(parser: argparse.ArgumentParser, operation: Operation[Any], option: Option, *, several: bool) -> None:
    """Add a positional argument; with `several`, one or more values, of which each is acted on by itself."""
    field = operation.params.model_fields[option.parameter]
    kind, is_list = _kind(field)
    optional = not (field.is_required() or option.required)
    how: dict[str, Any] = {}
    if several or is_list or option.repeated:
        how["nargs"] = "*" if optional else "+"
    elif optional:
        how["nargs"] = "?"
    word = option.parameter.removesuffix("_id").removesuffix("s" if is_list else "").upper()
    help = option.help or field.description or f"The {option.parameter}."
    parser.add_argument(option.parameter, metavar=option.spelled or word, help=_help(help), **_typed(kind), **how)


def add_option(parser: argparse.ArgumentParser, operation: Operation[Any], option: Option) -> None:
    """Add an argument with a flag."""
    name = option.parameter
    field = operation.params.model_fields[name]
    kind, is_list = _kind(field)
    flag = option.spelled or FLAGS.get(name) or f"--{name.replace('_', '-')}"
    if kind is bool:
        parser.add_argument(
            flag,
            dest=name,
            action="store_const",
            const=not field.default,
            help=_help(option.help or field.description or ""),
        )
        return
    default = option.default
    required = option.required or (field.is_required() and default is None and name != "project_root")
    help = option.help or HELP.get(name) or field.description or ""
    if name == "project_root" and field.is_required():
        default, help = ".", option.help or HERE
    elif name == "limit" and default is None and field.default is None:
        default = PAGE
    shown = field.default if default is None else default
    if not required and shown and shown != "." and isinstance(shown, str | int | float):
        help += f" [{shown}]"
    how = _typed(kind)
    if "choices" not in how:
        number = "SECONDS" if name.endswith("seconds") else "N" if kind is int else ""
        how["metavar"] = METAVARS.get(name) or number or flag.removeprefix("--").replace("-", "_").upper()
    if is_list or option.repeated:
        how["action"] = "append"
    parser.add_argument(flag, dest=name, default=default, required=required, help=_help(help), **how)


def arguments(options: Mapping[str, Any], *declared: Option) -> dict[str, Any]:
    """Return an operation's arguments from the command line; None for what was not given."""
    given = {}
    for each in declared:
        value = options[each.parameter]
        if value == []:  # no word where several may be
            value = None
        given[each.parameter] = each.read(value) if each.read is not None and value is not None else value
    return given


def _kind(field: FieldInfo) -> tuple[Any, bool]:
    """Return the type of a parameter without None and annotations, and whether it is a list of that type."""
    kind: Any = field.annotation
    is_list = False
    while True:
        origin = get_origin(kind)
        if origin is Annotated:
            kind = get_args(kind)[0]
        elif origin in (Union, UnionType):
            kind = next(each for each in get_args(kind) if each is not NoneType)
        elif origin is list:
            kind, is_list = get_args(kind)[0], True
        else:
            return kind, is_list


def _typed(kind: Any) -> dict[str, Any]:
    """Return how argparse reads a type; the operation checks bounds."""
    if get_origin(kind) is Literal:
        return {"choices": get_args(kind)}
    reads = {int: _whole, float: _number}.get(kind)
    return {"type": reads} if reads else {}


def _whole(text: str) -> int:
    number = whole_number(text)
    if number is None:
        raise argparse.ArgumentTypeError("use a whole number")
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError("use a number") from None


def _help(text: str) -> str:
    return text.replace("%", "%%")  # argparse would fill it in
