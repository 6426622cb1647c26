"""Others' texts in one line of ours."""

from __future__ import annotations

import json


def quoted(value: str | None, length: int) -> str:
    """Return `value` as one JSON string of at most `length` characters, marked if it was cut.

    Line breaks, markup and invisible characters are escaped; a JSON parser gets the text back.
    """
    shown: list[str] = []
    room = length
    for letter in value or "":
        escaped = _escaped(letter)
        room -= len(escaped)
        if room < 0:
            return f'"{"".join(shown)}" (cut)'
        shown.append(escaped)
    return f'"{"".join(shown)}"'


def visible(text: str) -> str:
    """Return a text with a name for each character that is not printable, line breaks and bidi controls among them."""
    return "".join(each if each.isprintable() else f"⟨U+{ord(each):04X}⟩" for each in text)


def _escaped(letter: str) -> str:
    if letter in '<>`"\\' or not letter.isprintable():
        short = json.dumps(letter)[1:-1]
        return short if len(short) > 1 else f"\\u{ord(letter):04x}"
    return letter
