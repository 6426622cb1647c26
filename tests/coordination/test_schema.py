"""The invariants that the database keeps by itself, whatever code reaches it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, IntegrityError, connection, models, transaction
from django.db.utils import ConnectionHandler, DatabaseError

from coordination.models import (
    Agent,
    AgentKey,
    Artifact,
    Channel,
    Event,
    RetentionPass,
    Session,
    Workspace,
)
from coordination.toolset import run
from handoffs.models import Handoff
from inbox.models import Delivery, Message
from nexus.core.clock import now
from nexus.core.database.store import store
from tests.conftest import LOCAL, Call

MODELS: list[type[models.Model]] = [
    Workspace,
    Agent,
    AgentKey,
    Session,
    Event,
    Channel,
    Artifact,
    Message,
    Delivery,
    Handoff,
]


@pytest.fixture
def rows(call: Call, project: str, workspace: str, ann: str) -> dict[type[models.Model], models.Model]:
    """One sound row of every table."""
    call("session_open", agent_id=ann, workspace_id=workspace)
    call("channel_create", project_root=project, name="general")
    call("artifact_put", project_root=project, artifact_type="text", content="c")
    target = {"strategy": "direct", "agent_id": ann}
    call("message_create", project_root=project, from_agent_id="boss", subject="s", body="b", target=target)
    call("handoff_create", project_root=project, from_agent_id="boss", target=target, visibility="public")
    AgentKey.objects.create(agent_id=ann, key_hash="h", created_at=now())
    return {model: model._default_manager.order_by("pk")[0] for model in MODELS}


def test_the_database_has_every_index_and_constraint_that_a_model_declares(db: None) -> None:
    with connection.cursor() as cursor:
        for about in (model._meta for model in apps.get_models()):
            there = connection.introspection.get_constraints(cursor, about.db_table)
            assert {each.name for each in (*about.indexes, *about.constraints)} <= set(there), about.label


def refused(action: Callable[[], Any], by: type[DatabaseError] = IntegrityError) -> None:
    with pytest.raises(by), transaction.atomic():
        action()


def sql(statement: str, *parameters: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)


def set_column(row: models.Model, column: str, value: Any) -> Callable[[], None]:
    """An UPDATE past the ORM; where even that is refused (the log) a copy of the row with another value."""
    meta = row._meta
    if isinstance(row, Event):
        columns = ["workspace_id", "stream", "type", "payload", "visibility", "created_at"]
        values = ", ".join("%s" if name == column else name for name in columns)
        copy = f"INSERT INTO events ({', '.join(columns)}) SELECT {values} FROM events WHERE event_id = %s"
        return lambda: sql(copy, value, row.pk)
    key = meta.pk.column if meta.pk else ""
    return lambda: sql(f'UPDATE "{meta.db_table}" SET "{column}" = %s WHERE "{key}" = %s', value, row.pk)


# Events are append-only


def test_it_refuses_to_change_an_event(rows: Any) -> None:
    refused(lambda: sql("UPDATE events SET type = 'other'"))
    refused(lambda: Event.objects.update(payload={}))
    refused(lambda: sql("UPDATE events SET event_id = event_id + 1000"))


def test_it_refuses_to_delete_an_event(rows: Any) -> None:
    refused(lambda: sql("DELETE FROM events"))
    refused(lambda: Event.objects.all().delete())


def test_it_refuses_to_change_an_event_even_in_a_retention_pass(rows: Any) -> None:
    RetentionPass.objects.create()
    refused(lambda: sql("UPDATE events SET type = 'other'"))


def test_it_lets_a_retention_pass_delete_and_closes_behind_it(rows: Any) -> None:
    RetentionPass.objects.create()
    before = Event.objects.count()
    first = Event.objects.order_by("event_id")[0]
    first.delete()
    RetentionPass.objects.all().delete()
    refused(lambda: sql("DELETE FROM events"))
    assert Event.objects.count() == before - 1


def test_it_never_reuses_an_id_even_of_the_newest_event(rows: Any, call: Call, project: str) -> None:
    newest = Event.objects.order_by("-event_id")[0].event_id
    RetentionPass.objects.create()
    Event.objects.all().delete()
    RetentionPass.objects.all().delete()
    call("artifact_put", project_root=project, artifact_type="text", content="c")
    assert Event.objects.get().event_id == newest + 1


@pytest.mark.sqlite  # a sequence of PostgreSQL never goes back
def test_it_leaves_no_gap_when_a_transaction_is_rolled_back(committed: None, call: Call, project: str) -> None:
    def put(**more: Any) -> dict[str, Any]:
        return run(LOCAL, "artifact_put", {"project_root": project, "artifact_type": "text", "content": "c", **more})

    assert put()["ok"]
    with pytest.raises(RuntimeError), transaction.atomic():
        assert put()["ok"]
        raise RuntimeError
    message = {"project_root": project, "from_agent_id": "a", "subject": "s", "body": "b"}
    assert not run(LOCAL, "message_create", {**message, "target": {"strategy": "direct", "agent_id": "nobody"}})["ok"]
    assert put()["ok"]
    first, second = Event.objects.order_by("event_id").values_list("event_id", flat=True)
    assert second == first + 1


# Check constraints


@pytest.mark.parametrize(
    ("model", "column"),
    [
        (Session, "status"),
        (Event, "visibility"),
        (Artifact, "artifact_type"),
        (Delivery, "status"),
        (Handoff, "status"),
        (Handoff, "visibility"),
    ],
)
def test_it_knows_the_vocabulary_of_each_status(rows: Any, model: type[models.Model], column: str) -> None:
    refused(set_column(rows[model], column, "nonsense"))
    refused(set_column(rows[model], column, ""))


@pytest.mark.parametrize("model", [model for model in MODELS if model not in (Event, AgentKey)])
def test_it_refuses_an_empty_id(rows: Any, model: type[models.Model]) -> None:
    assert model._meta.pk
    refused(set_column(rows[model], str(model._meta.pk.column), ""))


@pytest.mark.parametrize(
    ("model", "column", "value"),
    [
        (Workspace, "root_realpath", ""),
        (AgentKey, "key_hash", ""),
        (Session, "secret_hash", ""),
        (Session, "closed_at", "2026-01-01 00:00:00"),
        (Session, "status", "closed"),
        (Event, "type", ""),
        (Channel, "name", ""),
        (Artifact, "size_bytes", -1),
        (Artifact, "content", None),
        (Message, "from_agent_id", ""),
        (Message, "subject", ""),
        (Message, "body", ""),
        (Delivery, "attempts", -1),
        (Delivery, "status", "delivered"),
        (Delivery, "status", "read"),
        (Handoff, "status", "CLAIMED"),
        (Handoff, "from_agent_id", ""),
    ],
)
def test_it_refuses_a_row_that_contradicts_itself(
    rows: Any, model: type[models.Model], column: str, value: Any
) -> None:
    refused(set_column(rows[model], column, value))


@pytest.mark.parametrize(
    ("model", "column"),
    [
        (Agent, "capabilities"),
        (Agent, "metadata"),
        (Session, "metadata"),
        (Event, "payload"),
        (Artifact, "metadata"),
        (Message, "target"),
        (Message, "artifacts"),
        (Handoff, "target"),
    ],
)
def test_it_takes_json_alone_where_json_belongs(rows: Any, model: type[models.Model], column: str) -> None:
    # PostgreSQL refuses it as no value of the type, before it looks at the constraint.
    refused(set_column(rows[model], column, "{not json"), by=DatabaseError)


# Unique constraints and foreign keys


def test_it_has_each_name_once(rows: Any, workspace: str, ann: str) -> None:
    moment = now()
    refused(lambda: Channel.objects.create(channel_id="c2", workspace_id=workspace, name="general", created_at=moment))
    delivery = rows[Delivery]
    refused(
        lambda: Delivery.objects.create(
            delivery_id="d2", message_id=delivery.message_id, recipient_id=ann, created_at=moment
        )
    )
    refused(lambda: AgentKey.objects.create(agent_id=ann, key_hash="h2", created_at=moment))
    Agent.objects.create(agent_id="bob", created_at=moment, updated_at=moment)
    refused(lambda: AgentKey.objects.create(agent_id="bob", key_hash="h", created_at=moment))


@pytest.mark.parametrize(
    ("model", "column"),
    [
        (AgentKey, "agent_id"),
        (Session, "agent_id"),
        (Session, "workspace_id"),
        (Event, "workspace_id"),
        (Channel, "workspace_id"),
        (Artifact, "workspace_id"),
        (Message, "workspace_id"),
        (Message, "channel_id"),
        (Message, "parent_message_id"),
        (Delivery, "message_id"),
        (Delivery, "recipient_agent_id"),
        (Handoff, "workspace_id"),
    ],
)
def test_it_refuses_a_reference_to_nothing(committed: None, rows: Any, model: type[models.Model], column: str) -> None:
    number = column == "workspace_id" and model in (Event, Message)
    refused(set_column(rows[model], column, 1 if number else "nowhere"))


# How the store is opened, and what leaves it


@pytest.mark.sqlite
@pytest.mark.parametrize(("durability", "synchronous"), [("full", 2), ("normal", 1)])
def test_it_opens_every_connection_the_same_way(db: None, tmp_path: Path, durability: str, synchronous: int) -> None:
    assert settings.NEXUS.durability == "full", "where nothing is said"
    config = settings.NEXUS.replaced(db_path=tmp_path / "nexus.db", durability=durability)
    opened = ConnectionHandler({DEFAULT_DB_ALIAS: store().django_settings(config)})[DEFAULT_DB_ALIAS]
    with opened.cursor() as cursor:
        found = {
            name: cursor.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "foreign_keys", "busy_timeout", "synchronous")
        }
    opened.close()
    assert found == {"journal_mode": "wal", "foreign_keys": 1, "busy_timeout": 5000, "synchronous": synchronous}


def test_it_stores_times_in_utc_and_gives_them_as_iso_8601(rows: Any, call: Call, project: str, ann: str) -> None:
    answers = [call("agent_list"), call("workspace_list"), call("inbox_peek", agent_id=ann)]
    answers += [call("event_get", project_root=project, agent_id=ann, stream="workspace")]
    text = json.dumps(answers)
    stamps = re.findall(r'"\w+_at": ("[^"]*"|null)', text)
    assert len(stamps) > 10
    for stamp in stamps:
        assert stamp == "null" or re.fullmatch(r'"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"', stamp)
