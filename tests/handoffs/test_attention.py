"""What needs a person: the facts that the dashboard and `nexus status` share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
import time_machine

from coordination.presence import agent_states
from core.clock import now
from core.database import store
from handoffs.attention import Group, Kind, groups
from inbox.monitoring import inboxes
from tests.conftest import Call


def found() -> dict[Kind, Group]:
    moment = now()
    return {group.kind: group for group in groups(moment, agent_states(moment), inboxes(moment))}


@pytest.fixture
def send(call: Call, project: str) -> Callable[[str], None]:
    def sent(agent_id: str) -> None:
        target = {"strategy": "direct", "agent_id": agent_id}
        call("message_create", project_root=project, from_agent_id="ana", subject="s", body="b", target=target)

    return sent


def test_it_needs_nobody_where_all_is_well(call: Call) -> None:
    call("agent_register", agent_id="ana")
    assert found() == {}


def test_it_counts_the_dead_letters_of_an_agent(call: Call, send: Callable[[str], None]) -> None:
    call("agent_register", agent_id="bob")
    for _ in range(7):
        send("bob")
    start = datetime.now(UTC)
    for attempt in range(6):  # five hand-outs without an ack; the next claim parks them
        with time_machine.travel(start + timedelta(hours=attempt)):
            call("inbox_pull", agent_id="bob")
    letters = found()[Kind.DEAD_LETTERS]
    assert (letters.count, letters.by_agent, letters.bad, len(letters.needs)) == (7, {"bob": 7}, True, 3)


def test_it_counts_the_handoffs_that_nobody_may_take(call: Call, project: str) -> None:
    call("agent_register", agent_id="ana")
    offer = {"project_root": project, "from_agent_id": "ana", "target": {"strategy": "role", "role": "pilot"}}
    offered = [call("handoff_create", **offer, visibility="public")["handoff_id"] for _ in range(7)]
    orphans = found()[Kind.ORPHANS]
    assert (orphans.count, [need.subject for need in orphans.needs]) == (7, offered[:3])
    call("agent_register", agent_id="pia", role="pilot")
    assert Kind.ORPHANS not in found()


def test_it_names_the_lease_that_ends_soon(call: Call, project: str) -> None:
    for agent_id in ("ana", "bob"):
        call("agent_register", agent_id=agent_id)
    direct = {"strategy": "direct", "agent_id": "bob"}
    offer = {"project_root": project, "from_agent_id": "ana", "target": direct, "visibility": "public"}
    handoff_id = call("handoff_create", **offer)["handoff_id"]
    call("handoff_claim", project_root=project, handoff_id=handoff_id, agent_id="bob")
    assert Kind.LEASES not in found()
    with time_machine.travel(datetime.now(UTC) + timedelta(seconds=290)):
        assert [need.subject for need in found()[Kind.LEASES].needs] == [handoff_id]


def test_it_tells_whose_mail_nobody_fetches(call: Call, send: Callable[[str], None]) -> None:
    for agent_id in ("bob", "operator"):
        call("agent_register", agent_id=agent_id)
        send(agent_id)
    assert Kind.SILENT not in found()
    with time_machine.travel(datetime.now(UTC) + timedelta(hours=2)):
        silent, mine = found()[Kind.SILENT], found()[Kind.ANSWERS]
    assert ([need.subject for need in silent.needs], silent.count, mine.count) == (["bob"], 1, 1)


def test_it_puts_the_worst_first(call: Call, send: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    call("agent_register", agent_id="bob")
    send("bob")
    monkeypatch.setattr(store(), "disk_used", lambda: 0.99)
    with time_machine.travel(datetime.now(UTC) + timedelta(hours=2)):
        assert [(kind, group.bad) for kind, group in found().items()] == [(Kind.DISK, True), (Kind.SILENT, False)]
