"""The pages of the reference as Markdown, made from the code: operations, errors, settings, MCP, commands."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from nexus.core.config import LARGEST, TABLE, flag, variable
from nexus.core.operations.errors import ErrorCode
from nexus.core.operations.parameters import MAX_INTEGER, json_schema
from nexus.core.operations.registry import Operation, Toolset
from nexus.core.verbs import VerbsParser

Schema = Mapping[str, Any]

UNBOUNDED = {LARGEST, MAX_INTEGER}  # bounds of the machine, not of the thing


def page(title: str, introduction: str, blocks: Iterable[str]) -> str:
    """A whole page of Markdown."""
    return "\n\n".join([f"# {title}", introduction, *blocks]) + "\n"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def code(value: Any) -> str:
    return f"`{value}`"


def comma_list(values: Iterable[Any]) -> str:
    return ", ".join(code(value) for value in values)


# Operations


def operations(toolsets: Collection[Toolset]) -> str:
    """What all operations have in common, and the list of toolsets."""
    return page(
        "Operations",
        "Each operation is an MCP tool, unless it says otherwise, and `POST /api/v1/{toolset}/operations/{name}` with "
        "the same parameters as a JSON object; `POST /api/v1/operations/{name}` is `coordination`'s. Unless its "
        "toolset says otherwise, an answer is the envelope: "
        '`{"ok": true, "data": …}` or `{"ok": false, "error": {"code", "message", "details"}}`. '
        "Beside the errors listed, any may answer `DB_ERROR` and `INTERNAL_ERROR`; [errors](errors.md) tells what each "
        "means. A connection bound to an agent by its key "
        "acts as that agent only; another id is `NOT_OWNER`. A *time* is UTC in ISO 8601, with microseconds.",
        [
            table(
                ["toolset", "what it is for"],
                [[f"[{each.name}]({each.name}.md)", each.description] for each in toolsets],
            )
        ],
    )


def toolset(toolset: Toolset) -> str:
    """The operations of a toolset, those that agents have as tools first, and the rows of their answers."""
    tools = sorted((operation for operation in toolset.operations.values() if operation.tool), key=toolset.place)
    # their modules are imported as they are needed: the order must not depend on what was needed first
    others = sorted(
        (operation for operation in toolset.operations.values() if not operation.tool),
        key=lambda operation: operation.call.__module__,
    )
    had = "A connection that chooses nothing gets it." if toolset.default else "A connection gets it if it chooses it."
    bare = (
        ' It answers with the data itself; an error is `{"error": {"code", "message"}}`.' if toolset.reply.bare else ""
    )
    return page(
        f"Operations: {toolset.name}",
        f"{toolset.description} {len(tools)} operations are tools of agents. {had}{bare} "
        "[Operations](operations.md) tells what all have in common.",
        [
            *map(operation_block, tools),
            *([f"## For operators alone\n\n{len(others)} operations; no agent gets them as tools."] if others else []),
            *map(operation_block, others),
            "## Rows\n\nWhat answers hold.",
            *_rows(toolset.operations.values()),
        ],
    )


def operation_block(operation: Operation[Any]) -> str:
    parts = [f"### {operation.name}", operation.description]
    if operation.accepts_anything:
        parts.append("Takes any parameters.")
    elif rows := list(_parameters(operation.params.model_json_schema())):
        parts.append(table(["parameter", "type", "default", "meaning"], rows))
    else:
        parts.append("No parameters.")
    if operation.data:
        parts += ["Answers:", _fields(json_schema(operation.data))]
    facts = [f"Who may: {_who(operation)}.", f"Hints: {_hints(operation)}."]
    if operation.errors:
        facts.append(f"Errors: {comma_list(sorted(operation.errors))}.")
    return "\n\n".join([*parts, "\n".join(f"- {fact}" for fact in facts)])


def _rows(operations: Iterable[Operation[Any]]) -> Iterator[str]:
    """The shapes that stand within answers, by name."""
    found = {}
    for operation in operations:
        if operation.data:
            found.update(json_schema(operation.data).get("$defs", {}))
    for name, row in sorted(found.items()):
        yield "\n\n".join([f"### {name}", *([row["description"]] if "description" in row else []), _fields(row)])


def _fields(shape: Schema) -> str:
    """The table of what an answer, or a row of it, holds."""
    rows = []
    for name, part in shape["properties"].items():
        left_out = [] if name in shape.get("required", ()) else ["Omitted if there is none."]
        rows.append([code(name), _type_of(part), " ".join([*filter(None, [part.get("description")]), *left_out])])
    width = 3 if any(meaning for *_, meaning in rows) else 2
    return table(["field", "type", "meaning"][:width], [row[:width] for row in rows])


def _type_of(part: Schema) -> str:
    """The type of what an answer holds."""
    if reference := part.get("$ref"):
        name = reference.rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in part:
        return " or ".join(map(_type_of, part["anyOf"]))
    if "enum" in part:
        return comma_list(part["enum"])
    if "const" in part:
        return code(json.dumps(part["const"]))
    if part.get("type") == "array":
        return f"list of {_type_of(part['items'])}"
    if isinstance(part.get("additionalProperties"), dict):
        return f"object of {_type_of(part['additionalProperties'])} by name"
    return "time" if part.get("format") == "date-time" else part.get("type", "any JSON")


def _who(operation: Operation[Any]) -> str:
    if operation.operator_only:
        return "operators"
    if operation.acts_as is None:
        return "every caller"
    who = f"the agent that {code(operation.acts_as)} names"
    who += "".join(f"; {requirement.who}" for requirement in operation.requires)
    return who


def _hints(operation: Operation[Any]) -> str:
    if operation.read_only:
        hints = ["reads only"]
    else:
        hints = ["writes"]
        hints += ["idempotent"] if operation.idempotent else []
        hints += ["destructive"] if operation.destructive else []
    return ", ".join([*hints, *(["may wait"] if operation.wait else [])])


def _parameters(model: Schema) -> Iterator[list[str]]:
    required = model.get("required", ())
    for name, part in model.get("properties", {}).items():
        default = "required" if name in required else _default(part.get("default"))
        yield [code(name), _type(part, model.get("$defs", {})), default, _meaning(part, model.get("$defs", {}))]


def _default(value: Any) -> str:
    return "" if value is None else code(json.dumps(value))


def _options(part: Schema, definitions: Schema) -> list[Schema]:
    """What a parameter may be; null means no more than that it may be left out."""
    if reference := part.get("$ref"):
        part = definitions[reference.rsplit("/", 1)[-1]]
    return [option for each in part["anyOf"] for option in _options(each, definitions)] if "anyOf" in part else [part]


def _type(part: Schema, definitions: Schema) -> str:
    names = []
    for option in _options(part, definitions):
        if "enum" in option:
            names.append(comma_list(option["enum"]))
        elif "const" in option:
            names.append(code(option["const"]))
        elif option.get("type") == "array":
            names.append(f"list of {_type(option['items'], definitions)}")
        elif option.get("type") != "null":
            names.append(option.get("type", "any JSON"))
    return " or ".join(names)


def _meaning(part: Schema, definitions: Schema) -> str:
    options = _options(part, definitions)
    description = part.get("description") or next((o["description"] for o in options if "description" in o), "")
    bounds = [bound for option in options for bound in _bounds(option)]
    keys = [f"Keys: {comma_list(option['properties'])}." for option in options if "properties" in option]
    return " ".join([*([description] if description else []), *keys, *dict.fromkeys(bounds)])


def _bounds(option: Schema) -> Iterator[str]:
    for lowest, highest, of in (
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " items"),
        ("minProperties", "maxProperties", " keys"),
        ("minimum", "maximum", ""),
    ):
        low, high = option.get(lowest), option.get(highest)
        if high is not None and high not in UNBOUNDED:
            yield f"{low}–{high}{of}." if low else f"At most {high}{of}."
        elif low is not None:
            yield f"At least {low}{of}."


# Errors and settings


def errors(codes: Sequence[ErrorCode]) -> str:
    """Every code an envelope may carry, with the status that REST answers it with."""
    return page(
        "Errors",
        f"The {len(codes)} codes that an answer may carry in `error.code`. The message beside it says what to do; "
        "`details`, where there is one, holds what a program needs.",
        [table(["code", "HTTP", "meaning"], [[code(each), str(each.status), each.meaning] for each in codes])],
    )


def settings() -> str:
    """Every setting."""
    rows = []
    for name, declared in TABLE.items():
        values = comma_list(declared.choices) or (f"from {declared.minimum}" if declared.minimum is not None else "")
        if declared.minimum is not None and declared.maximum not in UNBOUNDED:
            values = f"{declared.minimum}–{declared.maximum}"
        default = (
            ""
            if declared.default is None
            else code(json.dumps(declared.default) if isinstance(declared.default, bool) else declared.default)
        )
        rows.append(
            [
                comma_list([variable(name), flag(name)]),
                default,
                values,
                "at once" if declared.live else "at start",
                declared.help,
            ]
        )
    return page(
        "Settings",
        "A flag overrides the environment variable, which overrides the stored value, which overrides the default. "
        "Every command takes the flags, as `--flag value` or `--flag=value`. An invalid value ends the command with "
        "`CONFIG_ERROR` and exit code 1 before anything is written.\n\n"
        "A setting that applies *at once* can also be stored, on the dashboard's settings page or with "
        "`PATCH /api/v1/settings`; it then holds for every process of the home. A setting that applies *at start* "
        "takes only a flag or a variable. Two variables are not settings: `NEXUS_API_KEY` binds `nexus runmcp` to an "
        "agent, and with `NEXUS_STANDALONE=1` a process works without a hub.",
        [table(["variable, flag", "default", "values", "applies", "meaning"], rows)],
    )


# MCP


def mcp(
    added: Operation[Any],
    texts: Mapping[str, str],
    resources: Iterable[tuple[str, str]],
    prompts: Iterable[tuple[str, str, list[str]]],
) -> str:
    """What an MCP client finds beside the operations; `texts` are the pages themselves, by title."""
    return page(
        "MCP",
        "Tools are the [operations](operations.md). A result is the envelope, as structured content and as text; a "
        "failure sets `isError`. `nexus runmcp` serves them on stdio, and the hub serves the same over HTTP at `/mcp`. "
        "This page describes a connection that chooses no toolsets.",
        [
            f"## {added.name}\n\nThis tool is offered while there are toolsets that the connection has not chosen.\n\n"
            + table(["parameter", "type", "default", "meaning"], _parameters(added.params.model_json_schema())),
            "## Resources\n\n" + table(["resource", "what it is"], [[code(uri), about] for uri, about in resources]),
            "## Prompts\n\n"
            + table(
                ["prompt", "arguments", "what it is"],
                [[code(name), comma_list(a), about] for name, about, a in prompts],
            ),
            "## Texts for agents\n\nThe instructions of the server, and the pages of reference.",
            *(f"### {title}\n\n````text\n{text.strip()}\n````" for title, text in texts.items()),
        ],
    )


# Commands


def commands(parsers: Mapping[str, argparse.ArgumentParser]) -> str:
    """Every command, from its parser."""
    return page(
        "Commands",
        "`nexus COMMAND`, or `python manage.py COMMAND` in a checkout. Every command also takes the flags of the "
        "[settings](settings.md), `--home` first of all. A bad command line ends with `CONFIG_ERROR` and exit code 1.",
        [command_block(name, parser) for name, parser in sorted(parsers.items())],
    )


def command_block(name: str, parser: argparse.ArgumentParser, level: int = 2) -> str:
    """A command or a verb, as its `--help` shows it, and the verbs below it."""
    verbs = parser.verbs if isinstance(parser, VerbsParser) else {}
    blocks = [command_block(f"{name} {verb}", own, level + 1) for verb, own in verbs.items()]
    return "\n\n".join([f"{'#' * level} nexus {name}\n\n```text\n{parser.format_help().rstrip()}\n```", *blocks])
