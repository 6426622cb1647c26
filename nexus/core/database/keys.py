"""Numbers in place of long texts that many rows refer to, such as the ids of workspaces."""

from __future__ import annotations

import hashlib
from typing import Any

from django.db import models
from django.db.models import Model

from nexus.core.database.sql import is_on_loop
from nexus.core.database.store import store

_texts: dict[int, str] = {}  # by number; what a number stands for never changes


def number_of(text: str) -> int:
    """Return 47 bits of the SHA-256 of a text: SQLite stores them in six bytes.

    The number is computed, so no process has to look it up and every store has the same. Two of ten thousand texts
    share a number in one of three million stores; the second of them is refused.
    """
    return int.from_bytes(hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:6]) >> 1


class TextNumber(models.Field):  # type: ignore[type-arg]
    """A field with the number of the text in the row's column `of`. In Python its value is that text, also in foreign
    keys.

    So rows and indexes that refer to the text store the number, and only the database sees it.
    """

    def __init__(self, of: str, **options: Any) -> None:
        super().__init__(**{**options, "unique": True, "editable": False})
        self.of = of

    def deconstruct(self) -> Any:
        name, path, _, options = super().deconstruct()
        del options["unique"], options["editable"]
        return name, path, [self.of], options

    def get_internal_type(self) -> str:
        return "BigIntegerField"

    def get_prep_value(self, value: Any) -> Any:
        return value if value is None or isinstance(value, int) else number_of(str(value))

    def from_db_value(self, value: int | None, expression: Any, connection: Any) -> str | None:
        """Return the text; if no row has the number, its digits."""
        if value is None:
            return None
        if value not in _texts:
            self._learn(value, connection)
        return _texts.get(value, str(value))

    def pre_save(self, model_instance: Model, add: bool) -> Any:
        text = getattr(model_instance, self.of)
        setattr(model_instance, self.attname, text)
        return text

    def _learn(self, number: int, connection: Any) -> None:
        """Read which text a number stands for; on a thread read all others, too, because a list needs them next."""
        quoted = connection.ops.quote_name
        columns = f"{quoted(self.column)}, {quoted(self.of)}"
        read = f"SELECT {columns} FROM {quoted(self.model._meta.db_table)}"  # noqa: S608
        if is_on_loop():
            _texts.update(store().look(f"{read} WHERE {quoted(self.column)} = ?", [number]))
            return
        with connection.cursor() as cursor:
            cursor.execute(read)
            _texts.update(cursor.fetchall())
