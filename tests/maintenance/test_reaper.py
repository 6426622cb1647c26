"""The optional reaper does in the background what otherwise happens in passing."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.db import DatabaseError

from coordination.models import Event, Session
from handoffs.models import Handoff
from nexus.core.background_work import work_forever
from nexus.core.waiting import READERS, in_thread
from nexus.maintenance.reaper import REAPER
from tests.acceptance.hub import START_SECONDS
from tests.conftest import Call

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


@pytest.fixture
def neglected(committed: None, call: Call, project: str) -> None:
    """A session that fell silent 40 days ago, and a claimed handoff whose lease has lapsed since."""
    with time_machine.travel(NOW - timedelta(days=40), tick=False):
        call("agent_register", agent_id="bob")
        workspace_id = call("workspace_resolve", project_root=project)["workspace_id"]
        call("session_open", agent_id="bob", workspace_id=workspace_id)
        handoff_id = call(
            "handoff_create",
            project_root=project,
            from_agent_id="ana",
            target={"strategy": "broadcast"},
            visibility="public",
        )["handoff_id"]
        call("handoff_claim", project_root=project, handoff_id=handoff_id, agent_id="bob")


def a_round() -> None:
    with time_machine.travel(NOW, tick=False):
        for queue in REAPER.queues():
            REAPER.act(REAPER.claim(queue))


def test_it_reopens_what_nobody_works_on_and_closes_dead_sessions(neglected: None) -> None:
    a_round()
    assert Handoff.objects.get().status == "OPEN"
    assert Session.objects.get().status == "closed"
    assert set(Event.objects.values_list("type", flat=True)) == {"handoff.expired", "session.closed"}


def test_it_prunes_one_batch_a_round(neglected: None) -> None:
    workspace_id = Session.objects.get().workspace_id
    old = NOW - timedelta(days=35)
    Event.objects.bulk_create(
        Event(workspace_id=workspace_id, stream="workspace", type="test.made", created_at=old) for _ in range(700)
    )
    everything = Event.objects.filter(created_at__lte=old).count()
    a_round()
    assert Event.objects.filter(created_at__lte=old).count() == everything - 500
    a_round()
    assert not Event.objects.filter(created_at__lte=old).exists()


def test_it_goes_on_where_one_step_fails(
    neglected: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise DatabaseError("database is locked")

    async def reap() -> None:
        reaping = asyncio.create_task(work_forever(REAPER))
        async with asyncio.timeout(START_SECONDS):
            while await in_thread(READERS, Event.objects.filter(type="session.opened").exists):
                await asyncio.sleep(0.01)
        reaping.cancel()

    monkeypatch.setattr("coordination.services.sessions.reap_everywhere", fail)
    asyncio.run(reap())  # the step after it was taken
    assert "sessions was not finished (database is locked)" in caplog.text
