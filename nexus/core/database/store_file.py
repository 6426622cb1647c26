"""A guard against a moved store: it checks that the file at the store's path is still the one that this process
opened."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from nexus.core.config import CoreSettings
from nexus.core.files import network_kind
from nexus.core.operations.errors import Code, NexusError

log = logging.getLogger(__name__)

MOVED = "moved"

_guarded: dict[Path, tuple[int, int]] = {}  # by path: the device and inode of the file that this process serves
_reported: set[Path] = set()


def guard() -> None:
    """Refuse, from now on, to use the store while another file, or none, is at its path.

    Otherwise this process would go on in a store that nobody else finds, and every new process would create another.
    """
    path = CoreSettings.current().database
    if kind := network_kind(path):
        log.warning(
            "%s is on a network file system (%s), where SQLite's locks do not hold: several machines damage the store. "
            "Use a home on a local disk, or PostgreSQL for a team on several machines.",
            path,
            kind,
        )
    status = path.stat()
    _guarded[path] = status.st_dev, status.st_ino
    connections.settings[DEFAULT_DB_ALIAS]["NAME"] = existing(path)
    connection_created.connect(_guard, dispatch_uid=__name__)


def existing(path: Path) -> str:
    """Return the address with which SQLite opens an existing file and does not create one."""
    return f"{path.absolute().as_uri()}?mode=rw"


def check() -> None:
    """Check that the file is at its path. Raises DB_ERROR (cause `moved`); the loss and the return are logged once
    each."""
    path = CoreSettings.current().database
    if not _in_place(path):
        error = moved_error()
        if path not in _reported:
            _reported.add(path)
            log.error("%s", error.message)
        raise error
    if path in _reported:
        _reported.discard(path)
        log.warning("The store is back at %s.", path)


@contextmanager
def opening() -> Iterator[None]:
    """Raise the error of `check` while a connection is opened: SQLite would only say that the missing file cannot be
    opened."""
    try:
        yield
    except sqlite3.OperationalError:
        check()
        raise


def is_ours() -> bool:
    """Return whether the file at the store's path is the one that this process serves; True if nothing is guarded."""
    return _in_place(CoreSettings.current().database)


def _in_place(path: Path) -> bool:
    if path not in _guarded:
        return True
    try:
        status = path.stat()
    except OSError:
        return False
    return _guarded[path] == (status.st_dev, status.st_ino)


def moved_error() -> NexusError:
    """Return the error of a process whose store is no longer at its path."""
    return NexusError(
        Code.DB_ERROR,
        f"The store that this process serves is no longer at {CoreSettings.current().database}: its home was moved, "
        "removed or replaced. Put it back, or restart the process to serve what is there now. Nothing is read or "
        "written until then.",
        {"cause": MOVED},
    )


def is_moved(error: Exception) -> bool:
    """Return whether an error is the one of `check`."""
    return isinstance(error, NexusError) and error.details.get("cause") == MOVED


def _guard(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Let a new connection check before transactions and single statements; close one to another file."""
    try:
        check()
    except NexusError:
        connection.close()
        raise
    if _checked not in connection.execute_wrappers:
        connection.execute_wrappers.append(_checked)


def _checked(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
    if not context["connection"].in_atomic_block:  # a transaction looked when it began
        check()
    return execute(sql, params, many, context)
