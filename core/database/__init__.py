"""The store: what a database does in its own way sits behind one protocol, and `store()` is the one in use."""

from __future__ import annotations

from functools import cache

from core.database.base import Store


@cache
def store() -> Store:
    """The store of this process."""
    from core.database import sqlite

    return sqlite
