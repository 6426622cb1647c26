"""What names and messages may be: total functions over plain values."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Iterator
from itertools import count, islice
from typing import Any

MAX_TOPIC_NAME = 255
MAX_AGENT_NAME = 64
MAX_MESSAGE_TYPE = 32
MAX_CLIENT_MESSAGE_ID = 128
MAX_CONTENT_BYTES = 65_536  # of a message's body, and of any metadata as JSON
MAX_OUTBOX = 50
MAX_ITEMS = 20  # messages a sync returns
MAX_WAIT_SECONDS = 86_400  # of a sync
SUGGESTIONS = 3
MAX_MENTIONS = 50  # of a message that are looked up


def printable(text: str) -> str:
    """The text itself. Raises ValueError when it is blank, or holds what is no letter, mark, number, sign or blank."""
    if not text.strip():
        raise ValueError("must not be blank")
    if any(unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp") for letter in text):
        raise ValueError("must not hold control characters or line breaks")
    return text


def content(text: str) -> str:
    """The text itself. Raises ValueError when it is blank or has more than MAX_CONTENT_BYTES in UTF-8."""
    if not text.strip():
        raise ValueError("must not be blank")
    return fitting(text)


def fitting(text: str) -> str:
    """The text itself. Raises ValueError when it has more than MAX_CONTENT_BYTES in UTF-8."""
    if len(text) * 4 > MAX_CONTENT_BYTES and (size := len(text.encode())) > MAX_CONTENT_BYTES:
        raise ValueError(f"has {size} bytes, above the limit of {MAX_CONTENT_BYTES}")
    return text


def metadata(given: dict[str, Any]) -> dict[str, Any]:
    """The object itself. Raises ValueError when its JSON is above MAX_CONTENT_BYTES."""
    fitting(json.dumps(given, ensure_ascii=False))
    return given


def suggestions(wanted: str, taken: Collection[str]) -> list[str]:
    """Names like `wanted` that nobody has, at most MAX_AGENT_NAME characters long."""

    def numbered() -> Iterator[str]:
        for number in count(2):
            ending = f"-{number}"
            yield wanted[: MAX_AGENT_NAME - len(ending)] + ending

    return list(islice((name for name in numbered() if name not in taken), SUGGESTIONS))


def mentioned(text: str) -> set[str]:
    """What stands behind an @ in a text, each with what it may be without the sentence's punctuation; not all names."""
    found = re.findall(r"(?<![\w@])@([^\s@,;:!?()\[\]<>`'\"]{1,255})", text) if "@" in text else []
    return {name for each in found[:MAX_MENTIONS] for name in (each, each.rstrip(".*_"))} - {""}


def renamed(text: str, old: str, new: str) -> str:
    """The text with a name in place of another, where that stands as a word of its own."""
    return re.sub(rf"(?<![\w-]){re.escape(old)}(?![\w-])", lambda found: new, text)
