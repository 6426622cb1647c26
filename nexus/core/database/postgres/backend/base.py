"""Django's backend for PostgreSQL, but for JSON, whose order of keys exports promise, and for a pool of dead links."""

from __future__ import annotations

import json
from typing import Any

from django.db.backends.postgresql import base, operations
from psycopg import OperationalError
from psycopg_pool import ConnectionPool


class DatabaseOperations(operations.DatabaseOperations):
    """JSON goes in as text, as it does on SQLite; nothing here looks into it with SQL."""

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
        """One that answers: a server that restarted ended all idle ones, which the pool tries with growing pauses."""
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
