"""Handoffs are found by the words of their titles, payloads and results."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordination.services import keys
from handoffs.models import Handoff
from handoffs.selectors import containing
from tests.conftest import Call, examples
from tests.handoffs.conftest import Offer


def found(text: str, limit: int = 50) -> list[str]:
    documents = containing(text, limit)
    ids = dict(Handoff.objects.values_list("created_event_id", "handoff_id"))
    return [ids[document] for document in documents]


def test_it_finds_what_a_handoff_is_called_and_holds(offer: Offer) -> None:
    login = offer(title="Fix the login", payload="Guests see a blank page")
    scan = offer(title="Read the scans", payload={"task": "Überweisung", "pages": [1, 2]})

    assert found("login") == found("LOGIN guests") == found("bla") == [login]
    assert found("uberweisung") == [scan]
    assert found("the") == [scan, login], "newest first"
    assert found("the", limit=1) == [scan]
    assert found("login scans") == found("") == found('"-*') == []


def test_it_finds_what_came_of_it(call: Call, offer: Offer, project: str) -> None:
    handoff = offer(title="Sum them up")
    at = {"project_root": project, "handoff_id": handoff, "agent_id": "bob"}
    assert found("fortytwo") == []
    call("handoff_claim", **at)
    call("handoff_complete", **at, result="It is fortytwo.")

    assert found("fortytwo") == found("sum fortytwo") == [handoff]


def test_it_forgets_what_is_gone(offer: Offer) -> None:
    offer(title="Fix the login")
    Handoff.objects.all().delete()

    assert containing("login", 50) == []


@given(st.text(max_size=30))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(50))
def test_any_text_may_be_looked_for(db: None, text: str) -> None:
    assert containing(text, 5) == []


@pytest.mark.usefixtures("team")
def test_rest_finds_for_an_agent_what_it_may_see(call: Call, offer: Offer, workspace: str) -> None:
    seen = offer(title="Fix the login")
    offer(title="Quietly fix the login", visibility="private", target={"strategy": "direct", "agent_id": "bob"})
    host = {"host": "127.0.0.1:7777"}

    def listed(client: Client) -> list[Any]:
        answer = client.get("/api/v1/handoffs", {"workspace": workspace, "q": "login"})
        assert answer.status_code == 200, answer.content
        return [row["handoff_id"] for row in answer.json()["data"]["results"]]

    assert len(listed(Client(headers=host))) == 2
    key = keys.issue(agent_id="cleo", operator="olga")
    assert listed(Client(headers={**host, "x-api-key": key})) == [seen]
