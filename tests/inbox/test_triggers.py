"""The triggers that keep the log append-only and the search in step outlive every change of their tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import DatabaseError, connection, migrations, models, transaction
from django.db.migrations.state import ProjectState

from inbox.models import Message
from inbox.search import search
from nexus.core.apps import database_objects
from nexus.core.database.store import store
from tests.conftest import Call
from tests.store import drop_trigger, triggers

LATER = {  # steps of a version to come, each of which rebuilds its table
    "coordination": migrations.AddConstraint(
        "event", models.CheckConstraint(condition=~models.Q(type="never"), name="a_rule_for_events")
    ),
    "inbox": migrations.AddConstraint(
        "message", models.CheckConstraint(condition=~models.Q(subject="never"), name="a_rule_for_messages")
    ),
}
CHANGES = ("UPDATE events SET type = 'other'", "DELETE FROM events")


@pytest.fixture
def altered(committed: None) -> Iterator[None]:
    """The tables, after those steps."""
    now = ProjectState.from_apps(apps)
    later = now.clone()
    for label, step in LATER.items():
        step.state_forwards(label, later)
        with connection.schema_editor() as editor:
            step.database_forwards(label, editor, now, later)
    yield
    for label, step in LATER.items():
        with connection.schema_editor() as editor:
            step.database_backwards(label, editor, later, now)
    store().prepare()


@pytest.mark.sqlite  # PostgreSQL rebuilds no table
def test_it_keeps_history_and_search_after_a_table_was_rebuilt(altered: None, call: Call, project: str) -> None:
    assert not triggers("events", "messages")  # what a rebuild does, without a word
    call_command("migrate", verbosity=0)

    call("agent_register", agent_id="bob")
    where = {"project_root": project, "from_agent_id": "ann", "target": {"strategy": "direct", "agent_id": "bob"}}
    call("message_create", **where, subject="harvest", body="apples")
    call("artifact_put", project_root=project, artifact_type="text", content="c", name="cellar")
    assert {(hit.kind, hit.title) for word in ("apples", "cellar") for hit in search(word)} == {
        ("message", "harvest"),
        ("event", "artifact.created"),
    }
    for statement in CHANGES:
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
    Message.objects.all().delete()
    assert search("apples") == []


@pytest.mark.sqlite
def test_it_makes_the_triggers_when_a_process_died_before_it_had(altered: None) -> None:
    assert store().pending()
    store().prepare()
    assert triggers() == set(database_objects(connection.vendor))
    assert not store().pending()


def test_it_makes_a_trigger_that_is_gone(committed: None) -> None:
    drop_trigger("search_message_removed", "messages")
    assert store().pending()
    store().prepare()
    assert triggers() == set(database_objects(connection.vendor))
    assert not store().pending()


@pytest.mark.sqlite  # PostgreSQL replaces them with every migrate
def test_it_makes_a_trigger_anew_whose_text_is_of_another_version(committed: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER events_refuse_update")
        cursor.execute("CREATE TRIGGER events_refuse_update BEFORE UPDATE ON events BEGIN SELECT 1; END")
    assert store().pending()
    store().prepare()
    assert not store().pending()
