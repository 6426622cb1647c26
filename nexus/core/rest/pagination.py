"""Pages of a REST list by keyset cursors, so that rows written between two pages are neither repeated nor missed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, ClassVar

from django.db.models import DateTimeField, IntegerField, Model, Q, QuerySet
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response

from nexus.core.operations import pages
from nexus.core.operations.errors import invalid
from nexus.core.operations.parameters import whole_number

DEFAULT_LIMIT, MAX_LIMIT = 50, 200
EXAMINED_AT_ONCE = 2000  # rows a request looks at, seen or not: a short page with a cursor says to go on
PASSED_AT_ONCE = 10_000  # rows it passes to filters that no index serves, likewise
ROWS = ["results"]  # the names of a page's rows: the first is ours, others are added for clients of other systems
BY_KEY = "by_key"  # an annotation of rows: a joined column that equals their key, along whose index they are read

Position = tuple[Any, Any]  # the ordering column's value and the primary key of the last row examined


class Pages(BasePagination):
    """Pagination by `limit`, `ordering` (a column of the view's, `-` for descending) and `cursor` (the answer's
    next_cursor)."""

    PARAMETERS = ("limit", "ordering", "cursor")
    accepted: ClassVar[Sequence[str]] = PARAMETERS  # which those that the schema does not list may follow

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any]:
        """Return the rows of a page that the view admits. Raises VALIDATION_ERROR for an invalid parameter."""
        limit = page_size(request.query_params.get("limit"))
        ordering = request.query_params.get("ordering") or view.ordering[0]
        if ordering.removeprefix("-") not in {column.removeprefix("-") for column in view.ordering}:
            known = ", ".join(column.removeprefix("-") for column in view.ordering)
            raise invalid(f"ordering must be one of {known}, with - before it for descending.", field="ordering")
        column, descending = ordering.removeprefix("-"), ordering.startswith("-")
        last = _decode(request.query_params.get("cursor"), ordering, queryset)
        self.next_cursor: str | None = None
        end = None
        if column == queryset.model._meta.pk.name:
            if BY_KEY in queryset.query.annotations:
                column = BY_KEY
            if view.passes_many():
                end = end_of_look(queryset.model, descending, last, PASSED_AT_ONCE)
        columns = [column] if column == BY_KEY else [column, "pk"]
        rows = queryset.order_by(*("-" * descending + each for each in columns))
        if end is not None:
            rows = rows.filter(**{f"pk__{'gte' if descending else 'lte'}": end})

        found: list[Any] = []
        examined = 0
        for row in _beyond(rows, column, descending, last)[:EXAMINED_AT_ONCE].iterator(chunk_size=limit + 1):
            if view.admits(row):
                if len(found) == limit:
                    self.next_cursor = encode(ordering, last)
                    return found
                found.append(row)
            last = getattr(row, column), row.pk
            examined += 1
        if examined == EXAMINED_AT_ONCE:
            self.next_cursor = encode(ordering, last)
        elif end is not None:
            self.next_cursor = encode(ordering, (end, end))
        return found

    def get_paginated_response(self, data: Any) -> Response:
        return Response(page_of(data, self.next_cursor))

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the shape of a page, for the OpenAPI schema."""
        return {
            "type": "object",
            "required": [*ROWS, "next_cursor", "has_more"],
            "properties": {
                **dict.fromkeys(ROWS, schema),
                "next_cursor": {"type": ["string", "null"]},
                "has_more": {"type": "boolean"},
            },
        }

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        """Return the query parameters of a list, for the OpenAPI schema."""
        columns = [column.removeprefix("-") for column in view.ordering]
        orderings = [sign + column for column in columns for sign in ("", "-")]
        schemas: dict[str, dict[str, Any]] = {
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
            "ordering": {"type": "string", "enum": orderings, "default": view.ordering[0]},
            "cursor": {"type": "string", "description": "next_cursor of the previous page, unchanged."},
        }
        return [{"name": name, "in": "query", "required": False, "schema": schemas[name]} for name in self.PARAMETERS]


def page_of(rows: Sequence[Any], next_cursor: str | None) -> dict[str, Any]:
    """Return the data of a page; without a cursor it is the last one."""
    return {**dict.fromkeys(ROWS, rows), "next_cursor": next_cursor, "has_more": next_cursor is not None}


def page_size(text: str | None) -> int:
    """Return the page size of a query. Raises VALIDATION_ERROR."""
    if text is None:
        return DEFAULT_LIMIT
    size = whole_number(text, MAX_LIMIT)
    if not size:
        raise invalid(f"limit must be a number from 1 to {MAX_LIMIT}.", field="limit")
    return size


def _beyond(rows: QuerySet[Any], column: str, descending: bool, last: Position | None) -> QuerySet[Any]:
    if last is None:
        return rows
    value, key = last
    sign = "lt" if descending else "gt"
    # The first condition alone bounds the walk along the column's index; the second breaks ties.
    return rows.filter(**{f"{column}__{sign}e": value}).filter(
        Q(**{f"{column}__{sign}": value}) | Q(**{f"pk__{sign}": key})
    )


def end_of_look(model: type[Model], descending: bool, last: Position | None, passed: int) -> Any:
    """Return the key of the last of `passed` rows beyond a position; None where fewer are left."""
    rows = model._base_manager.order_by("-pk" if descending else "pk").values_list("pk", flat=True)
    if last is not None:
        rows = rows.filter(**{f"pk__{'lt' if descending else 'gt'}": last[1]})
    return next(iter(rows[passed - 1 : passed]), None)


def encode(ordering: str, last: Position | None) -> str | None:
    """Return the cursor of the rows beyond a position."""
    return None if last is None else pages.encode_cursor(ordering, *last)


def _decode(cursor: str | None, ordering: str, queryset: QuerySet[Any]) -> Position | None:
    if not cursor:
        return None
    fields = queryset.model._meta
    with suppress(ValueError):
        column = fields.get_field(ordering.removeprefix("-"))
        made_for, value, key = pages.decode_cursor(cursor, str, _kind(column), _kind(fields.pk))
        if made_for == ordering:
            return value, key
    raise invalid("cursor is not one of this list and ordering; pass next_cursor back as it came.", field="cursor")


def _kind(column: Any) -> type:
    """Return the type of a column's values, as a cursor holds them."""
    if isinstance(column, DateTimeField):
        return datetime
    return int if isinstance(column, IntegerField) else str
