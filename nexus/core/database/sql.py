"""Named SQL for the statements that nearly every call runs: the ORM takes ten times as long to write one as it runs.

An app has them in its module `sql.py`, each for both databases. A value is written `%(name)s`, and in a `Read` the
columns of a model as `{a}`, or one of them as `{a.field}`: a new column changes no statement.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, cached_property
from itertools import accumulate
from string import Formatter
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from django.db import DEFAULT_DB_ALIAS, connection
from django.db.models import BooleanField, CharField, DateTimeField, ForeignKey, IntegerField, Model, TextField

from nexus.core.database.base import Insertion
from nexus.core.database.store import outlasts_its_block, store

Row = TypeVar("Row")
Convert = Callable[[Any], Any]
PARAMETER = re.compile(r"%\((\w+)\)s")


class Statement:
    """A statement; `made` has all, for the test that they fit the tables."""

    made: ClassVar[list[Statement]] = []

    def __init__(self, text: str, **models: type[Model]) -> None:
        self._text, self._models = text, models
        self.made.append(self)

    @cached_property
    def sql(self) -> str:
        """The text for Django's cursor."""
        parsed = Formatter().parse(self._text)
        text = "".join(before + (self._parts[name].columns if name else "") for before, name, _, _ in parsed)
        return PARAMETER.sub("%s", text)

    @cached_property
    def names(self) -> list[str]:
        """The name of each value, in their order."""
        return PARAMETER.findall(self._text)

    def _bound(self, values: Mapping[str, Any]) -> list[Any]:
        moment, bound = store().moment, [values[name] for name in self.names]
        return [moment(value) if isinstance(value, datetime) else value for value in bound]

    @cached_property
    def _parts(self) -> dict[str, _Part]:
        named = {name: name.partition(".") for _, name, _, _ in Formatter().parse(self._text) if name}
        return {name: _part(alias, self._models[alias], column) for name, (alias, _, column) in named.items()}


class Read(Statement, Generic[Row]):
    """A SELECT. A row is what the braces name, an instance or a value, a tuple where there are several of them; without
    braces it is what the driver gives.

    It can also be called on an event loop if the store is local and the read is short: it raises
    SynchronousOnlyOperation if only a thread may run it, as the ORM does.
    """

    def __call__(self, **values: Any) -> list[Row]:
        """Return all rows."""
        if is_on_loop():
            rows = store().look(self._of_driver, self._bound(values))
        else:
            with connection.cursor() as cursor:
                cursor.execute(self.sql, self._bound(values))
                rows = cursor.fetchall()
        return list(map(self._make, rows)) if self._parts else rows

    def first(self, **values: Any) -> Row | None:
        """Return the first row, or None."""
        rows = self(**values)
        return rows[0] if rows else None

    @cached_property
    def _of_driver(self) -> str:
        return self.sql.replace("%s", "?")  # as the driver of SQLite takes it

    @cached_property
    def _make(self) -> Callable[[Sequence[Any]], Any]:
        parts = list(self._parts.values())
        if len(parts) == 1:
            return parts[0].make
        ends = list(accumulate(part.width for part in parts))
        cuts = [(part.make, slice(end - part.width, end)) for part, end in zip(parts, ends, strict=True)]
        return lambda row: tuple(make(row[cut]) for make, cut in cuts)


class Write(Statement):
    """An UPDATE or a DELETE."""

    def __call__(self, **values: Any) -> int:
        """Run it and return the number of changed rows."""
        return self.each([values])

    def each(self, bindings: Iterable[Mapping[str, Any]]) -> int:
        """Run it with several sets of values; return the number of changed rows in all."""
        return _run(self.sql, [self._bound(values) for values in bindings])


def insert(*rows: Model) -> None:
    """Insert new rows of one model, as `save(force_insert=True)` does, but without signals; set an automatic key."""
    if not rows:
        return
    sql, fields, key = _insertion(type(rows[0]))
    bound = [_values(row, fields) for row in rows]
    if key is None:
        _run(sql, bound)
    else:
        with connection.cursor() as cursor:
            for row, values in zip(rows, bound, strict=True):
                cursor.execute(sql, values)
                setattr(row, key, cursor.fetchall()[0][0])
    for row in rows:
        row._state.adding, row._state.db = False, DEFAULT_DB_ALIAS


