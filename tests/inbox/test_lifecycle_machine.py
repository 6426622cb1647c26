"""Deliveries against a naive model of the contract, through random histories of sends, pulls, acks and passing time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import hypothesis.strategies as st
import pytest
import time_machine
from django.db import transaction
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from coordination.toolset import run
from tests.conftest import LOCAL, examples

AGENTS = ("bob", "cleo")
agents = st.sampled_from(AGENTS)
picks = st.sets(st.integers(0, 7), min_size=1, max_size=3)  # which messages, counted from the oldest
seconds = st.sampled_from([None, 1, 10, 60, 7200])


@dataclass
class Copy:
    """One agent's copy of a message, as the contract describes it."""

    message: str
    status: str = "unread"
    attempts: int = 0
    lease_ends: datetime | None = None
    read_at: datetime | None = None

    def shown(self, now: datetime) -> str:
        if self.status == "delivered" and self.lease_ends is not None and self.lease_ends < now:
            return "unread"
        return self.status


class Inboxes(RuleBasedStateMachine):
    """Two inboxes and one clock."""

    def __init__(self) -> None:
        super().__init__()
        self.atomic = transaction.atomic()
        self.atomic.__enter__()
        self.travel = time_machine.travel(datetime(2026, 3, 1, 12, tzinfo=UTC), tick=False)
        self.clock = self.travel.start()
        self.sent: list[str] = []
        self.boxes: dict[str, list[Copy]] = {agent: [] for agent in AGENTS}

    def teardown(self) -> None:
        self.travel.stop()
        transaction.set_rollback(True)
        self.atomic.__exit__(None, None, None)

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        envelope = run(LOCAL, name, arguments)
        assert envelope["ok"], envelope
        data: dict[str, Any] = envelope["data"]
        return data

    @property
    def now(self) -> datetime:
        return datetime.now(UTC)

    def chosen(self, numbers: set[int]) -> list[str]:
        return list({self.sent[number % len(self.sent)]: None for number in numbers})

    @initialize()
    def register(self) -> None:
        for agent in AGENTS:
            self.call("agent_register", agent_id=agent, capabilities=["mail"])
        for _ in range(3):
            self.send(everyone=True)

    @rule(everyone=st.booleans())
    def send(self, everyone: bool) -> None:
        target = (
            {"strategy": "capability", "capability": "mail"} if everyone else {"strategy": "direct", "agent_id": "bob"}
        )
        sent = self.call(
            "message_create",
            project_root=tempfile.gettempdir(),
            from_agent_id="ana",
            subject="s",
            body="b",
            target=target,
        )
        self.sent.append(sent["message_id"])
        for agent in AGENTS if everyone else ("bob",):
            self.boxes[agent].append(Copy(sent["message_id"]))

    @rule(agent=agents, limit=st.integers(1, 4), lease=seconds)
    def pull(self, agent: str, limit: int, lease: int | None) -> None:
        expected = []
        for copy in [copy for copy in self.boxes[agent] if copy.shown(self.now) == "unread"][:limit]:
            if copy.attempts == 5:
                copy.status, copy.lease_ends = "parked", None
            else:
                copy.status, copy.attempts = "delivered", copy.attempts + 1
                copy.lease_ends = self.now + timedelta(seconds=300 if lease is None else min(max(lease, 10), 3600))
                expected.append(copy.message)

        pulled = self.call("inbox_pull", agent_id=agent, limit=limit, lease_seconds=lease)

        assert [message["message_id"] for message in pulled["messages"]] == expected

    @rule(agent=agents, times=st.integers(2, 5))
    def pull_in_vain(self, agent: str, times: int) -> None:
        for _ in range(times):
            self.pull(agent, 2, 10)
            self.clock.shift(timedelta(seconds=10, microseconds=1))

    @rule(agent=agents, numbers=picks)
    def ack(self, agent: str, numbers: set[int]) -> None:
        ids = self.chosen(numbers)
        moving = [copy for copy in self.boxes[agent] if copy.message in ids and copy.status != "read"]
        for copy in moving:
            copy.status, copy.lease_ends, copy.read_at = "read", None, self.now

        assert self.call("inbox_ack", agent_id=agent, message_ids=ids)["acknowledged"] == len(moving)

    @rule(agent=agents, numbers=picks, extra=st.sampled_from([1, 60, 7200]))
    def extend(self, agent: str, numbers: set[int], extra: int) -> None:
        ids = self.chosen(numbers)
        held = [c for c in self.boxes[agent] if c.message in ids and c.shown(self.now) == "delivered"]
        allowed = len(held) == len(ids)
        if allowed:
            for copy in held:
                copy.lease_ends = self.now + timedelta(seconds=min(max(extra, 10), 3600))

        envelope = run(LOCAL, "inbox_extend", {"agent_id": agent, "message_ids": ids, "extend_seconds": extra})

        assert envelope["ok"] == allowed
        if allowed:
            until = self.now + timedelta(seconds=min(max(extra, 10), 3600))
            assert envelope["data"] == {"extended": len(ids), "lease_expires_at": f"{until:%Y-%m-%dT%H:%M:%S.%fZ}"}
        else:
            refused = set(envelope["error"]["details"]["messages"])
            assert refused == set(ids) - {copy.message for copy in held}

    @rule(seconds=st.integers(1, 400))
    def time_passes(self, seconds: int) -> None:
        self.clock.shift(seconds)

    @rule(beyond=st.booleans())
    def the_next_lease_ends(self, beyond: bool) -> None:
        ends = [copy.lease_ends for box in self.boxes.values() for copy in box if copy.lease_ends]
        if coming := [end for end in ends if end >= self.now]:
            self.clock.move_to(min(coming) + timedelta(microseconds=int(beyond)))

    @invariant()
    def everybody_sees_what_the_model_holds(self) -> None:
        for agent, box in self.boxes.items():
            statuses = [copy.shown(self.now) for copy in box]
            assert self.call("inbox_count", agent_id=agent) == {
                "unread": statuses.count("unread"),
                "in_flight": statuses.count("delivered"),
                "read": statuses.count("read"),
            }
            pending = self.call("inbox_peek", agent_id=agent, include_parked=True)["messages"]
            assert [(message["message_id"], message["status"]) for message in pending] == [
                (copy.message, status) for copy, status in zip(box, statuses, strict=True) if status != "read"
            ]
            living = self.call("inbox_peek", agent_id=agent)["messages"]
            assert living == [message for message in pending if message["status"] != "parked"]
            newest = sorted(
                (copy for copy in box if copy.read_at), key=lambda copy: (copy.read_at, box.index(copy)), reverse=True
            )
            read = self.call("inbox_history", agent_id=agent)["messages"]
            assert [message["message_id"] for message in read] == [copy.message for copy in newest]

    @invariant()
    def the_sender_sees_the_attempts(self) -> None:
        for number, message in enumerate(self.sent[-2:], start=max(len(self.sent) - 2, 0)):
            copies = {agent: copy for agent in AGENTS for copy in self.boxes[agent] if copy.message == message}
            status = self.call("message_status", message_id=self.sent[number])["deliveries"]
            assert [(row["recipient"], row["status"], row["attempts"]) for row in status] == [
                (agent, copy.shown(self.now), copy.attempts) for agent, copy in sorted(copies.items())
            ]


