"""The shapes of rows and answers: TypedDicts, built as plain dicts, from which the schemas and the reference are made.

What a function answers is told by its annotation, so that the type checker holds the code to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, get_type_hints

from pydantic import Field, TypeAdapter
from typing_extensions import is_typeddict

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
