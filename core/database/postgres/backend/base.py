"""Django's backend for PostgreSQL, but for JSON: exports promise the order of its keys, which `jsonb` forgets."""

from __future__ import annotations

import json
from typing import Any

from django.db.backends.postgresql import base, operations


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
