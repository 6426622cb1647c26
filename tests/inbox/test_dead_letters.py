"""What operators do about mail that was handed out too often: requeue, acknowledge, forward, and back."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import partial

import pytest

from coordination.models import Event
from inbox.models import Delivery
from inbox.operations import recipients_of_event
from tests.conftest import Call, at_once, does
from tests.inbox.conftest import Clock, Post
from tests.nexus_site.test_cli import nexus


def letter(post: Post, call: Call, clock: Clock, subject: str = "Where?") -> str:
    """The delivery_id of a dead letter of bob's."""
    message_id = post(subject)
    for _ in range(6):
        call("inbox_pull", agent_id="bob")
        clock.shift(timedelta(hours=1))
    return Delivery.objects.get(message_id=message_id, status="parked").pk


@pytest.fixture
def dead(clock: Clock, call: Call, post: Post) -> str:
    """The delivery_id of a dead letter of bob's."""
    return letter(post, call, clock)


def test_it_lists_dead_letters_and_whose_they_are(dead: str, call: Call) -> None:
    [row] = does("dead_letter_list")["data"]["dead_letters"]
    assert (row["delivery_id"], row["recipient"], row["from_agent_id"], row["attempts"]) == (dead, "bob", "ana", 5)
    assert does("dead_letter_list", agent_id="cleo")["data"]["dead_letters"] == []


def test_it_puts_a_dead_letter_back_with_all_its_hand_outs(dead: str, call: Call, clock: Clock) -> None:
    assert does("dead_letter_requeue", delivery_id=dead)["data"]["status"] == "unread"
    for _ in range(5):
        assert len(call("inbox_pull", agent_id="bob")["messages"]) == 1
        clock.shift(timedelta(hours=1))
    assert call("inbox_pull", agent_id="bob")["messages"] == []


def test_it_wakes_whoever_gets_a_letter_again(dead: str) -> None:
    does("dead_letter_requeue", delivery_id=dead)
    event = Event.objects.latest("event_id")
    assert (event.type, event.payload["operator"], list(recipients_of_event(event))) == (
        "message.requeued",
        "olga",
        ["bob"],
    )


def test_it_settles_a_dead_letter(dead: str, call: Call) -> None:
    assert does("dead_letter_acknowledge", delivery_id=dead)["data"]["status"] == "read"
    assert call("inbox_history", agent_id="bob")["messages"][0]["delivery_id"] == dead
    again = does("dead_letter_acknowledge", delivery_id=dead)["error"]
    assert (again["code"], again["details"]) == ("INVALID_TRANSITION", {"status": "read"})


def test_it_forwards_a_dead_letter_with_its_thread(dead: str, call: Call) -> None:
    forwarded = does("dead_letter_forward", delivery_id=dead, agent_id="cleo")["data"]
    assert (forwarded["recipient"], forwarded["status"]) == ("cleo", "unread")
    [message] = call("inbox_pull", agent_id="cleo")["messages"]
    call("message_create", from_agent_id="cleo", subject="Here", body="b", parent_message_id=message["message_id"],
         target={"strategy": "direct", "agent_id": "ana"})  # fmt: skip
    assert does("dead_letter_list")["data"]["dead_letters"] == []


def test_it_forwards_to_nobody_who_has_the_message_or_is_unknown(dead: str) -> None:
    assert does("dead_letter_forward", delivery_id=dead, agent_id="bob")["error"]["code"] == "VALIDATION_ERROR"
    assert does("dead_letter_forward", delivery_id=dead, agent_id="nobody")["error"]["code"] == "NOT_FOUND"
    assert Delivery.objects.get(pk=dead).status == "parked"


def test_it_takes_a_requeue_back_until_the_letter_is_pulled(dead: str, call: Call) -> None:
    for verb in ("requeue", "park", "requeue"):
        assert does(f"dead_letter_{verb}", delivery_id=dead)["ok"]
    call("inbox_pull", agent_id="bob")
    assert does("dead_letter_park", delivery_id=dead)["error"]["code"] == "INVALID_TRANSITION"


