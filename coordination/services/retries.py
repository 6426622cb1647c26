"""Calls that are sent again: the same maker and `client_id` make one thing, however often the call comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from nexus.core.operations.errors import invalid


class Made(Protocol):
    """A row, not stored yet, that a call with a `client_id` makes; its table has it unique beside its maker."""

    client_id: Any
    pk: Any


M = TypeVar("M", bound=Made)


def made_before(
    made: M, *, maker: Sequence[str], same: Sequence[str], as_made: Callable[[M], Mapping[str, Any]] = lambda _: {}
) -> M | None:
    """What the same `maker`, columns of the row, made with the same client_id; None where that is new or not given.

    Asked inside the writing transaction that would store the row: of two at once the second finds the first; `as_made`
    tells what changed of its columns since, as it was.
    Raises VALIDATION_ERROR, with the id of the first, where a column of `same` differs: it is no retry, and to answer
    the first would lose what it says.
    """
    if made.client_id is None:
        return None
    rows: Any = type(made)._base_manager  # type: ignore[attr-defined]  # of a model, which no protocol can tell
    first: M | None = rows.filter(client_id=made.client_id, **{name: getattr(made, name) for name in maker}).first()
    if first is None:
        return None
    said = {**{name: getattr(first, name) for name in same}, **as_made(first)}
    if any(said[name] != getattr(made, name) for name in same):
        raise invalid(
            f"This client_id made {first.pk} before, with other content; nothing was made now. Send new content with "
            "a client_id of its own.",
            field="client_id",
            first=first.pk,
        )
    return first
