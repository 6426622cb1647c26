"""Steps of a migration that one database needs and another does not have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import migrations


class SQLFor(migrations.RunSQL):
    """SQL for one database alone: `sqlite` or `postgresql`."""

    def __init__(self, vendor: str, sql: str, reverse_sql: str = migrations.RunSQL.noop) -> None:
        super().__init__(sql, reverse_sql)
        self.vendor = vendor

    def deconstruct(self) -> tuple[str, Sequence[Any], dict[str, Any]]:
        name, args, kwargs = super().deconstruct()
        return name, args, {"vendor": self.vendor, **kwargs}

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor == self.vendor:
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor == self.vendor:
            super().database_backwards(app_label, schema_editor, from_state, to_state)
