"""Retried calls: the same maker and `client_id` create one row, however often the call arrives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from nexus.core.operations.errors import invalid


class Repeatable(Protocol):
    """An unsaved row that a call with a `client_id` creates; its table has a unique constraint on maker and
    `client_id`."""

    client_id: Any
    pk: Any


M = TypeVar("M", bound=Repeatable)


def made_before(
    made: M,
    *,
    maker: Sequence[str],
    same: Sequence[str],
    beside: Mapping[str, Any] | None = None,
    as_made: Callable[[M], Mapping[str, Any]] = lambda _: {},
) -> M | None:
    """Return the row that the same `maker` (columns of the row) created with the same client_id; None where there is
    none or no client_id is given.

    Call it inside the writing transaction that would store the row: of two concurrent calls the second finds the
    first. `as_made` returns original values of columns that have changed since, and what the call says `beside` its
    columns. Raises VALIDATION_ERROR, with the id of the first row, where a column of `same` or something of `beside`
    differs: the call is no retry, and to return the first row would lose its content.
    """
    if made.client_id is None:
        return None
    rows: Any = type(made)._base_manager  # type: ignore[attr-defined]  # of a model, which no protocol can tell
    first: M | None = rows.filter(client_id=made.client_id, **{name: getattr(made, name) for name in maker}).first()
    if first is None:
        return None
    said = {**{name: getattr(first, name) for name in same}, **as_made(first)}
    says = {**{name: getattr(made, name) for name in same}, **(beside or {})}
    if any(said[name] != value for name, value in says.items()):
        raise invalid(
            f"This client_id made {first.pk} before, with other content; nothing was made now. Send new content with "
            "a client_id of its own.",
            field="client_id",
            first=first.pk,
        )
    return first
