"""Titles of handoffs whose creator gave none. Total functions over plain values."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

from coordination.routing import Target, describe

MAX_TITLE = 200  # characters
NAMING = ("title", "task", "instructions", "summary")  # members of a JSON payload that say what the work is
READ = 65_536  # characters of a payload's text that are looked into

ACTING = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # on terminals, or which way text runs


def title_of(payload: str | None, target: Target) -> str:
    """Return the first line of a payload's text, or the name within its JSON; else whom the work is for."""
    text = payload or ""
    named = _named(text)
    return single_line(text if named is None else named) or single_line(f"Work for {describe(target)}")


def in_quotes(title: str) -> str:
    """Quote a title within a sentence, so that a reader sees where text by an agent ends."""
    return f"“{title}”"


def _named(text: str) -> str | None:
    """Return the name within a JSON object, empty where it has none and for a JSON list; None for other texts."""
    if text.lstrip()[:1] not in ("{", "[") or len(text) > READ:
        return None
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    said = [value.get(name) for name in NAMING] if isinstance(value, dict) else []
    return next((text for text in said if isinstance(text, str) and text.strip()), "")


def single_line(text: str) -> str:
    """Return the first line with visible text, cut to the width of a list, without control characters that would
    affect the text around it."""
    lines = (" ".join(ACTING.sub("", line).split()) for line in text[:READ].splitlines())
    line = next((line for line in lines if any(map(_shows, line))), "")
    return line if len(line) <= MAX_TITLE else f"{line[: MAX_TITLE - 1]}…"


def _shows(character: str) -> bool:
    return unicodedata.category(character)[0] not in "CZM"
