"""The parts of parameter models: strict types, ids, page sizes and cursors, and their errors; and the JSON schemas of
parameters, rows and answers.

OpenAI, Gemini and Anthropic take different subsets of JSON Schema, and refuse a whole request over one schema beyond
theirs. A schema of parameters uses only what all three take: an object always has its properties, a type is one word, a
list has items, and there are no defaults. tests/mcp_bridge/test_schemas.py has their rules.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter
from typing_extensions import is_typeddict

from nexus.core.operations.errors import Code, ErrorCode, invalid

MAX_ID = 255
MAX_INTEGER = 2**63 - 1
MAX_IDS_A_CALL = 1000


class Params(BaseModel):
    """The base of every parameter model: strict types, and an unknown argument is an error."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)


class Nothing(Params):
    """No parameters."""


@dataclass(frozen=True)
class FieldErrors:
    """Mark a parameter whose errors have a code of their own instead of VALIDATION_ERROR.

    Of several errors in one call the one with the lowest `rank` is returned.
    """

    absent: ErrorCode = Code.VALIDATION_ERROR
    malformed: ErrorCode = Code.VALIDATION_ERROR
    rank: int = 2


@dataclass(frozen=True)
class ShownAs:
    """Mark a parameter that accepts more than agents are shown: the schema that they see."""

    schema: Mapping[str, Any]


@dataclass(frozen=True)
class Terse:
    """Mark a parameter that agents understand by its name and values; its description is only for the reference."""


@dataclass(frozen=True)
class Outside:
    """Mark a parameter that leads outside the store, such as a path, which may never answer.

    It is touched before the call, on a thread that blocks no other call; `silent` is the error if it does not answer.
    If the touch `resolves` a text, the call gets what that led to with the parameter (see Reached).
    """

    touch: Callable[[Any], object]
    silent: ErrorCode
    resolves: bool = False


@dataclass(frozen=True)
class OfConnection:
    """Mark a parameter that names the project: if it is left out, it is the connection's, unless the call has
    `unless`."""

    unless: str = ""


def not_blank(text: str) -> str:
    """Return the text. Raises ValueError if it is blank."""
    if not text.strip():
        raise ValueError("must not be blank")  # a blank id could be registered and never addressed
    return text


Id = Annotated[str, Field(min_length=1, max_length=MAX_ID), AfterValidator(not_blank)]
Label = Annotated[str, Field(max_length=MAX_ID)]
Cursor = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
Limit = Annotated[int, Field(ge=1, description="Page size; pinned to the maximum.")]


def whole_number(text: Any, highest: int = MAX_INTEGER) -> int | None:
    """Return the number from 0 to `highest` that a text of ASCII digits spells, however it is padded; None for another
    text.

    All ids and sizes that come as text are parsed here: Python's own parser accepts other scripts' digits, signs and
    underscores.
    """
    if not isinstance(text, str) or not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(highest)) or int(digits) > highest:
        return None
    return int(digits)


def parse_cursor(given: Any) -> int:
    """Return a cursor that is given as a text or a number. Raises VALIDATION_ERROR."""
    whole = type(given) is int and 0 <= given <= MAX_INTEGER
    number = given if whole else whole_number(given)
    if number is None:
        raise invalid("cursor must be a whole number, 0 or more; pass back the one you were given.", field="cursor")
    return int(number)


Schema = dict[str, Any]
SILENT: tuple[Any, ...] = (None, False, "", [])  # defaults that go without saying


def parameters_schema(params: type[Params], *, accepts_anything: bool = False) -> Schema:
    """Return a parameter model's JSON schema, without parts that cost an agent's context and tell it nothing."""
    full = params.model_json_schema()
    definitions = full.get("$defs", {})
    properties = {name: _short(part, definitions) for name, part in full.get("properties", {}).items()}
    for name, declared in params.model_fields.items():
        for shown in (each for each in declared.metadata if isinstance(each, ShownAs)):
            properties[name] = {**shown.schema, **_description(properties[name])}
        if any(isinstance(each, Terse) for each in declared.metadata):
            properties[name].pop("description", None)
    schema: Schema = {"type": "object", "properties": properties}
    if required := full.get("required"):
        schema["required"] = required
    if not accepts_anything:
        schema["additionalProperties"] = False
    return schema


def _short(part: Schema, definitions: dict[str, Schema]) -> Schema:
    """Return one parameter's schema. That it is not required implies null and a null default; the dispatch reports
    bounds."""
    if reference := part.get("$ref"):
        return _short(definitions[reference.rsplit("/", 1)[-1]], definitions)
    options = [_short(option, definitions) for option in part.get("anyOf", []) if option.get("type") != "null"]
    short: Schema = {}
    if len(options) == 1:
        short = options[0]
    elif options:
        short = {"anyOf": options}
    for keyword in ("type", "enum"):
        if keyword in part:
            short[keyword] = part[keyword]
    if "const" in part:
        short |= {"type": part["type"], "enum": [part["const"]]}
    if "items" in part:
        short["items"] = _short(part["items"], definitions)
    if fields := part.get("properties"):
        short["properties"] = {name: _short(field, definitions) for name, field in fields.items()}
        short |= {name: part[name] for name in ("required", "additionalProperties") if name in part}
    if "type" not in short and "anyOf" not in short:
        short["type"] = "object"  # any JSON
    return {**short, **_description(part)}


def _description(part: Schema) -> Schema:
    """Return the descriptive part of a parameter's schema: its purpose, and its value when it is left out."""
    words = [part["description"]] if "description" in part else []
    if part.get("default") not in SILENT:
        words.append(f"Default: {json.dumps(part['default'])}.")
    return {"description": " ".join(words)} if words else {}


Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]  # nexus.core.clock.iso's


def one_of(words: Iterable[str], description: str | None = None) -> Any:
    """Mark a text that must be one of some words."""
    return Field(description=description, json_schema_extra={"enum": [str(word) for word in words]})


def shape_of(call: Callable[..., Any]) -> type[Any] | None:
    """Return the TypedDict that a function is annotated to return; None if it returns something else."""
    answer = get_type_hints(call).get("return")
    return answer if is_typeddict(answer) else None


def json_schema(shape: type[Any]) -> dict[str, Any]:
    """Return the JSON schema of a shape; shapes that it refers to are in its `$defs`, named as OpenAPI does."""
    return TypeAdapter(shape).json_schema(ref_template="#/components/schemas/{model}", mode="serialization")


def answer_schema(shape: type[Any]) -> Schema:
    """Return a JSON schema of a shape's fields and their types, without what is inside. It requires none, because an
    error has others."""
    described = json_schema(shape)
    definitions = described.get("$defs", {})
    fields: dict[str, Schema] = {}
    for name, part in described.get("properties", {}).items():
        options = [definitions.get(each.get("$ref", "").rpartition("/")[2], each) for each in part.get("anyOf", [part])]
        types = list(dict.fromkeys(option["type"] for option in options if "type" in option))
        fields[name] = {"type": types[0] if len(types) == 1 else types} if len(types) == len(options) else {}
    return {"type": "object", "properties": fields}
