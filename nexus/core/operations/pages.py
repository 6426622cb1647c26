"""Pages of lists: a list is whole by default, or given a page at a time; a cursor marks where the next page begins."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Annotated, Any, NotRequired, TypeVar

from django.db.models import Model, Q, QuerySet
from pydantic import Field
from typing_extensions import TypedDict

from nexus.core.operations.errors import Code, ErrorCode, NexusError
from nexus.core.operations.parameters import MAX_ID, Limit, Params

M = TypeVar("M", bound=Model)
MOST = 500  # rows of a page


class Paged(Params):
    """Parameters of a list. `limit`: rows of a page, MOST at most; None is the whole list. `cursor`: the next_cursor
    of the page before."""

    limit: Annotated[Limit | None, Field(description="Omitted: all.")] = None
    cursor: Annotated[str | None, Field(max_length=MAX_ID)] = None


class PageEnd(TypedDict):
    """The cursor of the next page; absent if no page was requested."""

    next_cursor: NotRequired[str | None]
    has_more: NotRequired[bool]


def newest(rows: QuerySet[M], limit: int) -> tuple[list[M], int]:
    """Return the newest rows by primary key, oldest first, and how many older ones there are."""
    found = list(rows.order_by("-pk")[: limit + 1])
    older = rows.count() - limit if len(found) > limit else 0
    return found[:limit][::-1], older


def page(
    rows: QuerySet[M], asked: Paged, *, by: str, refused: ErrorCode = Code.VALIDATION_ERROR
) -> tuple[list[M], PageEnd]:
    """Return the requested rows, ordered by the time `by` (with `-`, the newest first) and the primary key.

    The cursor is the key of the last row of a page. Raises `refused` if that row no longer exists, and for a cursor
    without a limit.
    """
    down, name = by.startswith("-"), by.removeprefix("-")
    rows = rows.order_by(by, "-pk" if down else "pk")
    if asked.limit is None:
        if asked.cursor is not None:
            raise NexusError(refused, "cursor needs a limit.", {"field": "cursor"})
        return list(rows), {}
    if asked.cursor is not None:
        last: Any = rows.model._default_manager.filter(pk=asked.cursor).first()
        if last is None:
            raise NexusError(refused, "The row of this cursor is gone; begin without one.", {"field": "cursor"})
        then, beyond = getattr(last, name), "lt" if down else "gt"
        rows = rows.filter(Q(**{f"{name}__{beyond}": then}) | Q(**{name: then, f"pk__{beyond}": last.pk}))
    limit = min(asked.limit, MOST)
    found = list(rows[: limit + 1])
    more = len(found) > limit
    return found[:limit], {"next_cursor": str(found[limit - 1].pk) if more else None, "has_more": more}


def encode_cursor(*position: str | int | datetime) -> str:
    """Return the cursor of a position: the columns of the row before the next page."""
    parts = [part.isoformat() if isinstance(part, datetime) else part for part in position]
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()


def decode_cursor(cursor: str, *kinds: type) -> list[Any]:
    """Return the position of a cursor, whose columns are `str`, `int` or `datetime`.

    Raises ValueError for a text that is not a cursor of such columns, or values that a store cannot be asked for.
    """
    try:
        parts = json.loads(base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True))
    except RecursionError:
        raise ValueError("nested beyond what a parser follows") from None
    if not isinstance(parts, list) or len(parts) != len(kinds):
        raise ValueError("not a position in this list")
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
