"""Keyset cursors: a place in a list, as text that a client passes back verbatim."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any


def encode(*place: str | int | datetime) -> str:
    """The cursor of a place: the columns of the row that the next page comes after."""
    parts = [part.isoformat() if isinstance(part, datetime) else part for part in place]
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()


def decode(cursor: str, *kinds: type) -> list[Any]:
    """The place that a cursor names, of columns that are `str`, `int` or `datetime`.

    Raises ValueError for what is no cursor of such columns, or no value that a store can be asked for.
    """
    try:
        parts = json.loads(base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True))
    except RecursionError:
        raise ValueError("nested beyond what a parser follows") from None
    if not isinstance(parts, list) or len(parts) != len(kinds):
        raise ValueError("not a place in this list")
    return [_read(part, kind) for part, kind in zip(parts, kinds, strict=True)]


def _read(part: object, kind: type) -> str | int | datetime:
    if kind is datetime and isinstance(part, str):
        moment = datetime.fromisoformat(part)
        if moment.tzinfo == UTC:
            return moment
    elif kind is str and isinstance(part, str):
        part.encode()  # no lone surrogate
        if "\x00" not in part:
            return part
    elif kind is int and type(part) is int and abs(part) < 2**63:
        return part
    raise ValueError("a part of another kind than its column")
