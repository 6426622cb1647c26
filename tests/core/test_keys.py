"""Events and messages hold the number of a workspace; everybody reads and writes its id."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from django.db import IntegrityError, connection, transaction

from coordination.models import Event, Workspace
from nexus.core.clock import now
from nexus.core.database import keys
from nexus.core.database.sql import Read
from tests.conftest import Call

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def here(call: Call, tmp_path: Path) -> str:
    """The id of a workspace, which this process has not read yet."""
    workspace_id = call("workspace_resolve", project_root=str(tmp_path))["workspace_id"]
    Event.objects.create(workspace_id=workspace_id, stream="workspace", type="a.note", created_at=now())
    keys._texts.clear()
    return str(workspace_id)


def stored() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT workspace_id FROM events WHERE type = 'a.note'")
        return int(cursor.fetchone()[0])


def test_the_row_holds_a_number_and_python_the_text(here: str) -> None:
    notes = Event.objects.filter(type="a.note")

    assert stored() == keys.number_of(here) < 2**47
    assert notes.get().workspace_id == here
    assert [*notes.values_list("workspace_id", flat=True)] == [here]
    workspace = Workspace.objects.get(pk=here)
    assert notes.select_related("workspace").get().workspace == notes.get().workspace == workspace


def test_it_is_asked_for_by_the_text(here: str) -> None:
    workspace = Workspace.objects.get(pk=here)
    made: Read[Event] = Read("SELECT {e} FROM events e WHERE workspace_id = %(place)s AND type = 'a.note'", e=Event)

    for found in (
        Event.objects.filter(workspace_id=here, type="a.note"),
        Event.objects.filter(workspace__in=Workspace.objects.all(), type="a.note"),
        Event.objects.filter(workspace__root_realpath=workspace.root_realpath, type="a.note"),
        workspace.events.filter(type="a.note"),
        made(place=keys.number_of(here)),
    ):
        assert [event.workspace_id for event in found] == [here]
    assert not Event.objects.filter(workspace_id="f" * 64).exists()


@pytest.mark.sqlite  # where an event loop reads by itself
def test_an_event_loop_learns_what_a_number_stands_for(here: str) -> None:
    of_notes: Read[str] = Read("SELECT {e.workspace} FROM events e WHERE type = 'a.note'", e=Event)

    async def read() -> object:
        return of_notes.first()

    assert asyncio.run(read()) == here


def test_an_event_of_no_workspace_and_one_whose_workspace_is_gone_are_read(here: str) -> None:
    Event.objects.create(workspace=None, stream="agent", type="an.act", created_at=now())
    assert Event.objects.get(type="an.act").workspace_id is None

    assert Event.workspace.field.target_field.from_db_value(5, None, connection) == "5"  # type: ignore[attr-defined]


def test_a_second_text_of_the_same_number_is_refused(here: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "number_of", lambda text: stored())

    with pytest.raises(IntegrityError), transaction.atomic():
        Workspace.objects.create(workspace_id="e" * 64, root_realpath="/e", created_at=now(), last_seen_at=now())
