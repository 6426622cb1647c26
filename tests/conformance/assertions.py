"""What a fixture asserts of a JSON document: JSONPath expressions, with the values or matchers expected there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache
from math import inf
from typing import Any, Final

from jsonpath import JSONPath, JSONPathEnvironment
from jsonpath.exceptions import JSONPathError

LENGTH = ".length"
LONGEST = 500  # characters of a path: each of its steps costs a level of the stack
STANDARD = JSONPathEnvironment(strict=True)  # RFC 9535, without the library's own additions


class Absent:
    """What stands where a document has no value; it counts as null."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT: Final = Absent()


@cache
def compiled(path: str) -> JSONPath:
    """A path to one value, compiled. Raises ValueError for any other text."""
    if len(path) > LONGEST:
        raise ValueError(f"has more than {LONGEST} characters")
    try:
        found = STANDARD.compile(path)
    except (JSONPathError, RecursionError):
        raise ValueError("is no JSONPath") from None
    if not isinstance(found, JSONPath) or not found.singular_query():
        raise ValueError("does not lead to one value")
    return found


def value_at(document: Any, path: str) -> Any:
    """The value at a path, or ABSENT. Of a list, `.length` at the end is the number of its items."""
    query = compiled(path)
    found: Any
    if isinstance(document, str):  # which the library takes for the text of a document
        found = document if str(query) == "$" else ABSENT
    else:
        found = next((match.value for match in query.finditer(document)), ABSENT)
    if found is ABSENT and path.endswith(LENGTH):
        counted = value_at(document, path.removesuffix(LENGTH))
        return len(counted) if isinstance(counted, list) else ABSENT
    return found


def disagreements(document: Any, assertions: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """What a document holds other than it should: a line for each, with the path, the expected and the found."""
    for path, expected in assertions:
        found = value_at(document, path)
        if not _agrees(found, expected):
            yield f"{path}: expected {_told(expected)}, found {_told(found)}"


def is_time(text: str) -> bool:
    """Whether a text is a moment in ISO 8601: date, time and offset from UTC."""
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _agrees(found: Any, expected: Any) -> bool:
    if isinstance(expected, dict):
        return _matches(found, expected)
    if expected is None:
        return found is None or found is ABSENT
    if _is_number(expected):
        return _is_number(found) and found == expected
    return type(found) is type(expected) and found == expected


def _matches(found: Any, matcher: Mapping[str, Any]) -> bool:
    match matcher["type"]:
        case "number":
            return _is_number(found) and matcher.get("min", -inf) <= found <= matcher.get("max", inf)
        case "string":
            long = isinstance(found, str) and len(found) >= matcher.get("minLength", 0)
            return long and re.search(matcher.get("pattern", ""), found) is not None
        case "iso8601":
            return isinstance(found, str) and is_time(found)
        case _:
            return isinstance(found, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _told(value: Any) -> str:
    """A value in a line of its own, cut where it is long."""
    text = repr(value) if value is ABSENT else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:200]}…"
