"""Pulling, acknowledging and looking: the states of a delivery."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from coordination.models import Event
from inbox.api import DeliveryFilters
from inbox.models import Delivery
from inbox.monitoring import inboxes
from inbox.selectors import lane_sizes
from nexus.core.clock import now
from tests.conftest import Call
from tests.inbox.conftest import Clock, Post
from tests.store import plans

LEASE = timedelta(seconds=300)
INSTANT = timedelta(microseconds=1)


def subjects(page: dict[str, Any]) -> list[str]:
    return [message["subject"] for message in page["messages"]]


def exhaust(call: Call, clock: Clock) -> None:
    """Pull bob's mail five times and let every lease lapse."""
    for _ in range(5):
        assert call("inbox_pull", agent_id="bob")["count"]
        clock.shift(LEASE + INSTANT)


class TestPull:
    def test_it_hands_out_the_oldest_first_with_bodies_and_a_lease(self, call: Call, post: Post, clock: Clock) -> None:
        first, second = post("one"), post("two")

        pulled = call("inbox_pull", agent_id="bob")

        assert pulled["count"] == 2
        assert [message["message_id"] for message in pulled["messages"]] == [first, second]
        message = pulled["messages"][0]
        assert (message["status"], message["body"], message["from_agent_id"]) == ("delivered", "body of one", "ana")
        assert message["delivered_at"] == "2026-03-01T12:00:00.000000Z"
        assert message["lease_expires_at"] == "2026-03-01T12:05:00.000000Z"
        assert message["read_at"] is None
        contract = {
            "delivery_id", "message_id", "status", "delivered_at", "lease_expires_at", "read_at", "from_agent_id",
            "workspace_id", "workspace_name", "channel_id", "subject", "body", "target", "artifacts", "created_at",
        }  # fmt: skip
        assert contract <= message.keys()

    def test_it_takes_no_more_text_at_once_than_an_answer_may_hold(
        self, call: Call, post: Post, configure: Call
    ) -> None:
        large, *others, last = [post(subject) for subject in ("x" * 1000, "x" * 200, "y" * 200, "z" * 100)]
        configure(max_inline_bytes=14)  # 64 of these hold two messages whose bodies repeat their subjects

        assert [row["message_id"] for row in call("inbox_peek", agent_id="bob")["messages"]] == [large]
        pulled = [call("inbox_pull", agent_id="bob")["messages"] for _ in range(4)]
        pages = [[row["message_id"] for row in page] for page in pulled]
        assert pages == [[large], others, [last], []]

    def test_it_takes_as_many_of_the_largest_as_it_takes_by_default(
        self, call: Call, post: Post, configure: Call
    ) -> None:
        for _ in range(51):
            post("s")
        configure(max_inline_bytes=len("body of s"))

        assert call("inbox_pull", agent_id="bob")["count"] == 50

    def test_it_pins_the_limit_to_200_and_defaults_to_50(self, call: Call, post: Post) -> None:
        for number in range(201 + 50):
            post(str(number))

        assert call("inbox_pull", agent_id="bob")["count"] == 50
        assert call("inbox_pull", agent_id="bob", limit=10**9)["count"] == 200

    def test_it_leases_for_as_long_as_the_setting_says(
        self, call: Call, post: Post, clock: Clock, configure: Call
    ) -> None:
        configure(inbox_lease_ttl_seconds=7)
        post("one")

        pulled = call("inbox_pull", agent_id="bob")["messages"][0]

        assert pulled["lease_expires_at"] == "2026-03-01T12:00:07.000000Z"


class TestAck:
    def test_it_takes_one_id_as_text_and_repeats_as_one(self, call: Call, post: Post) -> None:
        one, two = post("one"), post("two")

        assert call("inbox_ack", agent_id="bob", message_ids=one) == {"acknowledged": 1}
        assert call("inbox_ack", agent_id="bob", message_ids=[two, two, "msg_x"]) == {"acknowledged": 1}

    def test_it_acknowledges_nothing_of_an_empty_list(self, call: Call, refused: Call) -> None:
        assert call("inbox_ack", agent_id="bob", message_ids=[]) == {"acknowledged": 0}
        nothing = refused("inbox_extend", agent_id="bob", message_ids=[], extend_seconds=60)
        assert nothing["code"] == "VALIDATION_ERROR"


