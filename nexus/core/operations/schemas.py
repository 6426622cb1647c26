"""The schema of an operation's parameters, as agents are told of it."""

from __future__ import annotations

from typing import Any

from nexus.core.operations.parameters import Params

Schema = dict[str, Any]


def parameters_schema(params: type[Params], *, accepts_anything: bool = False) -> Schema:
    """A parameter model's JSON schema, without what costs an agent's context and tells it nothing."""
    full = params.model_json_schema()
    schema: Schema = {"type": "object"}
    definitions = full.get("$defs", {})
    if properties := full.get("properties"):
        schema["properties"] = {name: _short(part, definitions) for name, part in properties.items()}
    if required := full.get("required"):
        schema["required"] = required
    if not accepts_anything:
        schema["additionalProperties"] = False
    return schema


def _short(part: Schema, definitions: dict[str, Schema]) -> Schema:
    """One parameter: null and the null default are implied by not being required, bounds are the runner's to tell."""
    if reference := part.get("$ref"):
        part = definitions[reference.rsplit("/", 1)[-1]]
        return {"type": "object", "properties": {name: {} for name in part["properties"]}}
    short: Schema = {}
    options = [_short(option, definitions) for option in part.get("anyOf", []) if option.get("type") != "null"]
    if len(options) == 1:
        short = options[0]
    elif options:
        types = [option["type"] for option in options]
        short = {
            "type": types,
            **{name: value for option in options for name, value in option.items() if name == "items"},
        }
    for keyword in ("type", "enum", "const", "items", "description"):
        if keyword in part:
            short[keyword] = _short(part[keyword], definitions) if keyword == "items" else part[keyword]
    if part.get("default") is not None:
        short["default"] = part["default"]
    return short
