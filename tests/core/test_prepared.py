"""Prepared statements find what the queryset that they were made of finds."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import Model, Value
from django.test.utils import CaptureQueriesContext

from coordination.models import Agent, Event
from inbox.models import Delivery, Message
from nexus.core.clock import now
from nexus.core.database.prepared import Select, Slot, Update, insert, unsaved
from nexus.core.database.store import store
from tests.conftest import Call

pytestmark = pytest.mark.django_db
ROLES = ["plain", "it's", "100%s", "%", "'; --", "OPEN'", "é", "a b", "?"]


@pytest.fixture
def agents(call: Call) -> None:
    for number, role in enumerate(ROLES):
        call("agent_register", agent_id=f"agent-{number}", role=role)


@pytest.mark.parametrize("role", ROLES)
def test_it_takes_whatever_stands_in_the_queryset(agents: None, role: str) -> None:
    found = Select(lambda: Agent.objects.filter(role=role, pk=Slot("agent")).values_list("pk", Value(role)))
    assert [found(agent=f"agent-{number}") for number in range(len(ROLES))] == [
        [(f"agent-{number}", role)] if role == each else [] for number, each in enumerate(ROLES)
    ]


def test_it_writes_a_word_into_the_statement_and_binds_the_rest(agents: None) -> None:
    statements: list[tuple[str, Any]] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        statements.append((sql, list(params)))
        return execute(sql, params, many, context)

    change = Update(lambda: Agent.objects.filter(role="plain", pk=Slot("agent")), role="it's")
    with connection.execute_wrapper(note):
        assert change(agent="agent-0") == 1
    [(sql, bound)] = statements
    assert "'plain'" in sql, "a partial index is found at once, and not with every call"
    assert bound == ["it's", "agent-0"]
    assert Agent.objects.get(pk="agent-0").role == "it's"


def test_it_makes_no_cursor_anew_while_the_connection_lasts(agents: None, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Select(lambda: Agent.objects.filter(pk=Slot("agent")).values_list("pk"))
    assert found(agent="agent-0")
    monkeypatch.setattr(connection, "create_cursor", None)
    assert found(agent="agent-1") == [("agent-1",)]
    monkeypatch.undo()
    with CaptureQueriesContext(connection) as queries:
        assert found(agent="agent-2") and found(agent="agent-3")
    assert len(queries) == 2, "a connection that is listened to tells of each"


@pytest.mark.usefixtures("committed")
def test_it_goes_on_with_another_connection_when_one_was_closed(agents: None) -> None:
    found = Select(lambda: Agent.objects.filter(pk=Slot("agent")).values_list("pk"))
    for number in range(2):
        assert found(agent=f"agent-{number}") == [(f"agent-{number}",)]
        connection.close()


def told(instance: Model) -> dict[str, Any]:
    """All that is in an instance, and what Django knows of its being stored."""
    return {**vars(instance), "_state": vars(instance._state)}


def test_it_makes_an_instance_as_its_class_does(call: Call) -> None:
    values = {"agent_id": "ana", "role": "planner", "created_at": (moment := now()), "updated_at": moment}
    assert told(unsaved(Agent, **values)) == told(Agent(**values))
    assert unsaved(Message).artifacts is not unsaved(Message).artifacts, "a default is made anew for each"
    with pytest.raises(TypeError, match="workspace"):
        unsaved(Event, workspace=None)
    insert(agent := unsaved(Agent, **values))
    agent.role = "builder"
    agent.save()
    found = Select(lambda: Agent.objects.filter(pk=Slot("agent")).defer("metadata")).first(agent="ana")
    stored = Agent.objects.defer("metadata").get(pk="ana")
    assert found is not None and told(found) == told(stored)
    assert found.get_deferred_fields() == {"metadata"} and found.metadata == stored.metadata


def test_it_reads_columns_and_relations_as_django_does(agents: None, call: Call, project: str) -> None:
    sent = {"project_root": project, "from_agent_id": "agent-0", "subject": "s", "body": "b"}
    for number in (1, 2):
        call("message_create", **sent, target={"strategy": "direct", "agent_id": f"agent-{number}"})
    agents_of = Agent.objects.order_by("pk")
    for made, django in (
        (lambda: agents_of.values_list("pk", "capabilities", "created_at")[:3], None),
        (lambda: agents_of.filter(role="it's")[:3], None),
        (lambda: Delivery.objects.select_related("message").order_by("pk"), "message"),
    ):
        found, expected = Select(made)(), list(made())
        assert [told(each) if isinstance(each, Model) else each for each in found] == [
            told(each) if isinstance(each, Model) else each for each in expected
        ]
        if django:
            assert [told(getattr(each, django)) for each in found] == [told(getattr(each, django)) for each in expected]


def test_a_batch_gives_each_row_its_key_and_says_what_failed(agents: None) -> None:
    def event(kind: str) -> Event:
        return unsaved(Event, stream="agent", type=kind, payload={}, visibility="public", created_at=now())

    made = [event("batch.first"), event("batch.second")]
    with transaction.atomic(), store().batch():
        insert(made[0])
        insert(unsaved(Agent, agent_id="batched", created_at=now(), updated_at=now()))
        insert(made[1])
    assert [Event.objects.get(pk=each.pk).type for each in made] == ["batch.first", "batch.second"]
    with pytest.raises(IntegrityError), transaction.atomic(), store().batch():
        insert(event("batch.lost"))
        insert(unsaved(Agent, agent_id="batched", created_at=now(), updated_at=now()))
        insert(event("batch.after"))
    assert not Event.objects.filter(type__in=("batch.lost", "batch.after")).exists()


def test_many_rows_are_one_statement(agents: None) -> None:
    with CaptureQueriesContext(connection) as seen:
        insert(*(unsaved(Agent, agent_id=f"many-{n}", created_at=now(), updated_at=now()) for n in range(50)))
        change = Update(lambda: Agent.objects.filter(pk=Slot("agent")), role="changed")
        assert change.each({"agent": f"many-{n}"} for n in range(60)) == 50
    assert len(seen) == 2
    assert Agent.objects.filter(role="changed").count() == 50
