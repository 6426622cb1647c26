"""What parameter models are made of: strict types, ids, page sizes and cursors, and the errors of their own."""

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
    """Base of every parameter model: strict types, and an unknown argument is an error."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)


class Nothing(Params):
    """No parameters."""


@dataclass(frozen=True)
class FieldErrors:
    """Marks a parameter whose errors carry a code of their own, instead of VALIDATION_ERROR.

    Of several errors in one call the one of the lowest `rank` is told.
    """

    absent: ErrorCode = Code.VALIDATION_ERROR
    malformed: ErrorCode = Code.VALIDATION_ERROR
    rank: int = 2


@dataclass(frozen=True)
class Shown:
    """Marks a parameter that takes more than agents are told of it: the schema that they see."""

    schema: Mapping[str, Any]


@dataclass(frozen=True)
class Terse:
    """Marks a parameter that agents understand by its name and its values: what describes it is for the reference."""


@dataclass(frozen=True)
class Outside:
    """Marks a parameter that leads outside the store, as a path does: what is there may never answer.

    It is touched before the call, on a thread that holds up nobody; `silent` is the error where it does not answer.
    Where the touch `resolves` a text, the call has what that led to with the parameter (see Reached).
    """

    touch: Callable[[Any], object]
    silent: ErrorCode
    resolves: bool = False


def not_blank(text: str) -> str:
    """The text itself. Raises ValueError when it is blank."""
    if not text.strip():
        raise ValueError("must not be blank")  # a blank id could be registered and never addressed
    return text


Id = Annotated[str, Field(min_length=1, max_length=MAX_ID), AfterValidator(not_blank)]
Label = Annotated[str, Field(max_length=MAX_ID)]
Cursor = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
Limit = Annotated[int, Field(ge=1, description="Page size; pinned to the maximum.")]


def whole_number(text: Any, highest: int = MAX_INTEGER) -> int | None:
    """The number from 0 to `highest` that a text of ASCII digits spells, however it is padded; None for another text.

    The one parser of ids and sizes that come as text: Python's own takes other scripts' digits, signs and underscores.
    """
    if not isinstance(text, str) or not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(highest)) or int(digits) > highest:
        return None
    return int(digits)


def parse_cursor(given: Any) -> int:
    """A cursor that comes as text or as a number. Raises VALIDATION_ERROR."""
    whole = type(given) is int and 0 <= given <= MAX_INTEGER
    number = given if whole else whole_number(given)
    if number is None:
        raise invalid("cursor must be a whole number, 0 or more; pass back the one you were given.", field="cursor")
    return int(number)


Schema = dict[str, Any]
SILENT: tuple[Any, ...] = (None, False, "", [])  # defaults that go without saying


def parameters_schema(params: type[Params], *, accepts_anything: bool = False) -> Schema:
    """A parameter model's JSON schema, without what costs an agent's context and tells it nothing."""
    full = params.model_json_schema()
    definitions = full.get("$defs", {})
    properties = {name: _short(part, definitions) for name, part in full.get("properties", {}).items()}
    for name, declared in params.model_fields.items():
        for shown in (each for each in declared.metadata if isinstance(each, Shown)):
            properties[name] = {**shown.schema, **_told(properties[name])}
        if any(isinstance(each, Terse) for each in declared.metadata):
            properties[name].pop("description", None)
    schema: Schema = {"type": "object", "properties": properties}
    if required := full.get("required"):
        schema["required"] = required
    if not accepts_anything:
        schema["additionalProperties"] = False
    return schema


def _short(part: Schema, definitions: dict[str, Schema]) -> Schema:
    """One parameter: null and the null default are implied by not being required, bounds are the runner's to tell."""
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
    return {**short, **_told(part)}


def _told(part: Schema) -> Schema:
    """What words say of a parameter: what it is for, and what it is when it is left out."""
    words = [part["description"]] if "description" in part else []
    if part.get("default") not in SILENT:
        words.append(f"Default: {json.dumps(part['default'])}.")
    return {"description": " ".join(words)} if words else {}


Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]  # nexus.core.clock.iso's


def one_of(words: Iterable[str], description: str | None = None) -> Any:
    """Marks a text that is one of some words."""
    return Field(description=description, json_schema_extra={"enum": [str(word) for word in words]})


def shape_of(call: Callable[..., Any]) -> type[Any] | None:
    """The TypedDict that a function is annotated to answer; None where it is no such thing."""
    answer = get_type_hints(call).get("return")
    return answer if is_typeddict(answer) else None


def json_schema(shape: type[Any]) -> dict[str, Any]:
    """The JSON schema of a shape; those that it refers to stand in its `$defs`, and are named in the way of OpenAPI."""
    return TypeAdapter(shape).json_schema(ref_template="#/components/schemas/{model}", mode="serialization")
