"""What a command line takes for an operation: the names, types, choices and help of the operation's parameters."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from nexus.core.operations.parameters import whole_number
from nexus.core.operations.registry import Operation

FLAGS = {"project_root": "--project", "agent_id": "--agent"}  # of what every command calls the same
METAVARS = {"project_root": "DIR", "agent_id": "AGENT"}
HELP = {
    "limit": "Rows at most.",
    "cursor": "The next page: the next_cursor of the page before.",
}
HERE = "The project's directory. [the current one]"
PAGE = 100  # rows, where the operation would give all


@dataclass(frozen=True)
class Option:
    """A parameter of an operation, on a command line."""

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
    """A parameter by its name, or what is declared of it."""
    return Option(given) if isinstance(given, str) else given


def add_word(parser: argparse.ArgumentParser, operation: Operation[Any], option: Option, *, several: bool) -> None:
    """A positional argument; `several` of it may be given where each is acted on by itself."""
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
    """An argument with a flag."""
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
    """An operation's arguments, as the command line gives them; what was not given is None."""
    given = {}
    for each in declared:
        value = options[each.parameter]
        if value == []:  # no word where several may be
            value = None
        given[each.parameter] = each.read(value) if each.read is not None and value is not None else value
    return given


def _kind(field: FieldInfo) -> tuple[Any, bool]:
    """The type of a parameter without None and annotations, and whether it is a list of that."""
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
    """How argparse reads it; bounds are the operation's to tell."""
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
