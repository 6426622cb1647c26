"""What parameter models are made of: strict types, ids, page sizes and cursors, and the errors of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

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
