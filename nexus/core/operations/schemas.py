"""The schema of an operation's parameters, as agents are told of it.

OpenAI, Gemini and Anthropic take different subsets of JSON Schema, and refuse a whole request over one schema beyond
theirs. What is said here is in all three: an object always has its properties, a type is one word, a list has items,
and there are no defaults. tests/mcp_bridge/test_schemas.py has their rules.
"""

from __future__ import annotations

import json
from typing import Any

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
