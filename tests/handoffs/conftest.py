"""A handoff and the clock that its lease runs by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine

from coordination.models import Event
from tests.conftest import Call

Offer = Callable[..., str]
Clock = time_machine.Traveller
TO_BOB = {"strategy": "direct", "agent_id": "bob"}
PYTHON = {"strategy": "capability", "capability": "python"}


@pytest.fixture
def offer(call: Call, team: None, project: str) -> Offer:
    """Create a handoff from ana, public and for whoever knows python unless told otherwise; its id."""

    def offer(**changes: Any) -> str:
        arguments = {"project_root": project, "from_agent_id": "ana", "target": PYTHON, "visibility": "public"}
        handoff_id: str = call("handoff_create", **arguments | changes)["handoff_id"]
        return handoff_id

    return offer


@pytest.fixture
def on(call: Call, project: str) -> Call:
    """Act on a handoff: `on("handoff_claim", handoff, "bob")`."""

    def on(verb: str, handoff: str, agent: str, **more: Any) -> dict[str, Any]:
        return call(verb, project_root=project, handoff_id=handoff, agent_id=agent, **more)

    return on


@pytest.fixture
def clock() -> Iterator[Clock]:
    """Noon, standing still until the test moves it."""
    with time_machine.travel(datetime(2026, 3, 1, 12, tzinfo=UTC), tick=False) as clock:
        yield clock


@pytest.fixture
def every_act_renews(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an agent does renews its leases each time; a process otherwise does so once in a few seconds."""
    monkeypatch.setattr("coordination.services.agents.RENEW_EVERY", timedelta(0))


def events_of(handoff_id: str) -> list[str]:
    """The types of a handoff's events, in order."""
    return list(Event.objects.filter(handoff_id=handoff_id).order_by("event_id").values_list("type", flat=True))


def mail_of(call: Call, agent: str) -> list[dict[str, Any]]:
    """The messages waiting for an agent."""
    messages: list[dict[str, Any]] = call("inbox_peek", agent_id=agent)["messages"]
    return messages
