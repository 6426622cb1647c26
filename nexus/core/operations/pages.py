"""Lists that come whole by default, and a page at a time for who asks for that."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypeVar

from django.db.models import Model, Q, QuerySet
from pydantic import Field
from typing_extensions import TypedDict

from nexus.core.operations.errors import Code, ErrorCode, NexusError
from nexus.core.operations.parameters import MAX_ID, Limit, Params

M = TypeVar("M", bound=Model)
MOST = 500  # rows of a page


class Paged(Params):
    """`limit`: rows of a page, MOST at most; None is the whole list. `cursor`: the next_cursor of the page before."""

    limit: Annotated[Limit | None, Field(description="None: all.")] = None
    cursor: Annotated[str | None, Field(max_length=MAX_ID)] = None


class PageEnd(TypedDict):
    """Where the next page begins; not there where no page was asked for."""

    next_cursor: NotRequired[str | None]
    has_more: NotRequired[bool]


def page(
    rows: QuerySet[M], asked: Paged, *, by: str, refused: ErrorCode = Code.VALIDATION_ERROR
) -> tuple[list[M], PageEnd]:
    """The rows that were asked for, ordered by the time `by` (with `-`, the newest first) and the primary key.

    The cursor is the key of the last row of a page. Raises `refused` where there is no such row any more, and for a
    cursor without a limit.
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