def append(row: Model, *, numbered: bool) -> None:
    """Insert a row of the log, see `Store.append`. A transaction that lasts longer than its block has the key at once,
    too, because what follows the block may use it."""

    def statement() -> Insertion:
        sql, fields, key = _insertion(type(row))
        assert key is not None
        return sql, _values(row, fields), key

    if not store().append(row, statement, numbered=numbered or outlasts_its_block()):
        insert(row)


def is_on_loop() -> bool:
    """Return whether this thread runs an event loop now, where nothing may block."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Part(NamedTuple):
    """What one pair of braces stands for."""

    columns: str
    width: int
    make: Callable[[Sequence[Any]], Any]


def _part(alias: str, model: type[Model], name: str) -> _Part:
    fields: Sequence[Any] = [model._meta.get_field(name)] if name else model._meta.concrete_fields
    columns = ", ".join(f'{alias}."{field.column}"' for field in fields)
    readers = [(index, read) for index, field in enumerate(fields) if (read := _reader(field)) is not None]
    names = [field.attname for field in fields]

    def value(row: Sequence[Any]) -> Any:
        return readers[0][1](row[0]) if readers else row[0]

    def instance(row: Sequence[Any]) -> Model:
        values = list(row)
        for index, read in readers:
            values[index] = read(values[index])
        return model.from_db(DEFAULT_DB_ALIAS, names, values)

    return _Part(columns, len(fields), value if name else instance)


@cache
def _insertion(model: type[Model]) -> tuple[str, list[tuple[str, Convert | None]], str | None]:
    """Return the statement, the attribute and conversion of each value, and the attribute of the automatic key."""
    automatic = model._meta.auto_field
    fields = [field for field in model._meta.concrete_fields if field is not automatic]
    columns = ", ".join(f'"{field.column}"' for field in fields)
    sql = f'INSERT INTO "{model._meta.db_table}" ({columns}) VALUES ({", ".join(["%s"] * len(fields))})'
    written = [(field.attname, _writer(field)) for field in fields]
    if automatic is None:
        return sql, written, None
    return f'{sql} RETURNING "{automatic.column}"', written, automatic.attname


def _values(row: Model, fields: list[tuple[str, Convert | None]]) -> list[Any]:
    given = vars(row)
    return [given[name] if convert is None else convert(given[name]) for name, convert in fields]


def _run(sql: str, bound: Sequence[list[Any]]) -> int:
    """Run a statement with each of several sets of values, all sent together where the server is far."""
    if not bound:
        return 0
    with connection.cursor() as cursor:
        if len(bound) == 1:
            cursor.execute(sql, bound[0])
        else:
            cursor.executemany(sql, bound)
        return int(cursor.rowcount)


def _writer(field: Any) -> Convert | None:
    """Return the function that turns a field's value into a parameter; None if the driver takes it unchanged."""
    if isinstance(field, ForeignKey):
        return _writer(field.target_field)
    if isinstance(field, DateTimeField):
        return lambda value: None if value is None else store().moment(value)
    if isinstance(field, CharField | TextField | IntegerField):
        return None
    return lambda value: None if value is None else field.get_db_prep_save(value, connection)


def _reader(field: Any) -> Convert | None:
    """Return the function that turns what the driver gives into a field's value; None if that is it."""
    if isinstance(field, ForeignKey):
        return _reader(field.target_field)
    if isinstance(field, DateTimeField):
        return _as_moment
    if isinstance(field, BooleanField):
        return lambda value: None if value is None else bool(value)
    read = getattr(field, "from_db_value", None)
    return None if read is None else lambda value: None if value is None else read(value, None, connection)


def _as_moment(value: datetime | str | None) -> datetime | None:
    """Return a time as the ORM does. Of SQLite, Django's connection gives it without a zone, a bare one as text."""
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    return found if found is None or found.tzinfo else found.replace(tzinfo=UTC)
