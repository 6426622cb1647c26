"""Presence as people look at it follows any act; whom a broadcast reaches follows heartbeats alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from time_machine import Traveller

from coordination import presence
from coordination.models import Agent
from coordination.toolset import COORDINATION, run
from mcp_bridge.presence import PRESENCE, acted, connected
from nexus.core.clock import now
from nexus.core.operations.caller import Caller, Joined, remember
from tests.conftest import Call


def seen(workspace_id: str | None = None) -> tuple[str, bool]:
    """How ann is seen: her presence, and whether a broadcast reaches her."""
    state = next(each for each in presence.agent_states(now(), workspace_id=workspace_id) if each.agent_id == "ann")
    if workspace_id is None:
        assert presence.state_of(Agent.objects.get(pk="ann"), now()) == state
    return state.presence.value, state.reached_by_broadcasts


def tick() -> None:
    """What happens every ten seconds."""
    PRESENCE.act(PRESENCE.claim("connections"))


def test_it_takes_any_act_for_a_sign_of_life(
    session: dict[str, Any], clock: Traveller, call: Call, project: str, workspace: str
) -> None:
    clock.shift(4000)  # since the heartbeat
    assert seen() == ("offline", False)
    call("message_create", project_root=project, from_agent_id="ann", subject="s", body="b")
    clock.shift(4)
    assert seen() == seen(workspace) == ("present", False)
    clock.shift(100)
    assert seen() == ("stale", False)
    call("session_heartbeat", session_id=session["session_id"])
    assert seen() == ("present", True)


def test_it_lasts_as_long_as_a_connection_is_open(session: dict[str, Any], clock: Traveller, call: Call) -> None:
    connection = "stdio:1-test-of-presence"
    remember(connection, Joined("ann", "/", session["session_id"]))
    clock.shift(4000)
    with connected("stdio:2-another"):
        tick()
    assert seen() == ("offline", False)
    with connected(connection):
        with connected(connection):  # a call beside the stream
            pass
        tick()
        assert seen() == ("present", True)
        [state] = presence.agent_states(now())
        assert state.last_act is not None and now() - state.last_act > timedelta(
            hours=1
        )  # an open connection is no act
        call("session_close", session_id=session["session_id"])
        clock.shift(4000)
        tick()
        assert seen() == ("offline", False)
    assert PRESENCE.queues() == []


def test_it_lasts_as_long_as_a_connection_is_open_that_a_key_binds(clock: Traveller, ann: str, workspace: str) -> None:
    clock.shift(4000)
    with connected("stdio:3-test-of-presence", "ann"):
        assert seen() == ("offline", False)
        tick()
        assert seen() == ("present", False)
        assert seen(workspace) == ("offline", False)
    clock.shift(100)
    assert seen() == ("stale", False)
    assert Agent.objects.get(pk="ann").last_seen_at == now() - timedelta(seconds=4100), "it is no act"


def test_it_lasts_as_long_as_a_connection_is_open_on_which_it_acted(
    clock: Traveller, call: Call, workspace: str
) -> None:
    connection, hers = "stdio:4-test-of-presence", COORDINATION.operations
    with connected(connection):
        acted(connection, hers["agent_register"], {"agent_id": "ann"}, call("agent_register", agent_id="ann"))
        clock.shift(4000)
        tick()
        assert seen() == ("present", False)
        opened = call("session_open", agent_id="ann", workspace_id=workspace)
        acted(connection, hers["session_open"], {"agent_id": "ann", "workspace_id": workspace}, opened)
        clock.shift(4000)
        assert seen() == ("offline", False)
        tick()
        assert seen() == seen(workspace) == ("present", True)
        call("session_close", session_id=opened["session_id"])
        clock.shift(4000)
        tick()
        assert seen() == ("offline", False)
    acted(connection, hers["agent_register"], {"agent_id": "ann"}, {})
    assert PRESENCE.claim("connections") == (set(), set())


def test_it_needs_no_session_to_be_there_but_has_one_in_a_project(clock: Traveller, ann: str, workspace: str) -> None:
    assert seen() == ("present", False)
    assert seen(workspace) == ("offline", False)


def test_it_has_left_once_its_last_session_is_closed(session: dict[str, Any], clock: Traveller, call: Call) -> None:
    call("session_close", session_id=session["session_id"])
    assert seen() == ("offline", False)
    clock.shift(1)
    call("inbox_pull", agent_id="ann")  # and acts again
    assert seen() == ("present", False)


def test_it_does_not_take_what_an_operator_did_for_an_act_of_the_agent(db: None) -> None:
    run(Caller("test", operator="ops"), "agent_create", {"agent_id": "ann"})
    assert seen() == ("offline", False)


@pytest.mark.usefixtures("counted_alone")
def test_it_asks_the_store_no_more_often_for_more_agents(call: Call, ann: str, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(5):
        presence.agent_states(now())
    for number in range(5):
        call("agent_register", agent_id=f"agent-{number}")
    with django_assert_num_queries(5):
        presence.agent_states(now())
