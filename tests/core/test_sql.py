"""Named SQL fits the tables of both databases, and gives what the ORM gives."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, transaction
from django.db.models import Model
from django.test.utils import CaptureQueriesContext
from django.utils.module_loading import module_has_submodule

from coordination.clock_repair import end_overlong
from coordination.log.selectors import newest_event_id
from coordination.models import Agent, Event, Session
from inbox.models import Delivery, Message
from nexus.core.clock import now
from nexus.core.database.sql import Read, Statement, Write, insert
from nexus.core.database.store import store
from tests.conftest import Call

pytestmark = pytest.mark.django_db
NAMES = ["plain", "it's", "100%s", "%", "'; --", "é", "a b", "?", ":agent"]


@pytest.fixture
def agents(call: Call) -> None:
    for number, role in enumerate(NAMES):
        call("agent_register", agent_id=f"agent-{number}", role=role)


def test_every_statement_fits_the_tables() -> None:
    for app in apps.get_app_configs():
        if app.module is not None and module_has_submodule(app.module, "sql"):
            import_module(f"{app.name}.sql")
    end_overlong()  # makes one of what the apps registered
    newest_event_id(workspace_id="a", stream="b", handoff_id="c", trace_id="d", actor_agent_id="e", type="f")
    assert len(Statement.made) > 50
    with connection.cursor() as cursor:
        for statement in Statement.made:
            cursor.execute(f"EXPLAIN {statement.sql}", [None] * len(statement.names))
            assert cursor.fetchall()


@pytest.mark.parametrize("name", NAMES)
def test_it_binds_whatever_a_value_is(agents: None, name: str) -> None:
    found: Read[str] = Read("SELECT {a.agent_id} FROM agents a WHERE role = %(name)s", a=Agent)
    change = Write("UPDATE agents SET role = %(name)s WHERE agent_id = %(agent_id)s")
    assert found(name=name) == [f"agent-{NAMES.index(name)}"]
    assert change(name=name, agent_id="agent-0") == 1
    assert change(name=name, agent_id="nobody") == 0
    assert Agent.objects.get(pk="agent-0").role == name


def told(instance: Model) -> dict[str, Any]:
    """All that is in an instance, and what Django knows of its being stored."""
    state = instance._state  # Django 6.1 also writes there, of the ORM's instances, what is the default
    return {**vars(instance), "_state": (state.adding, state.db, state.fields_cache)}


def test_it_reads_what_the_orm_reads(agents: None, call: Call, project: str) -> None:
    sent = {"project_root": project, "from_agent_id": "agent-0", "subject": "s", "body": "b"}
    for number in (1, 2):
        call("message_create", **sent, target={"strategy": "direct", "agent_id": f"agent-{number}"})
    rows: Read[Agent] = Read("SELECT {a} FROM agents a ORDER BY a.agent_id", a=Agent)
    assert [told(each) for each in rows()] == [told(each) for each in Agent.objects.order_by("pk")]
    both: Read[tuple[Delivery, Message]] = Read(
        """
        SELECT {d}, {m} FROM message_deliveries d JOIN messages m ON m.message_id = d.message_id
        ORDER BY d.delivery_id
        """,
        d=Delivery,
        m=Message,
    )
    stored = Delivery.objects.select_related("message").order_by("pk")
    assert [[told(each) for each in row] for row in both()] == [
        [told(Delivery.objects.get(pk=each.pk)), told(each.message)] for each in stored
    ]
    columns = ("agent_id", "capabilities", "created_at", "last_seen_at")
    named = ", ".join(f"{{a.{name}}}" for name in columns)
    values: Read[tuple[Any, ...]] = Read(f"SELECT {named} FROM agents a ORDER BY agent_id", a=Agent)
    assert values() == list(Agent.objects.order_by("pk").values_list(*columns))


def test_it_inserts_what_the_orm_inserts(agents: None, call: Call, project: str) -> None:
    place, moment = call("workspace_resolve", project_root=project)["workspace_id"], now()
    event = {"workspace_id": place, "stream": "agent", "type": "x", "payload": {"b": 1, "a": [None]}}
    session = {"workspace_id": place, "agent_id": "agent-0", "secret_hash": "h", "metadata": {"é": "'"}}
    insert(Event(**event, created_at=moment), Event(**event, created_at=moment))
    Event(**event, created_at=moment).save(force_insert=True)
    insert(Session(**session, session_id="a", started_at=moment, last_heartbeat_at=moment))
    Session(**session, session_id="b", started_at=moment, last_heartbeat_at=moment).save(force_insert=True)
    for model, key, ids in (
        (Event, "event_id", Event.objects.order_by("-pk")[:3]),
        (Session, "session_id", Session.objects.filter(pk__in=("a", "b"))),
    ):
        first, *others = [{**told(each), key: None} for each in ids]
        assert others and all(other == first for other in others), model
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT payload, target, created_at, workspace_id FROM events WHERE type = 'x'")
        assert len(cursor.fetchall()) == 1, "as the database holds it, too"


def test_a_batch_gives_each_row_its_key_and_says_what_failed(agents: None) -> None:
    def event(kind: str) -> Event:
        return Event(stream="agent", type=kind, payload={}, visibility="public", created_at=now())

    made = [event("batch.first"), event("batch.second")]
    with transaction.atomic(), store().batch():
        insert(made[0])
        insert(Agent(agent_id="batched", created_at=now(), updated_at=now()))
        insert(made[1])
    assert [Event.objects.get(pk=each.pk).type for each in made] == ["batch.first", "batch.second"]
    with pytest.raises(IntegrityError), transaction.atomic(), store().batch():
        insert(event("batch.lost"))
        insert(Agent(agent_id="batched", created_at=now(), updated_at=now()))
        insert(event("batch.after"))
    assert not Event.objects.filter(type__in=("batch.lost", "batch.after")).exists()


def test_many_rows_are_one_statement(agents: None) -> None:
    with CaptureQueriesContext(connection) as seen:
        insert(*(Agent(agent_id=f"many-{n}", created_at=now(), updated_at=now()) for n in range(50)))
        change = Write("UPDATE agents SET role = 'changed' WHERE agent_id = %(agent_id)s")
        assert change.each({"agent_id": f"many-{n}"} for n in range(60)) == 50
    assert len(seen) == 2
    assert Agent.objects.filter(role="changed").count() == 50
