"""A step, its event and its notice are one: what fails halfway leaves nothing."""

from __future__ import annotations

from typing import Any

import pytest

from coordination.models import Event
from handoffs.models import Handoff
from inbox.models import Delivery, Message
from tests.conftest import Call
from tests.handoffs.conftest import TO_BOB, Offer
from tests.store import broken

pytestmark = pytest.mark.usefixtures("committed")


def everything() -> list[Any]:
    return [list(model.objects.order_by("pk").values()) for model in (Handoff, Message, Delivery, Event)]


@pytest.mark.parametrize("table", ["handoffs", "events", "messages", "message_deliveries"])
def test_it_keeps_nothing_of_a_handoff_that_could_not_be_created(
    refused: Call, team: None, project: str, table: str
) -> None:
    before = everything()
    with broken(table):
        error = refused("handoff_create", project_root=project, from_agent_id="ana", target=TO_BOB, visibility="public")

    assert error["code"] == "DB_ERROR"
    assert everything() == before


@pytest.mark.parametrize(
    ("verb", "agent", "table"),
    [
        ("handoff_claim", "cleo", "events"),
        ("handoff_complete", "bob", "events"),
        ("handoff_complete", "bob", "message_deliveries"),
        ("handoff_reject", "bob", "events"),
        ("handoff_reject", "bob", "message_deliveries"),
        ("handoff_cancel", "ana", "events"),
    ],
)
def test_it_keeps_nothing_of_a_step_that_fails_halfway(
    refused: Call, call: Call, offer: Offer, project: str, verb: str, agent: str, table: str
) -> None:
    handoff = offer()
    if agent == "bob":
        call("handoff_claim", project_root=project, handoff_id=handoff, agent_id="bob")
    before = everything()
    with broken(table):
        error = refused(verb, project_root=project, handoff_id=handoff, agent_id=agent)

    assert error["code"] == "DB_ERROR"
    assert everything() == before
