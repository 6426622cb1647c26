"""Whether the store's file is still the one at its path: a home that was moved away must not live on unseen."""

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
_told: set[Path] = set()


def guard() -> None:
    """From here on this process refuses to use the store while another file, or none, is at its path.

    It would go on in a store that nobody else finds, and every new process would make another.
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
    """The address under which SQLite opens a file that is there, and makes none."""
    return f"{path.absolute().as_uri()}?mode=rw"


def check() -> None:
    """Raises DB_ERROR (cause `moved`) while the file is not at its path; the log has it once, and when it is back."""
    path = CoreSettings.current().database
    if not _in_place(path):
        error = moved_error()
        if path not in _told:
            _told.add(path)
            log.error("%s", error.message)
        raise error
    if path in _told:
        _told.discard(path)
        log.warning("The store is back at %s.", path)


@contextmanager
def opening() -> Iterator[None]:
    """While a connection is opened: of a file that is gone SQLite says only that it cannot be. Raises as `check`."""
    try:
        yield
    except sqlite3.OperationalError:
        check()
        raise


def is_ours() -> bool:
    """Whether the file at the store's path is the one that this process serves; so it is while nothing is guarded."""
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
    """What a process answers whose store is gone from its path."""
    return NexusError(
        Code.DB_ERROR,
        f"The store that this process serves is no longer at {CoreSettings.current().database}: its home was moved, "
        "removed or replaced. Put it back, or restart the process to serve what is there now. Nothing is read or "
        "written until then.",
        {"cause": MOVED},
    )


def moved(error: Exception) -> bool:
    """Whether an error is the one of `check`."""
    return isinstance(error, NexusError) and error.details.get("cause") == MOVED


def _guard(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """A new connection's transactions look first, as statements outside one do; one to another file is closed."""
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
