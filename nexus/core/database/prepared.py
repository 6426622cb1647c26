"""Prepared statements for what nearly every call does, at a tenth of the price.

The ORM writes the SQL once; later calls only bind values. Building a query anew costs a call more than all of its SQL
takes to run.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import cache, lru_cache
from typing import Any, Generic, TypeVar, cast

from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import (
    CharField,
    DateTimeField,
    Expression,
    Field,
    ForeignKey,
    IntegerField,
    JSONField,
    Model,
    QuerySet,
    TextField,
)
from django.db.models.base import ModelState
from django.db.models.query import ModelIterable, get_related_populators
from django.db.models.sql import InsertQuery, UpdateQuery
from django.db.models.sql.where import WhereNode

from nexus.core.database.store import outlasts_its_block, store

M = TypeVar("M", bound=Model)
Row = TypeVar("Row")
PARAMETER = re.compile(r"(?<!%)%s")  # as Django's backend for SQLite finds them
WORD = re.compile(r"[A-Za-z_]+")
Prepare = Callable[[Any, BaseDatabaseWrapper], Any]  # a value, for a connection


class Slot(Expression):
    """A placeholder in a queryset for a value that a call binds by this name; not for null, which SQL compares
    differently."""

    prepare: Prepare | None = None

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        return "%s", [self]


class Select(Generic[Row]):
    """A prepared read: `build` returns a queryset of instances or of `values_list` tuples, with slots.

    A call with the slots' values returns the rows; `limit` cuts them, and each limit is its own statement.

    It can also be called on an event loop if the store is local and the read is short: it raises
    SynchronousOnlyOperation if only a thread may run it, as the ORM does.
    """

    def __init__(self, build: Callable[[], QuerySet[Any, Row]]) -> None:
        self._build = build
        self._prepared = lru_cache(maxsize=32)(self._prepare)  # by limit

    def __call__(self, limit: int | None = None, /, **values: Any) -> list[Row]:
        sql, parameters, read = self._prepared(limit)
        if is_on_loop():
            rows = store().look(_with_question_marks(sql), _bound(parameters, values, _unopened()))
            return read(rows) if rows else []
        on = connections[DEFAULT_DB_ALIAS]
        cursor = _cursor(on)
        cursor.execute(sql, _bound(parameters, values, on))
        rows = cursor.fetchall()
        return read(rows) if rows else []

    def first(self, **values: Any) -> Row | None:
        """Return the first row, or None."""
        rows = self(1, **values)
        return rows[0] if rows else None

    def _prepare(self, limit: int | None) -> tuple[str, tuple[Any, ...], Callable[[list[Any]], list[Row]]]:
        queryset = self._build()[:limit]
        _prepare_slots(queryset.query.where)
        compiler = queryset.query.get_compiler(connection=connection)
        sql, parameters = _settled(*compiler.as_sql())
        select = [column for column, _, _ in compiler.select]
        converters = compiler.get_converters(select)

        def converted(rows: list[Any]) -> list[Any]:
            return list(map(tuple, compiler.apply_converters(rows, converters))) if converters else rows

        if not issubclass(queryset._iterable_class, ModelIterable):
            return sql, parameters, converted
        made = compiler.klass_info
        columns = made["select_fields"]
        names = [select[column].target.attname for column in columns]
        start, end = columns[0], columns[-1] + 1
        populators: Callable[..., list[Any]] = get_related_populators
        related = populators(made, compiler.select, connection.alias)

        def instances(rows: list[Any]) -> list[Row]:
            found = []
            for row in converted(rows):
                state = ModelState()
                state.adding, state.db = False, DEFAULT_DB_ALIAS
                instance = _instance(made["model"], dict(zip(names, row[start:end], strict=True)), state)
                for populator in related:
                    populator.populate(row, instance)
                found.append(instance)
            return found

        return sql, parameters, instances


class Update:
    """A prepared UPDATE of the rows of `build`'s queryset; `changes` are values, expressions and slots."""

    def __init__(self, build: Callable[[], QuerySet[Any]], **changes: Any) -> None:
        self._build, self._changes = build, changes
        self._statement: tuple[str, tuple[Any, ...]] | None = None
        self._preparations: dict[str, Prepare] = {}  # by slot

    def __call__(self, **values: Any) -> int:
        """Run it and return the number of changed rows."""
        return self.each([values])

    def each(self, bindings: Iterable[Mapping[str, Any]]) -> int:
        """Run it with several sets of values, one after the other; return the number of changed rows in all."""
        if self._statement is None:
            query = cast("UpdateQuery", self._build().query.chain(UpdateQuery))
            _prepare_slots(query.where)
            query.add_update_values(self._changes)
            slots = {name: value.name for name, value in self._changes.items() if isinstance(value, Slot)}
            fields = {slot: query.get_meta().get_field(name) for name, slot in slots.items()}
            self._preparations = {
                slot: _as_saved(field) for slot, field in fields.items() if isinstance(field, JSONField)
            }
            self._statement = _settled(*query.get_compiler(connection=connection).as_sql())
        sql, parameters = self._statement
        on, bound = connections[DEFAULT_DB_ALIAS], []
        for values in bindings:
            prepared = {slot: prepare(values[slot], on) for slot, prepare in self._preparations.items()}
            bound.append(_bound(parameters, {**values, **prepared}, on))
        return _run(on, sql, bound)


