"""Arguments are checked against an operation's parameter model; what no store or peer could hold is refused first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from core.operations.errors import NexusError, invalid
from core.operations.parameters import FieldErrors, Params
from core.operations.registry import Operation

MAX_NESTING = 64


def validated(operation: Operation[Any], arguments: Mapping[str, Any] | None) -> Params:
    """The parameters of a call. Raises VALIDATION_ERROR, or the code that a parameter declares for its errors."""
    model: type[Params] = operation.params
    if operation.accepts_anything:
        return model()
    given = arguments or {}
    problems = [(FieldErrors.rank, problem) for problem in unstorable(given)]
    try:
        params = model.model_validate(given)
    except ValidationError as error:
        problems += [_explained(operation, detail) for detail in error.errors(include_url=False, include_context=True)]
    if problems:
        raise min(problems, key=lambda ranked: ranked[0])[1]
    return params


def unstorable(arguments: Mapping[str, Any]) -> list[NexusError]:
    """A VALIDATION_ERROR for each argument with what JSON can carry and a store or a peer cannot.

    That is NUL characters, lone surrogates, NaN and infinities, and nesting deeper than 64.
    """
    problems = ((name, next(_unstorable({name: value}), None)) for name, value in arguments.items())
    return [invalid(f"{name[:200]!r} {problem}.", field=name[:200]) for name, problem in problems if problem]


def _unstorable(root: Any) -> Iterator[str]:
    pending = [(root, 0)]
    while pending:
        value, depth = pending.pop()
        if isinstance(value, str):
            if "\x00" in value:
                yield "holds a NUL character; remove it"
            if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
                yield "holds a lone surrogate; send well-formed Unicode"
        elif isinstance(value, float) and not math.isfinite(value):
            yield "holds NaN or an infinity, which JSON does not have"
        elif isinstance(value, dict | list):
            if depth > MAX_NESTING:
                yield f"is nested deeper than {MAX_NESTING} levels"
                return
            items = [*value.keys(), *value.values()] if isinstance(value, dict) else value
            pending.extend((item, depth + 1) for item in items)


PROBLEMS: Mapping[str, str] = {
    "missing": "is required",
    "string_type": "must be a string",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must hold at least {min_length}",
    "too_long": "must hold at most {max_length}",
    "literal_error": "must be one of {expected}",
    "value_error": "{error}",
}


def _explained(operation: Operation[Any], detail: ErrorDetails) -> tuple[int, NexusError]:
    """The error for one of pydantic's, after the rank of its parameter."""
    name = str(detail["loc"][0]) if detail["loc"] else "arguments"
    info = operation.params.model_fields.get(name)
    declared = next((mark for mark in info.metadata if isinstance(mark, FieldErrors)), None) if info else None
    declared = declared or FieldErrors()
    if detail["type"] == "extra_forbidden" and len(detail["loc"]) > 1:
        return declared.rank, invalid(f"Unknown key {str(detail['loc'][-1])[:200]!r} in {name}.", field=name)
    if detail["type"] == "extra_forbidden":
        takes = ", ".join(operation.params.model_fields) or "no arguments"
        problem = f"Unknown argument {name[:200]!r}; {operation.name} takes {takes}."
        return declared.rank, invalid(problem, field=name[:200])
    given = detail["input"]
    absent = detail["type"] == "missing" or given is None or (isinstance(given, str) and not given.strip())
    said = PROBLEMS.get("missing" if given is None else detail["type"], "is not valid")
    return declared.rank, NexusError(
        declared.absent if absent else declared.malformed,
        f"{name} {said.format_map(detail.get('ctx', {}))}.",
        {"field": name},
    )
