"""Limits on inline content, measured the same way everywhere, and on the content of a request."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import accumulate
from typing import Any, TypeVar

from pydantic import Field

from nexus.core.config import CoreSettings
from nexus.core.operations.errors import Code, NexusError

T = TypeVar("T")

LARGEST_AT_ONCE = 64  # so many of the largest texts are answered at once: to write more holds up everybody


def up_to_the_limit(otherwise: str) -> Any:
    """Describe a parameter whose text has at most max_inline_bytes, whatever these are when its schema is made."""

    def describe(schema: dict[str, Any]) -> None:
        limit = CoreSettings.current().max_inline_bytes
        size = f"{limit} bytes" if limit % 1024 else f"{limit // 1024} KiB"
        schema["description"] = f"Up to {size}; larger: {otherwise}"

    return Field(json_schema_extra=describe)


def within_limit(text: str | None, field: str, ceiling: int | None = None) -> str | None:
    """Return `text` if its UTF-8 form has at most `ceiling` bytes, by default max_inline_bytes. Raises
    CONTENT_TOO_LARGE."""
    ceiling = ceiling or CoreSettings.current().max_inline_bytes
    if text is not None and len(text) * 4 > ceiling and (size := len(text.encode())) > ceiling:
        raise NexusError(
            Code.CONTENT_TOO_LARGE,
            f"{field} has {size} bytes, above the limit of {ceiling}. "
            "Write it to a file in the workspace, let artifact_put(artifact_type='file', path=…) register it, and send "
            "its path.",
            {"field": field, "size": size, "limit": ceiling},
        )
    return text


def fitting(rows: list[T], size: Callable[[T], int]) -> list[T]:
    """Return the first rows that fit into one answer, by the characters of their text (at least one)."""
    room = LARGEST_AT_ONCE * CoreSettings.current().max_inline_bytes
    count = sum(total <= room for total in accumulate(map(size, rows)))
    return rows[: max(count, 1)]


COUNTS_VALUES = "nexus.counts_values"  # in the scope of a request whose application bounds its values itself
MOST_QUOTES = 100_000  # that are split at: the rest counts as if it were outside of texts


class TooMuch(Exception):
    """A request that exceeds a limit of size or time; `status` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = Code.CONTENT_TOO_LARGE if status in (413, 431) else Code.VALIDATION_ERROR


def values_in(message: bytes) -> int:
    """Return an upper bound of the values and keys in a JSON message: its brackets and commas, also those inside
    texts."""
    return message.count(b"[") + message.count(b"{") + message.count(b",")


def values_outside_texts(message: bytes) -> int:
    """Return the values and keys in a JSON message, without the brackets and commas inside its texts."""
    plain = message.replace(rb"\\", b"").replace(rb"\"", b"")
    return values_in(b"".join(plain.split(b'"', MOST_QUOTES)[::2]))


def most_values() -> int:
    """Return the limit of `values_in` for the message of one call: parsing JSON blocks the event loop.

    Two texts of the largest size may be all commas.
    """
    return 100_000 + 2 * CoreSettings.current().max_inline_bytes


def json_within_limit(value: Any, field: str) -> Any:
    """Return `value` if its JSON text is within the limit. Raises CONTENT_TOO_LARGE."""
    if value is not None:
        within_limit(json.dumps(value, ensure_ascii=False), field)
    return value


def opaque_text(value: Any, field: str) -> str | None:
    """Return a payload or result as it is stored: a string unchanged, anything else as JSON text. Raises
    CONTENT_TOO_LARGE."""
    if value is None or isinstance(value, str):
        return within_limit(value, field)
    return within_limit(json.dumps(value, ensure_ascii=False), field)