class TestExtend:
    def test_it_extends_all_or_none_and_says_why_for_each(
        self, call: Call, refused: Call, post: Post, clock: Clock
    ) -> None:
        parked = post("parked")
        exhaust(call, clock)
        call("inbox_pull", agent_id="bob")
        lapsed, acknowledged = post("lapsed"), post("acknowledged")
        call("inbox_pull", agent_id="bob")
        call("inbox_ack", agent_id="bob", message_ids=acknowledged)
        clock.shift(LEASE + INSTANT)
        Delivery.objects.filter(message_id=lapsed).update(delivery_id="z")  # younger than the one pulled next
        held = post("held")
        call("inbox_pull", agent_id="bob", limit=1)
        unread = post("unread")
        before = call("inbox_peek", agent_id="bob")

        error = refused(
            "inbox_extend",
            agent_id="bob",
            message_ids=[held, unread, lapsed, acknowledged, parked, "msg_x"],
            extend_seconds=60,
        )

        assert error["code"] == "VALIDATION_ERROR"
        assert error["details"]["messages"] == {
            unread: "never pulled",
            lapsed: "lease already expired; pull it again",
            acknowledged: "already acknowledged",
            parked: "parked after too many attempts",
            "msg_x": "not in your inbox",
        }
        assert call("inbox_peek", agent_id="bob") == before


class TestLooking:
    """Peek, count, history and status change nothing."""

    def test_it_leaves_the_store_as_it_was(self, call: Call, post: Post, clock: Clock) -> None:
        message = post("one")
        call("inbox_pull", agent_id="bob")
        clock.shift(LEASE + INSTANT)
        seen = call("agent_get", agent_id="bob")["last_seen_at"]
        before = list(Delivery.objects.values()), Event.objects.count()

        call("inbox_peek", agent_id="bob", include_parked=True)
        call("inbox_count", agent_id="bob")
        call("inbox_history", agent_id="bob")
        call("message_status", message_id=message)

        assert (list(Delivery.objects.values()), Event.objects.count()) == before
        assert call("agent_get", agent_id="bob")["last_seen_at"] == seen

    def test_it_shows_at_most_the_limit_the_oldest_first(self, call: Call, post: Post) -> None:
        for number in range(3):
            post(str(number))

        assert subjects(call("inbox_peek", agent_id="bob", limit=2)) == ["0", "1"]

    def test_it_knows_no_status_of_what_was_never_sent(self, refused: Call) -> None:
        assert refused("message_status", message_id="msg_x")["code"] == "NOT_FOUND"
        assert refused("message_status")["code"] == "VALIDATION_ERROR"


@pytest.mark.sqlite  # whose plans say so; the indexes are the same
def test_each_lane_is_counted_along_its_index(call: Call, post: Post) -> None:
    post("one")
    (plan,) = plans(lambda: lane_sizes("bob", now()))
    counted = [step for step in plan.split(" / ") if "message_deliveries" in step]
    assert len(counted) == 4
    indexes = ["deliveries_in_lanes"] * 3 + ["deliveries_read"]
    for index, step in zip(indexes, counted, strict=True):
        assert f"{index} (recipient_agent_id=? AND status=?" in step, plan
    assert "COVERING" in counted[0] and "COVERING" in counted[3], plan  # not a look at each delivery that was read


@pytest.mark.sqlite  # whose plans say so; the indexes are the same
def test_pending_mail_of_everybody_is_counted_along_its_index(call: Call, post: Post) -> None:
    post("one")
    counts = plans(lambda: inboxes(now()))
    assert len(counts) == 4  # a status each, and expired leases
    assert all("deliveries_in_lanes (recipient_agent_id=? AND status=?" in plan for plan in counts), counts


@pytest.mark.sqlite
@pytest.mark.parametrize("status", ["unread", "delivered", "parked"])
def test_a_status_is_listed_along_the_index_of_pending_mail(call: Call, post: Post, status: str) -> None:
    post("one")
    rows = DeliveryFilters({"status": status}, queryset=Delivery.objects.order_by("-delivery_id")).qs
    (listing,) = plans(lambda: list(rows[:50]))
    assert "deliveries_in_lanes (recipient_agent_id=? AND status=?" in listing, listing
    assert "deliveries_to" not in listing, listing


@pytest.mark.sqlite
def test_the_unread_mail_of_an_agent_is_found_along_the_index_of_pending_mail(call: Call, post: Post) -> None:
    post("one")
    (plan,) = plans(lambda: Delivery.objects.of("bob").with_status("unread", now()).count())
    assert plan.count("deliveries_in_lanes (recipient_agent_id=? AND status=?") == 2, plan
    assert "deliveries_to (recipient_agent_id=?)" not in plan and "deliveries_to_by_message" not in plan, plan
