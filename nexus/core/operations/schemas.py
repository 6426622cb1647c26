"""The schemas of an operation's parameters, rows and answer.

OpenAI, Gemini and Anthropic take different subsets of JSON Schema, and refuse a whole request over one schema beyond
theirs. What a schema of parameters says is in all three: an object always has its properties, a type is one
word, a list has items, and there are no defaults. tests/mcp_bridge/test_schemas.py has their rules.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Annotated, Any, get_type_hints

from pydantic import Field, TypeAdapter
from typing_extensions import is_typeddict

from nexus.core.operations.parameters import Params, Shown, Terse

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
