"""Validation of names and messages: total functions over plain values."""

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
MAX_CONTENT_BYTES = 65_536  # of a message's body, and of metadata as JSON
MAX_OUTBOX = 50
MAX_ITEMS = 20  # messages that one sync returns
MAX_WAIT_SECONDS = 86_400  # of a sync
SUGGESTIONS = 3
MAX_MENTIONS = 50  # mentions in one message that are looked up
WORD = r"[^\s@,;:!?()\[\]<>`'\"]{1,255}"
MENTION = re.compile(rf"(?<![\w@])@({WORD}(?:@{WORD})?)")


def printable(text: str) -> str:
    """Return the text. Raises ValueError when it is blank, or has other characters than letters, marks, numbers, signs
    and blanks."""
    if not text.strip():
        raise ValueError("must not be blank")
    if any(unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp") for letter in text):
        raise ValueError("must not hold control characters or line breaks")
    return text


def content(text: str) -> str:
    """Return the text. Raises ValueError when it is blank or has more than MAX_CONTENT_BYTES in UTF-8."""
    if not text.strip():
        raise ValueError("must not be blank")
    return fitting(text)


def fitting(text: str) -> str:
    """Return the text. Raises ValueError when it has more than MAX_CONTENT_BYTES in UTF-8."""
    if len(text) * 4 > MAX_CONTENT_BYTES and (size := len(text.encode())) > MAX_CONTENT_BYTES:
        raise ValueError(f"has {size} bytes, above the limit of {MAX_CONTENT_BYTES}")
    return text


def metadata(given: dict[str, Any]) -> dict[str, Any]:
    """Return the object. Raises ValueError when its JSON is above MAX_CONTENT_BYTES."""
    fitting(json.dumps(given, ensure_ascii=False))
    return given


def suggestions(wanted: str, taken: Collection[str]) -> list[str]:
    """Return free names similar to `wanted`, at most MAX_AGENT_NAME characters long."""

    def numbered() -> Iterator[str]:
        for number in count(2):
            ending = f"-{number}"
            yield wanted[: MAX_AGENT_NAME - len(ending)] + ending

    return list(islice((name for name in numbered() if name not in taken), SUGGESTIONS))


def mentioned(text: str) -> set[str]:
    """Return the texts that follow an @, each also without the sentence's punctuation. Not all of them are names. One @
    may be inside, as in `claude@shop`."""
    found = MENTION.findall(text) if "@" in text else []
    return {name for each in found[:MAX_MENTIONS] for name in (each, bare(each))} - {""}


def bare(name: str) -> str:
    """Return what follows an @ without the sentence's punctuation."""
    return name.rstrip(".*_")


def renamed(text: str, old: str, new: str) -> str:
    """Return the text with a name replaced where it is a word of its own."""
    return re.sub(rf"(?<![\w-]){re.escape(old)}(?![\w-])", lambda found: new, text)
