"""Validation of arguments against an operation's parameter model, after a check for values that no store or peer could
hold."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from nexus.core.operations.errors import NexusError, invalid
from nexus.core.operations.parameters import MAX_IDS_A_CALL, FieldErrors, Params
from nexus.core.operations.registry import Operation

MAX_NESTING = 64
MAX_NODES = 50_000  # values and keys of one free-form argument; JSON within the default max_inline_bytes holds fewer
MAX_ITEMS = 2 * MAX_IDS_A_CALL  # of one that takes no free-form JSON
MAX_ARGUMENTS = 100
SURROGATE = re.compile("[\ud800-\udfff]")


def validated(operation: Operation[Any], arguments: Mapping[str, Any] | None) -> Params:
    """Return the parameters of a call. Raises VALIDATION_ERROR, or the code that a parameter declares for its
    errors."""
    model: type[Params] = operation.params
    if operation.accepts_anything:
        return model()
    given = arguments or {}
    if len(given) > MAX_ARGUMENTS:
        raise invalid(
            f"{operation.name} takes {', '.join(model.model_fields)}; this call names {len(given)} arguments."
        )
    problem = unstorable(given, lambda name: MAX_NODES if name in _free_form(model) else MAX_ITEMS)
    problems = [(FieldErrors.rank, problem)] if problem else []
    try:
        params = model.model_validate(given)
    except ValidationError as error:
        problems += [_explained(operation, detail) for detail in error.errors(include_url=False, include_context=True)]
    if problems:
        raise min(problems, key=lambda ranked: ranked[0])[1]
    return params


@cache
def _free_form(model: type[Params]) -> frozenset[str]:
    """Return the parameters that may be any JSON, at least in part."""

    def free(annotation: Any) -> bool:
        return annotation is Any or any(map(free, get_args(annotation)))

    return frozenset(name for name, info in model.model_fields.items() if free(info.annotation))


def unstorable(arguments: Mapping[str, Any], bound: Callable[[str], float]) -> NexusError | None:
    """Return a VALIDATION_ERROR for the first argument with values that JSON allows and a store or a peer does not.

    These are NUL characters, lone surrogates, NaN and infinities, and nesting deeper than 64. Raises it for an argument
    with more values and keys than its `bound`, without walking through it.
    """
    for name, argument in arguments.items():
        left: float | None = None
        pending: list[tuple[Any, int]] = [(name, 0), (argument, 1)]
        while pending:
            value, depth = pending.pop()
            problem = None
            if isinstance(value, dict | list):
                left = (bound(name) if left is None else left) - len(value) * (2 if isinstance(value, dict) else 1)
                if left < 0:
                    raise _about(name, f"holds more than {bound(name):.0f} values and keys")
                if depth > MAX_NESTING:
                    problem = f"is nested deeper than {MAX_NESTING} levels"
                else:
                    items = [*value.keys(), *value.values()] if isinstance(value, dict) else value
                    pending.extend((item, depth + 1) for item in items)
            elif isinstance(value, str):
                problem = _unstorable_text(value)
            elif isinstance(value, float) and not math.isfinite(value):
                problem = "holds NaN or an infinity, which JSON does not have"
            if problem:
                return _about(name, problem)
    return None


def _unstorable_text(text: str) -> str | None:
    if "\x00" in text:
        return "holds a NUL character; remove it"
    if not text.isascii() and SURROGATE.search(text):
        return "holds a lone surrogate; send well-formed Unicode"
    return None


def _about(name: str, problem: str) -> NexusError:
    return invalid(f"{name[:200]!r} {problem}.", field=name[:200])


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
    "model_type": "must be an object",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must hold at least {min_length}",
    "too_long": "must hold at most {max_length}",
    "literal_error": "must be one of {expected}",
    "value_error": "{error}",
}


def refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and the infinities in `json.loads`, which accepts them although JSON does not. Raises ValueError."""
    raise ValueError(name)


def _parameter_path(name: str, loc: Sequence[int | str], info: FieldInfo | None) -> str:
    """Return the location of an error, by key and by the number of the item: `filters.type`, `outbox[0].reply_to`."""
    inside = loc[2:] if info and _is_choice(info.annotation) else loc[1:]  # which type was tried is pydantic's own
    return name + "".join(f"[{part}]" if isinstance(part, int) else f".{part[:200]}" for part in inside)


def _is_choice(annotation: Any) -> bool:
    """Return whether a parameter accepts several types besides null."""
    types = [each for each in get_args(annotation) if each is not NoneType]
    return get_origin(annotation) in (Union, UnionType) and len(types) > 1


def _explained(operation: Operation[Any], detail: ErrorDetails) -> tuple[int, NexusError]:
    """Return the error for one of pydantic's, preceded by the rank of its parameter."""
    name = str(detail["loc"][0]) if detail["loc"] else "arguments"
    info = operation.params.model_fields.get(name)
    declared = next((mark for mark in info.metadata if isinstance(mark, FieldErrors)), None) if info else None
    declared = declared or FieldErrors()
    if detail["type"] == "extra_forbidden" and len(detail["loc"]) > 1:
        path = _parameter_path(name, detail["loc"][:-1], info)
        return declared.rank, invalid(f"Unknown key {str(detail['loc'][-1])[:200]!r} in {path}.", field=name)
    if detail["type"] == "extra_forbidden":
        takes = ", ".join(operation.params.model_fields) or "no arguments"
        problem = f"Unknown argument {name[:200]!r}; {operation.name} takes {takes}."
        return declared.rank, invalid(problem, field=name[:200])
    given = detail["input"]
    absent = detail["type"] == "missing" or given is None or (isinstance(given, str) and not given.strip())
    said = PROBLEMS.get("missing" if given is None else detail["type"], "is not valid")
    # Of several types one that does not fit says less than what is wrong with the one that was meant.
    another = info is not None and _is_choice(info.annotation) and len(detail["loc"]) == 2
    text = f"{_parameter_path(name, detail['loc'], info)} {said.format_map(detail.get('ctx', {}))}."
    if detail["type"] == "missing" and info and info.description and get_origin(info.annotation) is Literal:
        text += f" {info.description}"  # which of its values is the usual one
    return declared.rank + (another and detail["type"].endswith("_type")), NexusError(
        declared.absent if absent else declared.malformed, text, {"field": name}
    )
