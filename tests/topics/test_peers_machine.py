"""Peers of a topic against a naive model of the contract, through random histories."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import pytest
from django.db import transaction
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from nexus.core.operations import dispatch
from nexus.topics import connections
from nexus.topics.models import Peer, TopicMessage
from nexus.topics.toolset import TOPICS
from tests.conftest import examples
from tests.topics.conftest import Client

NAMES = ("ann", "bob", "cleo")
names = st.sampled_from(NAMES)
places = st.integers(0, 2)  # one of three connections


@dataclass
class Said:
    """A message, as the contract describes it."""

    sender: str
    text: str
    key: str | None
    message_id: str = ""


@dataclass
class Room:
    """The topic in the naive model: everything in lists, nothing clever."""

    said: list[Said] = field(default_factory=list)
    cursors: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    held: dict[int, str] = field(default_factory=dict)  # by connection, the name it joined by
    closed: bool = False

    def behind(self, name: str, include_self: bool) -> list[int]:
        return [
            seq
            for seq, message in enumerate(self.said, 1)
            if seq > self.cursors[name] and (include_self or message.sender != name)
        ]


class Peers(RuleBasedStateMachine):
    """One topic, three names, three connections."""

    def __init__(self) -> None:
        super().__init__()
        self.atomic = transaction.atomic()
        self.atomic.__enter__()
        self.room = Room()
        self.clients = [Client() for _ in range(3)]
        self.count = 0

    def teardown(self) -> None:
        transaction.set_rollback(True)
        self.atomic.__exit__(None, None, None)
        connections._held.clear()

    @initialize()
    def open(self) -> None:
        self.topic = self.clients[0].call("topic_create", name="room")["topic_id"]

    def call(self, place: int, tool: str, **arguments: Any) -> dict[str, Any]:
        return dispatch.run(TOPICS, self.clients[place].caller, tool, {"topic_id": self.topic, **arguments})

    @rule(place=places, name=names, present=st.sampled_from(["nothing", "its token", "another token"]))
    def join(self, place: int, name: str, present: str) -> None:
        token = {"nothing": None, "its token": self.room.tokens.get(name), "another token": "0" * 32}[present]
        body = self.call(place, "topic_join", agent_name=name, reclaim_token=token)
        reserved = name in self.room.tokens
        mine = self.room.held.get(place) == name
        if reserved and not (mine if token is None else token == self.room.tokens[name]):
            assert body["error"]["code"] == "AGENT_NAME_IN_USE"
            return
        assert not reserved or body["reclaim_token"] == self.room.tokens[name]
        self.room.tokens[name] = body["reclaim_token"]
        self.room.cursors.setdefault(name, 0)
        self.room.held[place] = name

    @rule(place=places)
    def restart(self, place: int) -> None:
        self.clients[place] = Client()
        self.room.held.pop(place, None)

    @rule(
        place=places,
        keys=st.lists(st.sampled_from([None, "k", "l"]), max_size=3),
        reply=st.sampled_from(["none", "good", "bad"]),
        max_items=st.integers(1, 4),
        include_self=st.booleans(),
        auto_advance=st.booleans(),
        ack=st.none() | st.integers(0, 12),
    )
    def sync(
        self,
        place: int,
        keys: list[str | None],
        reply: str,
        max_items: int,
        include_self: bool,
        auto_advance: bool,
        ack: int | None,
    ) -> None:
        room = self.room
        reply_to = {"none": None, "bad": "nowhere", "good": room.said[0].message_id if room.said else None}[reply]
        outbox = [
            {"content_markdown": f"text {self.count + n}", "client_message_id": key} for n, key in enumerate(keys)
        ]
        if outbox:
            outbox[-1]["reply_to"] = reply_to
        self.count += len(keys)
        body = self.call(
            place,
            "sync",
            outbox=outbox,
            max_items=max_items,
            include_self=include_self,
            auto_advance=auto_advance,
            ack_through=ack,
            wait_seconds=0,
        )
        name = room.held.get(place)
        if name is None:
            assert body["error"]["code"] == "AGENT_NOT_JOINED"
            return
        said, sent = list(room.said), []
        for message in outbox:
            key = message["client_message_id"]
            before = next((s for s in said if key is not None and (s.sender, s.key) == (name, key)), None)
            if before is None and room.closed:
                assert body["error"]["code"] == "TOPIC_CLOSED"
                return
            if before is None and message.get("reply_to") == "nowhere":
                assert body["error"]["code"] == "INVALID_ARGUMENT"
                return
            if before is None:
                said.append(Said(name, str(message["content_markdown"]), key))
            sent.append((said.index(before) + 1, True) if before else (len(said), False))
        if not auto_advance and ack is not None and ack > len(said):
            assert body["error"]["code"] == "INVALID_ARGUMENT"
            return
        room.said = said
        for (seq, _), each in zip(sent, body["sent"], strict=True):
            said[seq - 1].message_id = each["message"]["message_id"]
        assert [(each["message"]["seq"], each["duplicate"]) for each in body["sent"]] == sent
        if not auto_advance and ack is not None:
            room.cursors[name] = max(room.cursors[name], ack)
        behind = room.behind(name, include_self)
        received = behind[:max_items]
        if auto_advance and received:
            room.cursors[name] = received[-1]
        assert [message["seq"] for message in body["received"]] == received
        assert [message["content_markdown"] for message in body["received"]] == [said[seq - 1].text for seq in received]
        assert (body["has_more"], body["received_count"]) == (len(behind) > max_items, len(received))
        assert body["status"] == ("ready" if received else "empty")
        assert body["cursor"]["last_seq"] == room.cursors[name]

    @rule(place=places, seq=st.integers(0, 12))
    def reset(self, place: int, seq: int) -> None:
        body = self.call(place, "cursor_reset", last_seq=seq)
        name = self.room.held.get(place)
        if name is None:
            assert body["error"]["code"] == "AGENT_NOT_JOINED"
        elif seq > len(self.room.said):
            assert body["error"]["code"] == "INVALID_ARGUMENT"
        else:
            self.room.cursors[name] = seq
            assert body["cursor"]["last_seq"] == seq

    @precondition(lambda self: len(self.room.said) > 3)
    @rule(place=places)
    def close(self, place: int) -> None:
        body = self.call(place, "topic_close")
        assert ("warnings" in body) is self.room.closed
        self.room.closed = True

    @invariant()
    def the_store_holds_what_the_model_holds(self) -> None:
        messages = TopicMessage.objects.order_by("seq").values_list("seq", "sender", "content_markdown")
        assert list(messages) == [(seq, said.sender, said.text) for seq, said in enumerate(self.room.said, 1)]
        assert dict(Peer.objects.values_list("agent_name", "last_seq")) == self.room.cursors


HISTORIES: dict[str, list[tuple[Any, ...]]] = {  # of a sync: keys, reply, max_items, include_self, auto_advance, ack
    "what is received": [
        *(("join", 0, "ann", "nothing"), ("sync", 1, [], "none", 4, False, True, None), ("join", 1, "bob", "nothing")),
        *(("sync", 0, [None] * 3, "none", 4, False, True, None), ("sync", 1, [], "none", 2, False, True, None)),
        *(("sync", 1, [None], "none", 4, False, True, None), ("sync", 1, [], "none", 4, False, True, None)),
        *(("sync", 0, [], "none", 2, True, False, None), ("sync", 0, [], "none", 4, False, True, None)),
        *(("reset", 0, 0), ("sync", 0, [], "none", 2, True, True, None), ("reset", 0, 4), ("reset", 0, 5)),
        *(("sync", 0, [], "none", 4, True, True, None), ("reset", 2, 0)),
    ],
    "what is acknowledged": [
        *(("join", 0, "ann", "nothing"), ("join", 1, "bob", "nothing")),
        ("sync", 0, [None] * 3, "none", 4, False, True, None),
        *(("sync", 1, [], "none", 4, False, False, ack) for ack in (None, 2, None, 1, 4, 3, None)),
        *(("sync", 1, [None], "none", 4, False, False, 9), ("reset", 1, 0), ("sync", 1, [], "none", 1, True, True, 9)),
    ],
    "what is sent": [
        *(("join", 0, "ann", "nothing"), ("join", 1, "bob", "nothing")),
        *(("sync", 0, ["k"], "none", 4, False, True, None), ("sync", 0, ["l", "l", "k"], "bad", 4, False, True, None)),
        *(
            ("sync", 1, ["k", None], "good", 4, False, True, None),
            ("sync", 1, ["l", None], "bad", 4, False, True, None),
        ),
        *(
            ("close", 0),
            ("sync", 0, ["k"], "none", 4, False, True, None),
            ("sync", 0, [None], "none", 4, True, True, None),
        ),
        *(("close", 1), ("sync", 1, [], "none", 4, False, True, None)),
    ],
    "who has a name": [
        *(("join", 0, "ann", "nothing"), ("join", 1, "ann", "nothing"), ("join", 1, "ann", "another token")),
        *(("join", 1, "ann", "its token"), ("join", 0, "ann", "nothing"), ("join", 0, "ann", "another token")),
        *(("join", 2, "bob", "nothing"), ("sync", 2, [None] * 3, "none", 4, False, True, None)),
        *(("sync", 0, [], "none", 1, False, True, None), ("sync", 1, [], "none", 1, False, True, None)),
        *(("restart", 0), ("sync", 0, [], "none", 4, False, True, None), ("join", 0, "ann", "nothing")),
        *(("join", 0, "ann", "its token"), ("sync", 0, [], "none", 4, False, True, None)),
    ],
}


@pytest.mark.django_db
@pytest.mark.parametrize("history", HISTORIES)
def test_it_behaves_so_in_each_history_that_is_known_to_matter(history: str) -> None:
    machine = Peers()
    try:
        machine.open()
        for step, *given in HISTORIES[history]:
            getattr(machine, step)(*given)
            machine.the_store_holds_what_the_model_holds()
    finally:
        machine.teardown()


@pytest.mark.hypothesis
@pytest.mark.django_db
def test_it_behaves_as_the_naive_model_of_a_room_does() -> None:
    run_state_machine_as_test(
        Peers, settings=settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
    )
