"""The watch for commits: `PRAGMA data_version` changes when another connection commits."""

from __future__ import annotations

import sqlite3

from django.db import connection

from core.database import place
from core.sqlite import connect


class Watch:
    """`PRAGMA data_version` on a connection of its own: it changes when another connection commits."""

    def __init__(self) -> None:
        with connection.wrap_database_errors, place.opening():
            self._probe = connect(connection.settings_dict["NAME"], timeout=0, check_same_thread=False, uri=True)
        self._version = self._read()

    def changed(self) -> bool:
        """Whether there was a commit since the last look; a version that cannot be read counts as one."""
        before, self._version = self._version, self._read()
        return self._version is None or self._version != before

    def close(self) -> None:
        self._probe.close()

    def _read(self) -> int | None:
        try:
            return int(self._probe.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.DatabaseError:
            return None


def watch() -> Watch:
    """Begin to watch for commits."""
    return Watch()
