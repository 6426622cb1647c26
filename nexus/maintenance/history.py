"""Export of a workspace's history as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Generator
from datetime import datetime
from functools import cache
from typing import Any

from django.db import models
from django.db.models import Q, QuerySet

from coordination.models import Agent, Workspace
from nexus.core.apps import nexus_apps
from nexus.core.clock import iso
from nexus.core.contributions import ExportKind
from nexus.core.database.keys import TextNumber
from nexus.core.operations.errors import invalid

FORMAT = 1
AT_ONCE = 500  # rows
SECRETS = ("secret_hash",)  # columns that are not exported


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


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    return iso(value) if isinstance(value, datetime) else value


@cache
def _columns(model: type[models.Model]) -> dict[str, str]:
    """Return the exported columns of a table, with the names that the model has for them."""
    fields = (item for item in model._meta.concrete_fields if not isinstance(item, TextNumber))
    return {str(item.column): item.attname for item in fields if item.column not in SECRETS}
