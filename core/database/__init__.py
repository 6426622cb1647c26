"""The store: what a database does in its own way sits behind one protocol, and `store()` is the one in use."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache

from core.database.base import Store


@cache
def store() -> Store:
    """The store of this process."""
    from core.database import sqlite

    return sqlite


def write() -> AbstractContextManager[None]:
    """A writing transaction of the store; inside another one, a part of that."""
    return store().write()
