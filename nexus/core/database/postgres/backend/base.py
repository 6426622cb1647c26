"""Django's backend for PostgreSQL, with two changes: JSON keeps its text, because exports promise the order of keys,
and the pool recovers at once from dead connections."""

from __future__ import annotations

import json
from typing import Any

from django.db.backends.postgresql import base, operations
from psycopg import OperationalError
from psycopg_pool import ConnectionPool


class DatabaseOperations(operations.DatabaseOperations):
    """Operations that store JSON as text, as on SQLite; no SQL here looks into it."""

    def adapt_json_value(self, value: Any, encoder: type[json.JSONEncoder] | None) -> str:
        return json.dumps(value, cls=encoder)


class DatabaseWrapper(base.DatabaseWrapper):
    data_types = {**base.DatabaseWrapper.data_types, "JSONField": "text"}
    data_type_check_constraints = {
        **base.DatabaseWrapper.data_type_check_constraints,
        "JSONField": '("%(column)s"::json IS NOT NULL OR "%(column)s" IS NULL)',  # the cast refuses what is none
    }
    ops_class = DatabaseOperations

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Return a connection that works. A server that restarted has ended all idle ones, and the pool would try them
        with growing pauses."""
        connection = super().get_new_connection(conn_params)
        if self.pool is None:
            return connection
        try:
            ConnectionPool.check_connection(connection)
        except OperationalError:
            self.pool.putconn(connection)
            self.pool.drain()
            connection = super().get_new_connection(conn_params)
        return connection