HISTORIES: dict[str, list[tuple[Any, ...]]] = {
    "leases to their last instant": [
        *(("pull", "bob", 2, None), ("the_next_lease_ends", False), ("pull", "bob", 4, 1)),
        *(("the_next_lease_ends", True), ("send", False), ("pull", "bob", 1, 7200), ("the_next_lease_ends", False)),
        *(("the_next_lease_ends", True), ("pull", "bob", 1, 60), ("time_passes", 59), ("time_passes", 3600)),
    ],
    "an extension of all or of none": [
        *(("pull", "bob", 2, 10), ("time_passes", 10), ("extend", "bob", {0, 1}, 60), ("time_passes", 59)),
        *(("extend", "bob", {0, 2}, 60), ("extend", "cleo", {0}, 60), ("extend", "bob", {0}, 7200)),
        *(("extend", "bob", {1}, 1), ("the_next_lease_ends", False), ("the_next_lease_ends", True)),
        *(("extend", "bob", {1}, 60), ("ack", "bob", {0}), ("extend", "bob", {0}, 60)),
    ],
    "acknowledged once, by its owner": [
        *(("pull", "bob", 1, 10), ("ack", "bob", {0, 1}), ("ack", "bob", {0}), ("ack", "cleo", {1, 2})),
        *(("pull", "cleo", 1, 10), ("time_passes", 11), ("ack", "cleo", {0}), ("pull", "cleo", 4, None)),
    ],
    "parked by the sixth pull": [
        *(("pull_in_vain", "bob", 5), ("send", True), ("pull", "bob", 3, 10), ("pull", "bob", 3, 10)),
        *(("extend", "bob", {0}, 60), ("time_passes", 400), ("pull", "bob", 4, 10), ("ack", "bob", {0})),
    ],
}


@pytest.fixture
def inboxes(db: None) -> Iterator[Inboxes]:
    """The machine, to be played by hand."""
    machine = Inboxes()
    machine.register()
    yield machine
    machine.teardown()


@pytest.mark.parametrize("history", HISTORIES)
def test_it_behaves_so_in_each_history_that_is_known_to_matter(inboxes: Inboxes, history: str) -> None:
    for step, *given in HISTORIES[history]:
        getattr(inboxes, step)(*given)
        inboxes.everybody_sees_what_the_model_holds()
        inboxes.the_sender_sees_the_attempts()


@pytest.mark.hypothesis
@pytest.mark.django_db
def test_it_behaves_as_the_naive_model_of_the_lanes_does() -> None:
    run_state_machine_as_test(
        Inboxes, settings=settings(max_examples=examples(20), stateful_step_count=25, deadline=None)
    )
