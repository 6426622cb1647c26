"""The store in use: `store()` returns the implementation of the protocol in `nexus.core.database.base`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
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
    """Return the store of this process."""
    return store_of(settings.NEXUS)


def store_of(config: CoreSettings) -> Store:
    """Return the store that the settings name."""
    if config.database_url is not None:
        from nexus.core.database.postgres import store as postgres

        return postgres
    from nexus.core.database.sqlite import store as sqlite

    return sqlite


@contextmanager
def write(*names: str) -> Iterator[None]:
    """Run a writing transaction of the store; inside another one, a savepoint. See `Store.write` for the names."""
    lasting: ExitStack | None = getattr(_thread, "lasting", None)
    if lasting is None or connection.in_atomic_block:
        with _transaction(names):
            yield
        return
    lasting.enter_context(_transaction(names))
    try:
        yield
    except BaseException:
        with lasting.pop_all():  # nothing else is in it yet
            raise


def outlasts_its_block() -> bool:
    """Return whether the writing transaction of this thread lasts longer than its block."""
    return getattr(_thread, "lasting", None) is not None


@contextmanager
def _transaction(names: tuple[str, ...]) -> Iterator[None]:
    outermost = not connection.in_atomic_block
    with store().write(*names, late=outlasts_its_block()):
        if outermost:
            transaction.on_commit(_count)
        yield
        if outermost:
            check_there()
            if (mark := getattr(_thread, "mark", None)) is not None:
                mark()


@contextmanager
def in_one_transaction() -> Iterator[None]:
    """Let the first writing transaction of this thread in the block last until the end of the block, unless it fails;
    those after it are savepoints. Inside another one, the block is a savepoint."""
    if connection.in_atomic_block:
        with transaction.atomic():
            yield
        return
    with ExitStack() as lasting:
        _thread.lasting = lasting
        try:
            yield
        finally:
            _thread.lasting = None


@contextmanager
def marked(mark: Callable[[], None]) -> Iterator[None]:
    """Call `mark` at the end of each writing transaction of this thread in the block."""
    _thread.mark = mark
    try:
        yield
    finally:
        _thread.mark = None


class unless_busy(AbstractContextManager[None, bool]):
    """End the block without an error if the store is busy, or its server away: both pass."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        return isinstance(error, DatabaseError) and store().is_busy(error)


@contextmanager
def instead(config: CoreSettings) -> Iterator[None]:
    """Use the store that `config` names within the block; for a command, alone in its process, that has two stores.

    The former connection stays as it is, its transaction too.
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
    """Return how many writing transactions this thread has committed; a call that committed one is not retried."""
    return getattr(_thread, "commits", 0)


def _count() -> None:
    _thread.commits = commits() + 1


def keep_triggers() -> None:
    """Create triggers again after each migrate, from now on: a migration that rebuilds a table silently drops its
    triggers."""
    post_migrate.connect(_install, dispatch_uid=__name__)


def _install(sender: AppConfig, **_: Any) -> None:
    if isinstance(sender, NexusAppConfig):
        store().install(sender.database_objects(connection.vendor))


def is_made() -> bool:
    """Return whether there is a store, and of this version. Raises as `Store.prepare` does."""
    current = CoreSettings.current()
    return (current.database_url is not None or current.database.exists()) and not store().pending()
