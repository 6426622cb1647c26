"""The JSON Schemas of fixtures and of the state files, and what breaks them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import best_match
from referencing import Registry, Resource

from tests.conformance.assertions import compiled, is_time

STATE_FILES = {
    ".nexus/state/plan.json": "plan",
    ".nexus/state/tasks.json": "tasks",
    ".nexus/state/runtime.json": "runtime",
    ".nexus/state/agent-tracker.json": "agent-tracker",
    ".nexus/history.json": "history",
}
FORMATS = FormatChecker(formats=())


@FORMATS.checks("date-time")
def _is_time(value: object) -> bool:
    return not isinstance(value, str) or is_time(value)


@FORMATS.checks("regex", raises=re.error)
def _is_regex(value: object) -> bool:
    return not isinstance(value, str) or bool(re.compile(value))


@FORMATS.checks("value-path", raises=ValueError)
def _is_value_path(value: object) -> bool:
    return not isinstance(value, str) or bool(compiled(value))


@FORMATS.checks("project-file")
def is_project_file(value: object) -> bool:
    """Whether a path stays in the project directory, written as any system reads it."""
    if not isinstance(value, str):
        return True
    path = PurePosixPath(value)
    strange = path.is_absolute() or ".." in path.parts or not path.parts or not value.isprintable()
    return not strange and not any(sign in value for sign in "\\:{}")


def parsed(text: bytes) -> Any:
    """A JSON document. Raises ValueError for anything else, and for one with text that no wire carries."""
    try:
        document = json.loads(text.decode(), parse_constant=_refuse)
        json.dumps(document, ensure_ascii=False).encode()
        return document
    except RecursionError:
        raise ValueError("is nested too deep") from None


def problem(schema: str, document: Any) -> str | None:
    """What breaks a schema first of all, with where that is; None for a document that keeps it."""
    error = best_match(VALIDATORS[schema].iter_errors(document))
    return error and f"at {error.json_path}: {error.message[:300]}"


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _validators() -> Iterator[tuple[str, Draft202012Validator]]:
    files = Path(__file__).with_name("schemas").glob("*.schema.json")
    schemas = {file.name: json.loads(file.read_text()) for file in files}
    resources = [(name, Resource.from_contents(schema)) for name, schema in schemas.items()]
    registry: Registry[Any] = Registry().with_resources(resources)
    for name, schema in schemas.items():
        Draft202012Validator.check_schema(schema)
        yield (
            name.removesuffix(".schema.json"),
            Draft202012Validator(schema, registry=registry, format_checker=FORMATS),
        )


VALIDATORS = dict(_validators())
