"""Export of a workspace's history as lines of JSON, and replay of these lines into an empty store."""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal

from django.db import IntegrityError, models, transaction
from django.db.models import Q, QuerySet
from pydantic import AwareDatetime, ConfigDict, Field, TypeAdapter, ValidationError, create_model

from coordination.models import Agent, Event, Workspace
from nexus.core.apps import nexus_apps
from nexus.core.clock import iso
from nexus.core.contributions import ExportKind
from nexus.core.database.keys import TextNumber
from nexus.core.database.store import store, write
from nexus.core.operations.errors import NexusError, invalid
from nexus.core.operations.validation import unstorable

FORMAT = 1
AT_ONCE = 500  # rows
SECRETS = {"secret_hash": "-"}  # columns that are not exported, with a value that no secret hashes to
INT64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
STRICT = ConfigDict(strict=True, extra="forbid")


@cache
def kinds() -> dict[str, ExportKind]:
    """Return the kinds of rows that the apps contribute, in the order of the file."""
    every = (kind for app in nexus_apps() for kind in app.export_kinds())
    return {kind.name: kind for kind in sorted(every, key=lambda kind: kind.position)}


def _rows(kind: ExportKind, workspace_id: str) -> QuerySet[Any]:
    return _agents_concerned(workspace_id) if kind.model is Agent else kind.rows(workspace_id)


def _agents_concerned(workspace_id: str) -> QuerySet[Any]:
    """Return the agents that a workspace's rows name. Names that were never registered have no row."""
    anyone = Q()
    for kind in kinds().values():
        for column in kind.agents:
            anyone |= Q(agent_id__in=kind.rows(workspace_id).values(column))
    return Agent._base_manager.filter(anyone)


@cache
def _secrets_of(model: type[models.Model]) -> dict[str, str]:
    return {name: value for name, value in SECRETS.items() if hasattr(model, name)}


def export(workspace_id: str) -> Generator[str]:
    """Yield the lines of a workspace's history, in an order that depends only on its rows.

    `{"kind": "export", "format", "workspace_id"}`, then `{"kind", "row": {column: value}}` of each row by kind and id,
    then `{"kind": "end", "rows"}`. Keys and session secrets are left out. Raises VALIDATION_ERROR for an unknown
    workspace.
    """
    if not Workspace._base_manager.filter(pk=workspace_id).exists():
        raise invalid("That workspace is not in this store.", workspace_id=workspace_id)
    yield _line({"kind": "export", "format": FORMAT, "workspace_id": workspace_id})
    count = 0
    for kind, declared in kinds().items():
        columns = _columns(declared.model)
        for values in (
            _rows(declared, workspace_id).order_by("pk").values_list(*columns.values()).iterator(chunk_size=AT_ONCE)
        ):
            count += 1
            yield _line({"kind": kind, "row": dict(zip(columns, map(_plain, values), strict=True))})
    yield _line({"kind": "end", "rows": count})


def replay(path: Path) -> dict[str, int]:
    """Write an exported history into this store, completely or not at all; return the number of rows of each kind.

    It is committed only after a new export was equal to the file, byte for byte. Raises VALIDATION_ERROR if the store
    is not empty, and, with the number of the line, for a line that export does not write.
    """
    with write():
        if any(model._base_manager.exists() for model in (kind.model for kind in kinds().values())):
            raise invalid("This store is not empty: a history is played into a new one. Choose another --home.")
        playing = _Playing()
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                playing.read(number, line)
            playing.finish()
        with path.open("rb") as file, closing(export(playing.workspace_id)) as lines:
            _compare(file, lines)  # closed within the transaction, as a server-side cursor must be
        # Ids of other workspaces' events are missing, and the ids of an emptied store continue above its former ones.
        store().admit_gaps(Event._meta.db_table)
        for kind in kinds().values():
            if isinstance(kind.model._meta.pk, models.AutoField) and (last := _last_id(kind.model)):
                store().give_out_above(kind.model, last)
    return playing.counts


def _last_id(model: type[models.Model]) -> int | None:
    last: int | None = model._base_manager.aggregate(last=models.Max("pk"))["last"]
    return last


