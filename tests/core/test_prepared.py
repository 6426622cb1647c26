"""Prepared statements find what the queryset that they were made of finds."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.db.models import Value
from django.test.utils import CaptureQueriesContext

from coordination.models import Agent
from core.database.prepared import Select, Slot, Update
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
