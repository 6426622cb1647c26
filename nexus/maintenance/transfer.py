"""Copy of a whole store into another database, compared before it is committed."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connection, connections, models
from django.db.backends.base.base import BaseDatabaseWrapper

from coordination.models import Event, Workspace
from inbox.models import PRUNED
from nexus.core.config import CoreSettings
from nexus.core.database.store import instead, store, write
from nexus.core.operations.errors import Code, NexusError, invalid
from nexus.maintenance import history, store_file
from nexus.maintenance.store_file import Progress
from nexus.maintenance.store_users import in_use

log = logging.getLogger(__name__)

AT_ONCE = 500  # rows
DOCUMENTS = "message_documents"  # the search index of messages without an event: a table without a model
MADE_BY_MIGRATE = (Permission, ContentType)  # a new store has rows in these, which are replaced


@dataclass(frozen=True)
class Contents:
    """The content of a store, as far as two stores are compared."""

    rows: dict[str, int]  # by table
    given_out: dict[str, int]  # the highest automatic id, by table
    histories: dict[str, str]  # the SHA-256 of the export, by workspace


def transfer(target: CoreSettings, progress: Progress) -> dict[str, int]:
    """Copy the store into the empty one that `target` names, completely or not at all; return the rows by table.

    The store is locked for writers meanwhile, and is not changed. Raises VALIDATION_ERROR for a target that is not
    empty or is the store itself, MIGRATION_ERROR for a newer one, DB_ERROR if the store is in use or the copy differs.
    """
    current = CoreSettings.current()
    if target.location == current.location:
        raise invalid(f"The store is at {current.location} already: name another target.")
    if current.database_url is None and not current.database.exists():
        raise invalid(f"There is no store at {current.database}. Check --home and --db-path.")
    if users := in_use(current):
        raise NexusError(
            Code.DB_ERROR,
            f"The store is in use by {users}. Stop that first: what is written meanwhile would be lost.",
            {"cause": "in_use"},
        )
    if target.database_url is not None:
        return _transfer(target, target.location, progress)
    destination = target.database
    if destination.exists():
        raise store_file.exists_error(destination)
    with (
        store_file.explained(f"Nothing was written to {destination}."),
        store_file.partial_file(destination) as partial,
    ):
        try:
            rows = _transfer(target.replaced(db_path=partial), target.location, progress)
            store_file.one_file(partial)
            store_file.publish(partial, destination)
        finally:
            for left in partial.parent.glob(f"{partial.name}?*"):  # locks, and the log of a failed one
                left.unlink(missing_ok=True)
    return rows


def _transfer(target: CoreSettings, database: str, progress: Progress) -> dict[str, int]:
    store().prepare()
    with write():
        source, held = connections[DEFAULT_DB_ALIAS], contents()
        with instead(target), _explained(database):
            if target.database_url is None:
                store().prepare()  # outside of a transaction, in which SQLite cannot create all tables
            with write():
                if target.database_url is not None:
                    _complete(database)
                _copy(source, sum(held.rows.values()), progress)
                for model in _numbered():
                    store().give_out_above(model, held.given_out[model._meta.db_table])
                if differing := _differing(held, contents()):
                    raise NexusError(
                        Code.DB_ERROR,
                        f"The copy in {database} differs from the store in {differing}; it was undone. "
                        "Run `nexus doctor`, then try again.",
                    )
    return held.rows


def _complete(database: str) -> None:
    """Migrate the target database to this version within the transaction, so that a failed copy leaves no table."""
    _refuse_used(database)
    if store().pending():
        call_command("migrate", interactive=False, verbosity=0)


def _refuse_used(database: str) -> None:
    with connection.cursor() as cursor:
        tables = set(connection.introspection.table_names(cursor))
        made = {"django_migrations", *(model._meta.db_table for model in MADE_BY_MIGRATE)}
        foreign = tables and not made <= tables
        for table in sorted(tables - made):
            cursor.execute(f"SELECT 1 FROM {connection.ops.quote_name(table)} LIMIT 1")  # noqa: S608
            if foreign or cursor.fetchone():
                raise invalid(
                    f"{database} is not empty (see its table {table}), and was left as it is. "
                    "A store is moved into a new one."
                )


def contents() -> Contents:
    """Return the content of the store in use."""
    with connection.cursor() as cursor:
        rows = {}
        for table in (*(model._meta.db_table for model in _models()), DOCUMENTS):
            cursor.execute(f"SELECT count(*) FROM {connection.ops.quote_name(table)}")  # noqa: S608
            rows[table] = int(cursor.fetchone()[0])
    histories = {
        str(workspace_id): _digest(history.export(workspace_id))
        for workspace_id in Workspace._base_manager.order_by("pk").values_list("pk", flat=True)
    }
    return Contents(rows, {model._meta.db_table: store().given_out(model) for model in _numbered()}, histories)


def _digest(lines: Iterator[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def _differing(ours: Contents, copied: Contents) -> str:
    """Return the differences of the copy, in words; empty if there are none."""
    tables = [table for table, count in ours.rows.items() if copied.rows[table] != count]
    if tables:
        return f"the rows of {', '.join(tables)}"
    if any(copied.given_out[table] < head for table, head in ours.given_out.items()):
        return "the ids that are next"
    changed = [
        workspace_id for workspace_id, digest in ours.histories.items() if copied.histories[workspace_id] != digest
    ]
    return f"the history of the workspaces {', '.join(changed)}" if changed else ""


def _models() -> list[type[models.Model]]:
    """Return the model of every table. References are checked when a transaction ends. But the triggers that index an
    event read its message and its document, so events come last."""
    every = [model for model in apps.get_models(include_auto_created=True) if model._meta.managed]
    return [*(model for model in every if model is not Event), Event]


def _numbered() -> Iterator[type[models.Model]]:
    return (model for model in _models() if isinstance(model._meta.pk, models.AutoField))


def _copy(source: BaseDatabaseWrapper, total: int, progress: Progress) -> None:
    left = total

    def count_rows(count: int) -> None:
        nonlocal left
        left -= count
        progress(0, left, total)

    with connection.cursor() as cursor:
        for made in MADE_BY_MIGRATE:
            cursor.execute(f"DELETE FROM {connection.ops.quote_name(made._meta.db_table)}")  # noqa: S608
    _copy_table(source, DOCUMENTS, ["document", "message_id"], tuple, count_rows)
    for model in _models():
        fields = model._meta.concrete_fields
        columns = [str(field.column) for field in fields]
        _copy_table(source, model._meta.db_table, columns, _conversion(source, fields), count_rows)
    with connection.cursor() as cursor:
        cursor.execute(PRUNED[connection.vendor])


def _copy_table(
    source: BaseDatabaseWrapper,
    table: str,
    columns: Sequence[str],
    converted: Callable[[Sequence[Any]], Sequence[Any]],
    count_rows: Callable[[int], None],
) -> None:
    quoted = connection.ops.quote_name(table)
    names = ", ".join(map(connection.ops.quote_name, columns))
    insertion = f"INSERT INTO {quoted} ({names}) VALUES ({', '.join(['%s'] * len(columns))})"  # noqa: S608
    with source.chunked_cursor() as reading, connection.cursor() as writing:
        reading.execute(f"SELECT {names} FROM {quoted}")  # noqa: S608
        while rows := reading.fetchmany(AT_ONCE):
            try:
                writing.executemany(insertion, [converted(row) for row in rows])
            except DatabaseError as error:
                if store().failure(error):
                    raise
                log.error("a row of %s was refused", table, exc_info=error)
                raise NexusError(
                    Code.DB_ERROR,
                    f"The database refuses a row of {table}, and nothing was written; the log has the cause.",
                ) from None
            count_rows(len(rows))


def _conversion(source: BaseDatabaseWrapper, fields: Sequence[Any]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return a function that converts a row of one database for the other. JSON is text in both, and stays as it was
    written."""
    reading = []
    for field in fields:
        column = field.get_col(field.model._meta.db_table)
        is_json = isinstance(column.output_field, models.JSONField)
        converters = [] if is_json else [*source.ops.get_db_converters(column), *field.get_db_converters(source)]
        reading.append((field, column, converters, is_json))

    def converted(row: Sequence[Any]) -> list[Any]:
        values = []
        for value, (field, column, converters, is_json) in zip(row, reading, strict=True):
            for converter in converters:
                value = converter(value, column, source)
            values.append(value if is_json else field.get_db_prep_save(value, connection))
        return values

    return converted


@contextmanager
def _explained(database: str) -> Iterator[None]:
    """Turn errors of the other database into a DB_ERROR that says that nothing was written there."""
    try:
        yield
    except DatabaseError as error:
        known = store().failure(error)
        if known is None:
            log.error("moving the store to %s failed", database, exc_info=error)
        why = known.message if known else "The log has the cause."
        raise NexusError(
            Code.DB_ERROR, f"Nothing was written to {database}. {why}", known.details if known else {}
        ) from None