def insert(*instances: Model) -> None:
    """Insert instances of one model, as `save(force_insert=True)` does, but without signals; set an automatic key."""
    if not instances:
        return
    on = connections[DEFAULT_DB_ALIAS]
    sql, _, key = _insertion(type(instances[0]))
    bound = [_values(instance, on) for instance in instances]
    if key is None:
        _run(on, sql, bound)
    else:
        cursor = _cursor(on)
        for instance, values in zip(instances, bound, strict=True):
            cursor.execute(sql, values)
            returned = on.features.can_return_columns_from_insert
            setattr(instance, key, cursor.fetchall()[0][0] if returned else cursor.lastrowid)
    for instance in instances:
        instance._state.adding, instance._state.db = False, DEFAULT_DB_ALIAS


def append(row: Model, *, numbered: bool) -> None:
    """Insert a row of the log, see `Store.append`. A transaction that lasts longer than its block has the key at once,
    too, because what follows the block may use it."""

    def statement() -> tuple[str, list[Any], str]:
        sql, _, key = _insertion(type(row))
        assert key is not None
        return sql, _values(row, connections[DEFAULT_DB_ALIAS]), key

    if not store().append(row, statement, numbered=numbered or outlasts_its_block()):
        insert(row)


def _values(instance: Model, on: BaseDatabaseWrapper) -> list[Any]:
    """Return the parameters of the statement for an instance."""
    _, columns, _ = _insertion(type(instance))
    given = instance.__dict__
    return [given[name] if prepare is None else prepare(given[name], on) for name, prepare in columns]


def _run(on: BaseDatabaseWrapper, sql: str, bound: list[list[Any]]) -> int:
    """Run a statement without rows with each of several sets of values, all sent together where the server is far;
    return the number of changed rows in all."""
    if not bound:
        return 0
    store().settle()
    cursor = _cursor(on, _writing)
    if len(bound) == 1:
        cursor.execute(sql, bound[0])
    else:
        cursor.executemany(sql, bound)
    return int(cursor.rowcount)


def unsaved(model: type[M], **values: Any) -> M:
    """Return an instance that is not stored yet, like `model(**values)`, but without signals, at a tenth of the price.

    `values` are named by the columns' attributes: `workspace_id`, not `workspace`.
    """
    given = {name: values.pop(name) if name in values else default() for name, default in _defaults(model)}
    if values:
        raise TypeError(f"{model.__name__} has no {', '.join(values)}")
    return _instance(model, given, ModelState())


def _instance(model: type[M], values: Mapping[str, Any], state: ModelState) -> M:
    """Return a model's instance without a call of its `__init__`; a column that `values` leave out is deferred."""
    instance = model.__new__(model)
    instance.__dict__.update(values, _state=state)
    return instance


@cache
def _defaults(model: type[Model]) -> list[tuple[str, Callable[[], Any]]]:
    return [(field.attname, field.get_default) for field in model._meta.local_concrete_fields]


class _Kept(threading.local):
    """A thread's cursor and its connection."""

    of: Any = None
    cursor: Any = None


# What a batch sends together gives its rows later, so rows are never asked of the cursor that writes.
_reading, _writing = _Kept(), _Kept()


def _cursor(on: BaseDatabaseWrapper, kept: _Kept = _reading) -> Any:
    """Return the thread's cursor: creating one takes as long as a small statement. Whoever uses it reads all its
    rows."""
    if on.connection is None or on.connection is not kept.of or on.force_debug_cursor:
        made = on.cursor()
        if on.force_debug_cursor:
            return made
        kept.of, kept.cursor = on.connection, made
    return kept.cursor


