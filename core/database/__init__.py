"""The store: what a database does in its own way sits behind one protocol, and `store()` is the one in use."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from django.conf import settings
from django.db import connection, transaction

from core.config import CoreSettings
from core.database.base import Store

_thread = threading.local()


@cache
def store() -> Store:
    """The store of this process."""
    return store_of(settings.NEXUS)


def store_of(config: CoreSettings) -> Store:
    """The store that the settings name."""
    if config.database_url is not None:
        from core.database import postgres

        return postgres
    from core.database import sqlite

    return sqlite


@contextmanager
def write() -> Iterator[None]:
    """A writing transaction of the store; inside another one, a part of that."""
    outermost = not connection.in_atomic_block
    with store().write():
        if outermost:
            transaction.on_commit(_count)
        yield


def commits() -> int:
    """How many writing transactions this thread has committed: what did one is not tried again."""
    return getattr(_thread, "commits", 0)


def _count() -> None:
    _thread.commits = commits() + 1
