"""Django's backend for SQLite, which converts a statement's parameters once, and tells what damaged text is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from django.db.backends.sqlite3 import base

from nexus.core.database import store_file
from nexus.core.sqlite import decoding


class Cursor(base.SQLiteCursorWrapper):
    """A cursor that remembers the statements it has converted to SQLite's parameters."""

    def convert_query(self, query: str, *, param_names: Sequence[str] | None = None) -> str:
        return _converted(query) if param_names is None else super().convert_query(query, param_names=param_names)

    def execute(self, query: str, params: Any = None) -> Any:
        try:
            return super().execute(query, params)
        except UnicodeDecodeError:
            with decoding():
                raise


@lru_cache(maxsize=512)
def _converted(query: str) -> str:
    return base.FORMAT_QMARK_REGEX.sub("?", query).replace("%%", "%")


class DatabaseWrapper(base.DatabaseWrapper):
    def get_new_connection(self, conn_params: Any) -> Any:
        with store_file.opening(), decoding():
            return super().get_new_connection(conn_params)

    def create_cursor(self, name: str | None = None) -> Any:
        return self.connection.cursor(factory=Cursor)
