"""The hub's side of short commands and of `nexus hook`: it answers as the calling process would. See `remote`."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, NoReturn

from django.core.management import get_commands, load_command_class
from django.core.management.base import OutputWrapper
from pydantic import BaseModel, Field
from pydantic_core import to_jsonable_python

from mcp_bridge.remote import COMMANDS
from nexus.core.cli import OperatorCommand, Parser
from nexus.core.operations.caller import LOCAL_OPERATOR, Caller
from nexus.core.operations.runner import documented
from nexus.core.verbs import VerbsCommand
from nexus.hooks import look
from nexus.hooks.harness import MAX_ID, Call

LONGEST_PATH = 4096


class NotHere(Exception):
    """The process must run its command itself: the command line has an error or asks for help."""


class Quiet(Parser):
    """A mixin for the command's parsers: errors and help are left to the calling process."""

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise NotHere

    def _print_message(self, message: str, file: Any = None) -> None:
        raise NotHere


class Ready(NamedTuple):
    """A command with parsed arguments."""

    command: OperatorCommand
    options: dict[str, Any]


def understood(words: Sequence[str], *, connection: str, cwd: str | None) -> Ready:
    """Parse a command line. Raises NotHere."""
    name, *arguments = words
    if name not in COMMANDS:
        raise NotHere
    command = load_command_class(get_commands()[name], name)
    assert isinstance(command, OperatorCommand)
    command.parser_class = _quiet(command.parser_class)
    if isinstance(command, VerbsCommand):
        command.verb_parser_class = _quiet(command.verb_parser_class)
    options = vars(command.create_parser("nexus", name).parse_args(arguments))
    command.caller = Caller("cli", operator=LOCAL_OPERATOR, connection=connection, cwd=cwd)
    return Ready(command, options)


def _quiet(parser: type[Any]) -> type[Any]:
    return type("QuietParser", (Quiet, parser) if parser is not Parser else (Quiet,), {})


def run(ready: Ready) -> dict[str, Any]:
    """Run a command; return its output and exit code. Uses the store."""
    said = {"stdout": io.StringIO(), "stderr": io.StringIO()}
    ready.command.stdout, ready.command.stderr = (OutputWrapper(stream) for stream in said.values())
    code: object = 0
    try:
        ready.command.handle(**ready.options)
    except SystemExit as end:
        code = end.code
    except Exception as error:
        known = documented(error)
        said["stderr"].write(f"[nexus] {known.code}: {known.message}\n")
        code = 1
    return {**{name: stream.getvalue() for name, stream in said.items()}, "code": code or 0}


class Strict(BaseModel, extra="forbid", strict=True):
    """A model that refuses unknown fields. The size of its line is limited before."""


class Asker(Strict):
    """The client's call, as far as an answer needs it."""

    client: Annotated[str, Field(max_length=MAX_ID)]
    event: Literal["SessionStart", "UserPromptSubmit", "PostToolUse", "Stop"] | None
    root: Annotated[str, Field(max_length=LONGEST_PATH)]
    agent_id: Annotated[str, Field(max_length=MAX_ID)]


class Plain(Strict):
    name: Literal["refresh", "seen"]


class Owed(Strict):
    name: Literal["owed"]
    keys: list[str]


class Waiting(Strict):
    name: Literal["waiting"]
    known: list[str]


class Perform(Strict):
    name: Literal["perform"]
    operation: str
    arguments: dict[str, Any]


class Question(Strict):
    """A query of `nexus.hooks.look`, with its arguments."""

    call: Asker
    question: Annotated[Plain | Owed | Waiting | Perform, Field(discriminator="name")]


def answer_hook(asked: Question, connection: str) -> dict[str, Any]:
    """Return the answer to the process of that connection: its data, or an error. Uses the store."""
    call = Call(**asked.call.model_dump(), connection=connection)
    question = asked.question.model_dump()
    try:
        return {"data": to_jsonable_python(look.answer(question.pop("name"), call, **question))}
    except Exception as error:
        known = documented(error)
        return {"error": {"code": known.code.value, "message": known.message}}