def test_it_takes_an_acknowledgement_back_for_a_minute(dead: str, clock: Clock) -> None:
    does("dead_letter_acknowledge", delivery_id=dead)
    clock.shift(60)
    assert does("dead_letter_park", delivery_id=dead)["data"]["status"] == "parked"
    does("dead_letter_acknowledge", delivery_id=dead)
    clock.shift(61)
    assert does("dead_letter_park", delivery_id=dead)["error"]["code"] == "INVALID_TRANSITION"


def test_it_parks_no_mail_that_was_no_dead_letter(call: Call, clock: Clock, post: Post) -> None:
    fresh = Delivery.objects.get(message_id=post("new")).pk
    assert does("dead_letter_park", delivery_id=fresh)["error"]["code"] == "INVALID_TRANSITION"
    for _ in range(5):
        clock.shift(timedelta(hours=1))
        [message] = call("inbox_pull", agent_id="bob")["messages"]
    call("inbox_ack", agent_id="bob", message_ids=[message["message_id"]])
    assert does("dead_letter_park", delivery_id=fresh)["error"]["code"] == "INVALID_TRANSITION"
    assert Delivery.objects.get(pk=fresh).status == "read"


def test_it_parks_no_dead_letter_that_was_forwarded_or_read_by_its_recipient(
    call: Call, clock: Clock, post: Post, dead: str
) -> None:
    does("dead_letter_forward", delivery_id=dead, agent_id="cleo")
    assert does("dead_letter_park", delivery_id=dead)["error"]["code"] == "INVALID_TRANSITION"
    other = letter(post, call, clock, "other")
    for verb in ("acknowledge", "park"):
        assert does(f"dead_letter_{verb}", delivery_id=other)["ok"]
    call("inbox_ack", agent_id="bob", message_ids=[Delivery.objects.get(pk=other).message_id])
    assert does("dead_letter_park", delivery_id=other)["error"]["code"] == "INVALID_TRANSITION"


@pytest.mark.parametrize("verb", ["requeue", "acknowledge", "park"])
def test_it_is_for_operators_and_says_what_is_unknown(dead: str, refused: Call, verb: str) -> None:
    assert refused(f"dead_letter_{verb}", delivery_id=dead)["code"] == "NOT_OWNER"
    assert does(f"dead_letter_{verb}", delivery_id="dlv_x")["error"]["code"] == "NOT_FOUND"


def test_it_lets_one_of_many_operators_decide(committed: None, clock: Clock, call: Call, post: Post) -> None:
    for number in range(3):
        dead = letter(post, call, clock, str(number))
        decide = [partial(does, f"dead_letter_{verb}", delivery_id=dead) for verb in ("requeue", "acknowledge")]
        forward = partial(does, "dead_letter_forward", delivery_id=dead, agent_id="cleo")
        answers = at_once([*decide, forward, *decide])
        assert Counter(answer["ok"] for answer in answers) == {True: 1, False: 4}
        assert {answer["error"]["code"] for answer in answers if not answer["ok"]} == {"INVALID_TRANSITION"}
        forwarded = Delivery.objects.filter(recipient_id="cleo", message__subject=str(number)).count()
        told = Event.objects.filter(type="message.forwarded").values_list("payload", flat=True)
        assert forwarded == [payload["subject"] for payload in told].count(str(number))
        Delivery.objects.filter(status="unread").update(status="read", read_at="2026-03-01T12:00:00Z")


def test_its_commands_tell_of_each_letter_what_became_of_it(dead: str) -> None:
    assert dead in nexus("dead_letters").out
    ran = nexus("dead_letters", "requeue", dead, "dlv_x", "--json")
    assert (ran.code, [row["delivery_id"] for row in ran.json["done"]]) == (1, [dead])
    assert [error["code"] for error in ran.json["refused"]] == ["NOT_FOUND"]
    assert nexus("dead_letters").code == 3
    assert nexus("dead_letters", "park", dead).code == 0
    assert nexus("dead_letters", "forward", dead, "--to", "cleo").code == 0
    assert "INVALID_TRANSITION" in nexus("dead_letters", "ack", dead).err
