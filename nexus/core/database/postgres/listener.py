"""Woken by the server: one connection of the process listens for the commits of all others.

A notification can be lost with the connection that it came on, so that there is a slow look behind it.
"""

from __future__ import annotations

import logging
import secrets
import threading
from contextlib import closing
from typing import Any

import psycopg

from nexus.core.config import CoreSettings
from nexus.core.database.postgres.address import parameters

log = logging.getLogger(__name__)

CHANNEL = "nexus_commits"
OWN = secrets.token_hex(8)  # names this process: what it commits itself it is told of sooner
LOOK_SECONDS = 1.0  # how long a commit can stay unseen whose notification was lost
PAUSE_SECONDS = 0.015  # between two looks at what the listener counted
AGAIN_SECONDS = 1.0  # after the connection was lost


class _Listener:
    """Counts what may be commits of others; a thread that ends with the process."""

    def __init__(self) -> None:
        self.count = 0
        threading.Thread(target=self._run, name="nexus-listen", daemon=True).start()

    def _run(self) -> None:
        pause = threading.Event()
        known = True
        while True:
            try:
                address = parameters(CoreSettings.current())
                with closing(psycopg.connect(**address, autocommit=True)) as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    known = True
                    self._listen(connection)
            except psycopg.Error as error:
                if known:
                    log.warning("Not listening for commits (%s); it is tried again.", type(error).__name__)
                known = False
            self.count += 1
            pause.wait(AGAIN_SECONDS)

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        while True:
            self.count += 1  # what was committed before the listening began, or was told to nobody
            for told in connection.notifies(timeout=LOOK_SECONDS):
                if told.payload != OWN:
                    self.count += 1


_lock = threading.Lock()
_listener: _Listener | None = None


class Watch:
    """One task's look at the listener."""

    descriptor: int | None = None
    pause = PAUSE_SECONDS

    def __init__(self, listener: _Listener) -> None:
        self._listener, self._seen = listener, listener.count

    def has_news(self, seen: int) -> bool:
        """Whether there may have been a commit since the last look, whatever it added."""
        before, self._seen = self._seen, self._listener.count
        return self._seen != before

    def drain(self) -> None:
        """Nothing to do: there is no descriptor."""

    def close(self) -> None:
        """The listener goes on: others may watch."""


def watch() -> Watch:
    """Begin to watch; the first watch of a process starts its listener."""
    global _listener
    with _lock:
        _listener = _listener or _Listener()
        return Watch(_listener)
