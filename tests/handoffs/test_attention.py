"""What needs a person: the facts that the dashboard and `nexus status` share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from inbox.monitoring import Picture
from nexus.core.apps import needs
from nexus.core.clock import now
from nexus.core.contributions import Items
from nexus.core.database.store import store
from tests.conftest import Call, does
from tests.handoffs.conftest import TO_BOB, Clock, Offer

RUST = {"strategy": "capability", "capability": "rust"}
Send = Callable[[str], None]


def found(each: int = 3) -> dict[str, Items]:
    return {kind.name: these for kind, these in needs(Picture(now()), each)}


@pytest.fixture
def send(call: Call, project: str) -> Send:
    def sent(agent_id: str) -> None:
        target = {"strategy": "direct", "agent_id": agent_id}
        call("message_create", project_root=project, from_agent_id="ana", subject="Where?", body="b", target=target)

    return sent


@pytest.fixture
def claimed(clock: Clock, call: Call, offer: Offer, project: str) -> str:
    """What bob holds."""
    handoff_id = offer(payload="Fix the login")
    call("handoff_claim", project_root=project, handoff_id=handoff_id, agent_id="bob")
    return handoff_id


def only(kind: str) -> Any:
    """The one need of a kind."""
    [need] = found()[kind].needs
    return need


def test_it_needs_nobody_where_all_is_well(team: None) -> None:
    assert found() == {}


def test_it_counts_the_dead_letters(clock: Clock, call: Call, team: None, send: Send) -> None:
    for _ in range(7):
        send("bob")
    for _ in range(6):  # five hand-outs without an ack; the next claim parks them
        clock.shift(timedelta(hours=1))
        call("inbox_pull", agent_id="bob")
    letters = found()["dead-letters"]
    assert (letters.count, len(letters.needs)) == (7, 3)
    assert letters.needs[0].title == "Dead letter of bob: Where?"


def test_it_counts_the_handoffs_that_nobody_may_take_and_says_why(call: Call, offer: Offer) -> None:
    offered = [offer(target={"strategy": "role", "role": "pilot"}) for _ in range(7)]
    orphans = found()["orphans"]
    assert (orphans.count, [need.subject for need in orphans.needs]) == (7, offered[:3])
    assert orphans.needs[0].detail == "nobody has the role pilot"
    call("agent_register", agent_id="pia", role="pilot")
    assert "orphans" not in found()


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (RUST, "nobody has the capability rust"),
        ({"strategy": "capability", "capability": ["rust", "go"]}, "nobody has the capability rust or go"),
        (
            {"strategy": "mixed", "rules": [RUST, {"strategy": "role", "role": "pilot"}]},
            "nobody is among capability rust or role pilot",
        ),
        (
            {"strategy": "direct_with_fallback", "agent_id": "zoe", "fallback_after_seconds": 60, "fallback": RUST},
            "there is no agent zoe, and nobody whom its fallback admits now",
        ),
    ],
)
def test_it_says_in_words_why_nobody_may_take_a_handoff(offer: Offer, target: dict[str, Any], why: str) -> None:
    offer(target=target)
    assert only("orphans").detail == why


def test_it_tells_of_work_that_lies_although_its_agent_is_there(clock: Clock, call: Call, offer: Offer) -> None:
    handoff_id = offer(target=TO_BOB)
    clock.shift(599)
    call("inbox_peek", agent_id="bob")
    assert "untaken" not in found()
    clock.shift(1)
    call("agent_register", agent_id="bob")
    assert (only("untaken").subject, only("untaken").detail) == (handoff_id, "bob has not taken it")


def test_it_tells_that_all_who_may_take_a_handoff_are_offline(clock: Clock, call: Call, offer: Offer) -> None:
    offer()
    clock.shift(timedelta(hours=2))
    assert only("untaken").detail == "bob, cleo are offline"
    call("agent_register", agent_id="cleo")
    assert "untaken" not in found()


def test_it_names_the_lease_that_ran_out_whether_or_not_that_was_recorded(
    call: Call, project: str, claimed: str, clock: Clock
) -> None:
    clock.shift(301)
    assert (only("lapsed").subject, only("lapsed").detail) == (claimed, "the lease of bob ran out")
    call("handoff_list_available", project_root=project, agent_id="cleo")  # which records it
    assert (only("lapsed").subject, only("lapsed").detail) == (claimed, "the lease of bob ran out")
    late = does("handoff_complete", project_root=project, handoff_id=claimed, agent_id="bob", result="half of it")
    assert late["error"]["details"]["kept"] and only("lapsed").subject == claimed
    call("handoff_claim", project_root=project, handoff_id=claimed, agent_id="cleo")
    assert "lapsed" not in found()


def test_it_names_the_result_that_its_verifier_leaves_for_long(
    clock: Clock, call: Call, offer: Offer, project: str
) -> None:
    handoff_id = offer(verifier={"agent_id": "cleo"})
    of = {"project_root": project, "handoff_id": handoff_id, "agent_id": "bob"}
    call("handoff_claim", **of)
    call("handoff_complete", **of, result="done")
    assert "submitted" not in found()
    clock.shift(3600)
    assert (only("submitted").subject, only("submitted").detail) == (
        handoff_id, "bob says that it is done, and cleo has not looked at it",
    )  # fmt: skip


def test_it_tells_whose_mail_nobody_fetches(clock: Clock, call: Call, team: None, send: Send) -> None:
    call("agent_register", agent_id="operator")
    for agent_id in ("bob", "operator"):
        send(agent_id)
    assert "silent" not in found()
    clock.shift(timedelta(hours=2))
    assert only("silent").subject == "bob"
    assert only("answers").title == "ana wrote to you: Where?"


def test_it_puts_the_worst_first(clock: Clock, send: Send, team: None, monkeypatch: pytest.MonkeyPatch) -> None:
    send("bob")
    monkeypatch.setattr(store(), "disk_used", lambda: 0.99)
    clock.shift(timedelta(hours=2))
    assert [kind.name for kind, _ in needs(Picture(now()), 3)] == ["disk", "silent"]


@pytest.mark.usefixtures("counted_alone")
@pytest.mark.sqlite  # whose plans say so; the indexes are the same
def test_it_does_not_read_all_handoffs_that_there_ever_were(claimed: str, offer: Offer) -> None:
    offer()
    with CaptureQueriesContext(connection) as asked:
        found()
    read_whole = []
    for query in asked.captured_queries:
        if '"handoffs"' in query["sql"]:
            with connection.cursor() as cursor:
                plan = [row[3] for row in cursor.execute(f"EXPLAIN QUERY PLAN {query['sql']}").fetchall()]
            # The index by lease has those only that somebody holds.
            read_whole += [step for step in plan if step.startswith("SCAN handoffs") and "_by_lease" not in step]
    assert not read_whole
