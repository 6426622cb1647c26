"""Long texts that many rows refer to, such as the ids of workspaces: each row holds a number in their place."""

from __future__ import annotations

import hashlib
from typing import Any

from django.db import models
from django.db.models import Model

from nexus.core.database.prepared import is_on_loop
from nexus.core.database.store import store

_texts: dict[int, str] = {}  # by number; what a number stands for never changes


def number_of(text: str) -> int:
    """47 bits of the SHA-256 of a text: SQLite stores them in six bytes.

    It is computed, so that no process need ask for it and every store has the same. Of ten thousand texts two have one
    number in one of three million stores; the second of them is refused.
    """
    return int.from_bytes(hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:6]) >> 1


class TextNumber(models.Field):  # type: ignore[type-arg]
    """The number of the text in the row's column `of`. Its value in Python is that text, in foreign keys as well.

    So rows and indexes that refer to the text hold the number, and only the database knows of it.
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
        """The text; the digits of a number that no row has."""
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
        """Read which text a number stands for; in a thread those of all others, too, as a list wants them next."""
        quoted = connection.ops.quote_name
        columns = f"{quoted(self.column)}, {quoted(self.of)}"
        read = f"SELECT {columns} FROM {quoted(self.model._meta.db_table)}"  # noqa: S608
        if is_on_loop():
            _texts.update(store().look(f"{read} WHERE {quoted(self.column)} = ?", [number]))
            return
        with connection.cursor() as cursor:
            cursor.execute(read)
            _texts.update(cursor.fetchall())