@cache
def _insertion(model: type[Model]) -> tuple[str, list[tuple[str, Prepare | None]], str | None]:
    """Return the statement, the attribute and preparation of each parameter, and the automatic key's attribute."""
    automatic = model._meta.auto_field
    fields = [field for field in model._meta.local_concrete_fields if field is not automatic]
    pattern = model()
    for field in fields:
        setattr(pattern, field.attname, Slot(field.attname))
    query = InsertQuery(model)
    query.insert_values(fields, [pattern])
    compiler = query.get_compiler(connection=connection)
    compiler.returning_fields = [automatic] if automatic is not None else None
    [(sql, parameters)] = compiler.as_sql()
    preparations = {field.attname: _preparation(field) for field in fields}
    columns = [(slot.name, preparations[slot.name]) for slot in cast("Iterable[Slot]", parameters)]
    return sql, columns, automatic.attname if automatic is not None else None


def _settled(sql: str, parameters: Iterable[Any]) -> tuple[str, tuple[Any, ...]]:
    """Return a statement with the texts written into it that are the same in each call, such as a status.

    SQLite must see them to know that it can use a partial index. For a parameter it looks at the value and then
    plans the statement anew with every call, which takes longer than running it.
    """
    first, *rest = PARAMETER.split(sql)
    text, kept = [first], []
    for part, after in zip(parameters, rest, strict=True):
        if isinstance(part, str) and WORD.fullmatch(part):
            text += [f"'{part!s}'", after]
        else:
            text += ["%s", after]
            kept.append(part)
    return "".join(text), tuple(kept)


def _prepare_slots(where: Any) -> None:
    """Let slots that are compared with a foreign key convert their values to the stored form."""
    for part in where.children:
        if isinstance(part, WhereNode):
            _prepare_slots(part)
        elif isinstance(slot := getattr(part, "rhs", None), Slot) and isinstance(part.lhs.output_field, ForeignKey):
            slot.prepare = _preparation(part.lhs.output_field)


def _preparation(field: Field[Any, Any]) -> Prepare | None:
    """Return the function that converts a field's value to a parameter; None if the driver takes it unchanged."""
    if isinstance(field, ForeignKey):
        return _preparation(field.target_field)
    if isinstance(field, CharField | TextField | IntegerField):
        return None
    return _moment if isinstance(field, DateTimeField) else _as_saved(field)


@cache
def _unopened() -> BaseDatabaseWrapper:
    """Return a connection that only converts values: each task of an event loop would create a connection of its
    own."""
    return connections.create_connection(DEFAULT_DB_ALIAS)


@lru_cache(maxsize=1000)
def _with_question_marks(sql: str) -> str:
    """Return a statement in the form that the SQLite driver takes without Django in between."""
    return PARAMETER.sub("?", sql).replace("%%", "%")


def _as_saved(field: Field[Any, Any]) -> Prepare:
    if isinstance(field, JSONField) and type(field).get_db_prep_value is JSONField.get_db_prep_value:
        encoder = field.encoder
        return lambda value, on: None if value is None else on.ops.adapt_json_value(value, encoder)
    return lambda value, on: None if value is None else field.get_db_prep_save(value, on)


def _moment(value: datetime | None, on: BaseDatabaseWrapper) -> Any:
    return on.ops.adapt_datetimefield_value(value)


def _bound(parameters: tuple[Any, ...], values: Mapping[str, Any], on: BaseDatabaseWrapper) -> list[Any]:
    bound = [values[part.name] if isinstance(part, Slot) else part for part in parameters]
    for index, (part, value) in enumerate(zip(parameters, bound, strict=True)):
        if isinstance(value, datetime):
            bound[index] = _moment(value, on)
        elif isinstance(part, Slot) and part.prepare is not None:
            bound[index] = part.prepare(value, on)
    return bound


class Lookup:
    """A prepared read of one column's value in the row that a unique column names; None if there is no such row.

    It can be called on an event loop, as `Select.first`.
    """

    def __init__(self, rows: Callable[[], QuerySet[Any]], *, by: str = "pk", column: str = "pk") -> None:
        self._select: Select[Any] = Select(lambda: rows().filter(**{by: Slot("key")}).values_list(column))

    def __call__(self, key: str) -> Any:
        row = self._select.first(key=key)
        return row[0] if row else None


def is_on_loop() -> bool:
    """Return whether this thread runs an event loop now, where nothing may block."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