@dataclass
class _Playing:
    """The state between two lines of a replay."""

    workspace_id: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    ended: bool = False
    _batch: list[tuple[int, models.Model]] = field(default_factory=list)
    _seen: set[tuple[type[models.Model], Any]] = field(default_factory=set)
    _wanted: dict[tuple[type[models.Model], Any], int] = field(default_factory=dict)  # with the line that refers to it

    def read(self, number: int, line: bytes) -> None:
        """Read one line. Raises VALIDATION_ERROR with its number."""
        record = _parsed(number, line)
        if (number == 1) != (record.kind == "export"):
            raise _refused(number, "a history begins with its export line, and has no other")
        if self.ended:
            raise _refused(number, "nothing follows the end line")
        if record.kind == "export":
            self.workspace_id = record.workspace_id
        elif record.kind == "end":
            self.ended = True
            if record.rows != sum(self.counts.values()):
                raise _refused(number, f"{record.rows} rows were written and {sum(self.counts.values())} are here")
        else:
            self._add(number, record.kind, dict(record.row))

    def finish(self) -> None:
        """Write the remaining rows, and check that every reference of a row leads to one."""
        if not self.ended:
            raise invalid("The file has no end line: it was cut short. Export the history again.")
        if (Workspace, self.workspace_id) not in self._seen:
            raise _refused(1, "it names a workspace that the file does not have")
        self._flush()
        if missing := [
            (number, model) for (model, key), number in self._wanted.items() if (model, key) not in self._seen
        ]:
            number, model = min(missing, key=lambda found: found[0])
            raise _refused(number, f"it refers to a row of {model._meta.db_table} that the file does not have")

    def _add(self, number: int, kind: str, row: dict[str, Any]) -> None:
        if problem := unstorable(row, lambda column: math.inf):  # an exported row may be of any size
            raise _refused(number, problem.message)
        model = kinds()[kind].model
        item = model(**_secrets_of(model), **{name: row[column] for column, name in _columns(model).items()})
        if (model, item.pk) in self._seen:
            raise _refused(number, f"the {kind} {item.pk} was there before")
        self._seen.add((model, item.pk))
        for link in _links(model):
            if (key := getattr(item, link.attname)) is not None:
                self._wanted.setdefault((link.remote_field.model, key), number)
        if self._batch and (len(self._batch) == AT_ONCE or type(self._batch[0][1]) is not model):
            self._flush()
        self._batch.append((number, item))
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def _flush(self) -> None:
        try:
            with transaction.atomic():
                _insert([item for _, item in self._batch])
        except IntegrityError:
            self._name_the_culprit()
        self._batch = []

    def _name_the_culprit(self) -> None:
        for number, item in self._batch:
            try:
                with transaction.atomic():
                    _insert([item])
            except IntegrityError:
                raise _refused(number, "the row is in a state that no operation leaves behind") from None


def _insert(items: list[models.Model]) -> None:
    if items:
        type(items[0])._base_manager.bulk_create(items)


def _compare(file: Iterable[bytes], lines: Iterable[str]) -> None:
    ours = (f"{line}\n".encode() for line in lines)
    for number, (given, made) in enumerate(zip_longest(file, ours), 1):
        if given != made:
            raise _refused(number, "it is not in the form, or at the position, that export writes it")


def _refused(number: int, why: str) -> NexusError:
    return invalid(f"Line {number}: {why}. Nothing was played.", line=number)


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    return iso(value) if isinstance(value, datetime) else value


@cache
def _columns(model: type[models.Model]) -> dict[str, str]:
    """Return the exported columns of a table, with the names that the model has for them."""
    fields = (item for item in model._meta.concrete_fields if not isinstance(item, TextNumber))
    return {str(item.column): item.attname for item in fields if item.column not in SECRETS}


@cache
def _links(model: type[models.Model]) -> list[Any]:
    return [item for item in model._meta.concrete_fields if item.is_relation]


def _parsed(number: int, line: bytes) -> Any:
    try:
        return _lines().validate_json(line)
    except ValidationError as error:
        where = ".".join(str(step) for step in error.errors(include_url=False)[0]["loc"][1:])[:200]
        raise _refused(number, f"it is not one that export writes{f' (see {where})' if where else ''}") from None


@cache
def _lines() -> TypeAdapter[Any]:
    """Return the type of a line, derived from the models."""
    forms = _strict("export", format=Literal[1], workspace_id=str) | _strict("end", rows=int)
    for kind, declared in kinds().items():
        fields, exported = declared.model._meta.concrete_fields, _columns(declared.model)
        columns = {item.column: _type(item) for item in fields if item.column in exported}
        forms |= _strict(kind, row=create_model(f"{kind}_row", __config__=STRICT, **_required(columns)))
    line: Any = Annotated[forms, Field(discriminator="kind")]
    return TypeAdapter(line)


def _strict(kind: str, **types: Any) -> Any:
    return create_model(kind, __config__=STRICT, **_required({"kind": Literal[kind], **types}))


def _required(types: dict[Any, Any]) -> dict[str, Any]:
    return {name: (kind, ...) for name, kind in types.items()}


def _type(column: Any) -> Any:
    source = column.target_field if column.is_relation else column
    if isinstance(source, models.JSONField):
        return Any
    plain: Any = str
    if isinstance(source, models.DateTimeField):
        plain = AwareDatetime
    elif isinstance(source, models.BooleanField):
        plain = bool
    elif isinstance(source, models.IntegerField):
        plain = INT64
    elif source.max_length:
        plain = Annotated[str, Field(max_length=source.max_length)]
    return plain | None if column.null else plain
