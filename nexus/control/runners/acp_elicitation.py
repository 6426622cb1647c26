"""Forms that an agent process wants filled in: as a question to the operators, and its answer in words as values."""

from __future__ import annotations

from typing import Any

from acp.schema import ElicitationSchema

MOST = 30  # fields that are asked for; an agent that wants more is declined
YES, NO = frozenset(("yes", "true", "on", "1")), frozenset(("no", "false", "off", "0"))


class NoAnswer(Exception):
    """Words that do not fill in the form; the message says why, for operators."""


def as_question(schema: ElicitationSchema) -> str:
    """Return what to fill in: a line for each field, if there are several, with how to answer."""
    fields = schema.properties or {}
    lines = [_described(name, field, name in (schema.required or [])) for name, field in fields.items()]
    return "\n".join([*(["Answer with a line `name: value` for each:"] if len(fields) > 1 else []), *lines])


def values_in(schema: ElicitationSchema, words: str) -> dict[str, Any]:
    """Return the values that an answer gives. Raises NoAnswer."""
    fields = schema.properties or {}
    given = dict.fromkeys(fields, words) if len(fields) == 1 else _lines(words)
    if unknown := sorted(given.keys() - fields.keys()):
        raise NoAnswer(f"there is no field {unknown[0][:100]!r}")
    if missing := [name for name in schema.required or [] if not given.get(name, "").strip()]:
        raise NoAnswer(f"{missing[0][:100]!r} is missing")
    return {name: _value(name, fields[name], text.strip()) for name, text in given.items() if text.strip()}


def _lines(words: str) -> dict[str, str]:
    given = {}
    for line in filter(str.strip, words.splitlines()):
        name, colon, text = line.partition(":")
        if not colon:
            raise NoAnswer(f"{line[:100]!r} is no `name: value`")
        given[name.strip()] = text
    return given


def _described(name: str, field: Any, required: bool) -> str:
    about = ": ".join(filter(None, (getattr(field, "title", None), getattr(field, "description", None))))
    choices = _choices(field)
    parts = [
        f"{name} ({field.type}{', required' if required else ''})",
        about,
        f"one of: {', '.join(choices)}" if choices else "",
        "several between commas" if field.type == "array" else "",
    ]
    return "; ".join(filter(None, parts))


def _choices(field: Any) -> dict[str, str]:
    """Return the values that a field takes, each with its title; none if it takes any."""
    items = getattr(field, "items", field)
    named = getattr(items, "one_of", None) or getattr(items, "any_of", None) or []
    return {value: value for value in getattr(items, "enum", None) or []} | {each.const: each.title for each in named}


def _value(name: str, field: Any, text: str) -> Any:
    try:
        match field.type:
            case "integer":
                return int(text)
            case "number":
                return float(text)
            case "boolean" if text.lower() in YES | NO:
                return text.lower() in YES
            case "array":
                return [_choice(field, part.strip()) for part in text.split(",")]
            case "string":
                return _choice(field, text)
    except ValueError:
        pass
    raise NoAnswer(f"{name[:100]!r} takes no {text[:100]!r}")


def _choice(field: Any, text: str) -> str:
    """Return the value of a choice, which may be named by its title. Raises ValueError."""
    choices = _choices(field)
    if not choices or text in choices:
        return text
    by_title = {title: value for value, title in choices.items()}
    if text not in by_title:
        raise ValueError(text)
    return by_title[text]
