"""The store: what a database does in its own way sits behind one protocol, and `store()` is the one in use."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connection, connections, transaction
from django.db.models.signals import post_migrate

from nexus.core.apps import NexusAppConfig
from nexus.core.cancellation import check_there
from nexus.core.config import CoreSettings
from nexus.core.database.base import Store

OTHER = "other"  # the alias of a second store

_thread = threading.local()


@cache
def store() -> Store:
    """The store of this process."""
    return store_of(settings.NEXUS)


def store_of(config: CoreSettings) -> Store:
    """The store that the settings name."""
    if config.database_url is not None:
        from nexus.core.database.postgres import store as postgres

        return postgres
    from nexus.core.database.sqlite import store as sqlite

    return sqlite


@contextmanager
def write() -> Iterator[None]:
    """A writing transaction of the store; inside another one, a part of that."""
    outermost = not connection.in_atomic_block
    with store().write():
        if outermost:
            transaction.on_commit(_count)
        yield
        if outermost:
            check_there()


class unless_busy(AbstractContextManager[None, bool]):
    """Inside, a store that is busy, or whose server is away, ends the block and is no error: it comes back."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        return isinstance(error, DatabaseError) and store().is_busy(error)


@contextmanager
def instead(config: CoreSettings) -> Iterator[None]:
    """Inside, the store that `config` names is the one in use: for a command, alone in its process, that has two.

    The former connection stays as it is, its transaction too. What `nexus.core.database.prepared` made for the former
    store is not for this one: use neither inside.
    """
    former, in_force = connections[DEFAULT_DB_ALIAS], settings.NEXUS
    connections.settings[OTHER] = connections.configure_settings(
        {DEFAULT_DB_ALIAS: {}, OTHER: store_of(config).django_settings(config)}
    )[OTHER]
    try:
        connections[DEFAULT_DB_ALIAS] = connections[OTHER]
        settings.NEXUS = config
        store.cache_clear()
        yield
    finally:
        other = connections[OTHER]
        other.close()
        if close_pool := getattr(other, "close_pool", None):  # PostgreSQL's alone
            close_pool()
        connections[DEFAULT_DB_ALIAS] = former
        settings.NEXUS = in_force
        store.cache_clear()
        del connections[OTHER], connections.settings[OTHER]


def commits() -> int:
    """How many writing transactions this thread has committed: what did one is not tried again."""
    return getattr(_thread, "commits", 0)


def _count() -> None:
    _thread.commits = commits() + 1


def keep_triggers() -> None:
    """From here on: a migration that rebuilds a table drops its triggers without a word, so they are made again."""
    post_migrate.connect(_install, dispatch_uid=__name__)


def _install(sender: AppConfig, **_: Any) -> None:
    if isinstance(sender, NexusAppConfig):
        store().install(sender.database_objects(connection.vendor))
