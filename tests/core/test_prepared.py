"""Prepared statements find what the queryset that they were made of finds."""

from __future__ import annotations

import tomllib
from typing import Any

import django
import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import F, Model, Value
from django.db.models.query import ModelIterable, ValuesListIterable, get_related_populators
from django.db.models.sql import InsertQuery, UpdateQuery
from django.test.utils import CaptureQueriesContext

from coordination.models import Agent, Event
from inbox.models import Delivery, Message
from nexus.core.clock import now
from nexus.core.database.prepared import Select, Slot, Update, insert, unsaved
from nexus.core.database.store import store
from tests.acceptance.hub import ROOT
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


# What the module takes from Django without it being a public API. A change of Django that moves any of it fails here,
# by name, and not as a wrong row somewhere else.


def test_django_is_of_the_series_that_was_read() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "django>=5.2,<5.3" in project["dependencies"]
    assert django.VERSION[:2] == (5, 2)


def names(parameter: Any) -> str:
    """What a statement's parameter is: a slot by its name, or the value itself."""
    return f"slot {parameter.name}" if isinstance(parameter, Slot) else parameter


def test_a_compiler_hands_the_parameters_of_an_expression_on_as_they_are() -> None:
    query = Agent.objects.filter(pk=Slot("agent"), role="it's").values_list("pk")[:3].query
    sql, parameters = query.get_compiler(connection=connection).as_sql()
    assert sql.count("%s") == len(parameters) == 2
    assert [names(parameter) for parameter in parameters] == ["slot agent", "it's"]
    assert sql.rstrip().endswith("LIMIT 3")


def test_a_compiler_that_wrote_a_select_knows_its_columns_and_how_they_are_read(agents: None) -> None:
    compiler = Agent.objects.values_list("pk", "capabilities", "created_at").query.get_compiler(connection=connection)
    sql, parameters = compiler.as_sql()
    columns = [column for column, _, _ in compiler.select]
    assert [column.target.attname for column in columns] == ["agent_id", "capabilities", "created_at"]
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        rows = cursor.fetchall()
    converters = compiler.get_converters(columns)
    assert [tuple(row) for row in compiler.apply_converters(rows, converters)] == [
        *Agent.objects.values_list("pk", "capabilities", "created_at")
    ]


def test_a_compiler_tells_which_columns_make_an_instance_and_which_its_relations(agents: None) -> None:
    queryset = Delivery.objects.select_related("message")
    assert queryset._iterable_class is ModelIterable
    assert not issubclass(queryset.values_list("pk")._iterable_class, ModelIterable)
    assert queryset.values_list("pk")._iterable_class is ValuesListIterable
    compiler = queryset.query.get_compiler(connection=connection)
    compiler.as_sql()
    made = compiler.klass_info
    columns = made["select_fields"]
    assert made["model"] is Delivery
    assert columns == [*range(columns[0], columns[-1] + 1)], "they stand side by side"
    assert [compiler.select[column][0].target for column in columns] == [*Delivery._meta.concrete_fields]
    populators: Any = get_related_populators
    [message] = populators(made, compiler.select, connection.alias)
    assert callable(message.populate)


def test_a_query_becomes_an_update_and_an_insert_whose_parameters_are_in_the_order_of_its_columns() -> None:
    update: Any = Agent.objects.filter(pk=Slot("agent")).query.chain(UpdateQuery)
    update.add_update_values({"role": Slot("role"), "agent_id": F("agent_id")})
    sql, parameters = update.get_compiler(connection=connection).as_sql()
    assert sql.startswith("UPDATE ") and [names(each) for each in parameters] == ["slot role", "slot agent"]

    for model, automatic in ((Agent, None), (Event, Event._meta.auto_field)):
        fields = [field for field in model._meta.local_concrete_fields if field is not automatic]
        pattern: Model = model()
        for field in fields:
            setattr(pattern, field.attname, Slot(field.attname))
        insertion = InsertQuery(model)
        insertion.insert_values(fields, [pattern])
        compiler = insertion.get_compiler(connection=connection)
        compiler.returning_fields = [automatic] if automatic is not None else None
        [(sql, parameters)] = compiler.as_sql()
        assert sql.startswith("INSERT ") and [slot.name for slot in parameters] == [field.attname for field in fields]
        assert ("RETURNING" in sql) is (automatic is not None)


def test_a_wrapper_has_the_drivers_connection_and_says_when_it_is_listened_to() -> None:
    connection.ensure_connection()
    assert connection.connection is not None and connection.force_debug_cursor is False
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s", ["100%"])
        assert cursor.description and [tuple(row) for row in cursor.fetchall()] == [("100%",)]


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
