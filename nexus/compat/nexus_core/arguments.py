"""The arguments of a call as nexus-core takes them: coerced and refused as its schemas are, with its words."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

NOTHING = object()
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
WITH_RADIX = re.compile("0(?:x[0-9a-f]+|o[0-7]+|b[01]+)", re.IGNORECASE)


class InvalidArguments(Exception):
    """Arguments that its schema does not take; the text has a line for each fault."""


def checked(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a tool's schema names. Raises InvalidArguments."""
    faults: list[str] = []
    found = _object(schema, arguments, "", faults)
    if faults:
        raise InvalidArguments("\n".join(faults))
    return found


def _object(schema: Mapping[str, Any], value: Mapping[str, Any], path: str, faults: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, part in schema["properties"].items():
        given = value.get(name, NOTHING)
        if given is NOTHING and name not in schema.get("required", ()):
            continue
        found[name] = _value(part, given, f"{path}.{name}" if path else name, faults)
    return found


def _value(schema: Mapping[str, Any], value: Any, path: str, faults: list[str]) -> Any:
    """Return a value as its schema has it, and add what is wrong with it to the faults."""
    for choice in schema.get("anyOf", ()):  # one of them is null
        if (choice["type"] == "null") == (value is None):
            return _value(choice, value, path, faults)
    kind, allowed = schema["type"], schema.get("enum")
    if isinstance(kind, list):  # or null
        if value is None:
            return None
        (kind,) = set(kind) - {"null"}
    if kind == "integer":
        return _integer(value, path, faults)
    name = kind_of(value)
    if name == "undefined":
        faults.append(f"Required at {path}")
    elif name != kind:
        expected = " | ".join(f"'{each}'" for each in allowed) if allowed else kind
        faults.append(f"Expected {expected}, received {name} at {path}")
    elif allowed and value not in allowed:
        expected = " | ".join(f"'{each}'" for each in allowed)
        faults.append(f"Invalid enum value. Expected {expected}, received '{value}' at {path}")
    elif kind == "array":
        return [_value(schema["items"], each, f"{path}[{index}]", faults) for index, each in enumerate(value)]
    elif kind == "object":
        return _object(schema, value, path, faults)
    return value


def kind_of(value: Any) -> str:
    """Return the name that JavaScript programs have for a type of JSON."""
    if value is NOTHING:
        return "undefined"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _integer(value: Any, path: str, faults: list[str]) -> int:
    number = number_of(value)
    if math.isnan(number):
        faults.append(f"Expected number, received nan at {path}")
        return 0
    whole = math.isfinite(number) and number == int(number)
    if not whole:
        faults.append(f"Expected integer, received float at {path}")
    if number <= 0:
        faults.append(f"Number must be greater than 0 at {path}")
    return int(number) if whole else 0


def number_of(value: Any) -> float | int:
    """Return the number that JavaScript makes of a value of JSON."""
    if isinstance(value, bool) or value is None:
        return int(value or 0)
    if isinstance(value, int):
        return _rounded(value)
    if isinstance(value, float):
        return value
    if isinstance(value, list):
        return number_of(_text(value))
    if not isinstance(value, str):
        return math.nan
    text = value.strip()
    if not text:
        return 0
    if WITH_RADIX.fullmatch(text):
        return _rounded(int(text, 0))
    if text.lstrip("+-") == "Infinity" and len(text) <= len("+Infinity"):
        return -math.inf if text[0] == "-" else math.inf
    return _float(text) if text.isascii() and NUMBER.fullmatch(text) else math.nan


def _rounded(number: int) -> float | int:
    """Return a number as exactly as JavaScript has it."""
    return number if abs(number) < 2**53 else _float(number)


def _float(value: int | str) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _text(value: Any) -> str:
    """Return the text that JavaScript makes of an item of a list."""
    if isinstance(value, list):
        return ",".join(map(_text, value[:2]))  # two make no number, as any more of them
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
