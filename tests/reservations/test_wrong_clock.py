"""A clock that was a day ahead, and was set right: nothing that was leased meanwhile stays away for a day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import time_machine
from pytest_django import DjangoAssertNumQueries

from coordination.clock_repair import end_overlong
from coordination.models import Agent
from coordination.presence import Presence, state_of
from nexus.core.clock import now
from tests.conftest import Call
from tests.reservations.conftest import Project

RIGHT = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def test_what_was_leased_while_the_clock_was_ahead_is_free_again(shop: Project, call: Call) -> None:
    project = {"project_root": str(shop.root)}
    to_bob = {"strategy": "direct", "agent_id": "bob"}
    with time_machine.travel(RIGHT, tick=False) as clock:
        for agent_id in ("ana", "bob", "cleo"):
            call("agent_register", agent_id=agent_id)
        workspace = call("workspace_resolve", **project)["workspace_id"]
        offer = {"from_agent_id": "ana", "target": {"strategy": "broadcast"}, "visibility": "public"}
        handoff = {**project, "handoff_id": call("handoff_create", **project, **offer)["handoff_id"]}
        sent = call("message_create", **project, from_agent_id="ana", subject="s", body="b", target=to_bob)

        clock.shift(DAY)
        call("session_open", agent_id="bob", workspace_id=workspace)
        call("inbox_pull", agent_id="bob")
        call("handoff_claim", **handoff, agent_id="bob")
        shop.reserve("bob", "src/**")

        clock.shift(-DAY)
        assert call("inbox_count", agent_id="bob") == {"unread": 1, "in_flight": 0, "read": 0}
        assert call("inbox_pull", agent_id="bob")["messages"][0]["message_id"] == sent["message_id"]
        assert call("handoff_claim", **handoff, agent_id="cleo")["claimed_by"] == "cleo"
        assert shop.reserve("cleo", "src/**")

        clock.shift(timedelta(minutes=31))  # the session ages as one that was heard of when the clock was set right
        everybody = call("message_create", **project, from_agent_id="ana", subject="s", body="b")
        assert (everybody["recipients"], everybody["excluded_stale"]) == ([], ["bob"])


def test_a_lease_that_is_as_long_as_can_be_goes_on(shop: Project, call: Call) -> None:
    """Nor do machines whose clocks differ a little end each other's."""
    with time_machine.travel(RIGHT, tick=False) as clock:
        call("agent_register", agent_id="bob")
        clock.shift(timedelta(seconds=30))
        shop.reserve("bob", "src/**", seconds=86_400)
        clock.shift(timedelta(seconds=-30))
        assert shop.held() == [("bob", "src/**")]


def test_to_look_for_what_a_wrong_clock_left_takes_one_statement(
    db: None, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(1):
        end_overlong()


def test_who_was_seen_while_the_clock_was_ahead_is_not_present_for_a_day(db: None, call: Call) -> None:
    with time_machine.travel(RIGHT, tick=False) as clock:
        clock.shift(DAY)
        call("agent_register", agent_id="bob")
        clock.shift(-DAY)
        call("agent_get", agent_id="bob")
        clock.shift(timedelta(hours=2))
        assert state_of(Agent.objects.get(pk="bob"), now()).presence is Presence.OFFLINE
