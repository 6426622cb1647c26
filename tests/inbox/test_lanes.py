"""Pulling, acknowledging and looking: the lanes of a delivery."""

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

    def test_it_hands_out_nothing_twice_while_the_lease_runs(self, call: Call, post: Post, clock: Clock) -> None:
        post("one")
        call("inbox_pull", agent_id="bob")
        clock.shift(LEASE)

        assert call("inbox_pull", agent_id="bob") == {"messages": [], "count": 0}

    def test_it_redelivers_once_the_lease_is_strictly_past(self, call: Call, post: Post, clock: Clock) -> None:
        post("one")
        first = call("inbox_pull", agent_id="bob")["messages"][0]
        clock.shift(LEASE + INSTANT)

        again = call("inbox_pull", agent_id="bob")["messages"][0]

        assert again["delivery_id"] == first["delivery_id"]
        assert again["lease_expires_at"] > first["lease_expires_at"]

    def test_it_takes_the_lapsed_before_younger_mail(self, call: Call, post: Post, clock: Clock) -> None:
        post("old")
        call("inbox_pull", agent_id="bob")
        clock.shift(LEASE + INSTANT)
        post("young")

        assert subjects(call("inbox_pull", agent_id="bob", limit=1)) == ["old"]

    def test_it_takes_at_most_the_limit(self, call: Call, post: Post) -> None:
        for number in range(3):
            post(str(number))

        assert [subjects(call("inbox_pull", agent_id="bob", limit=2)) for _ in range(3)] == [["0", "1"], ["2"], []]

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

    def test_it_never_touches_the_mail_of_others(self, call: Call, post: Post) -> None:
        post("one")

        assert call("inbox_pull", agent_id="cleo")["count"] == 0
        assert call("inbox_count", agent_id="bob")["unread"] == 1

    @pytest.mark.parametrize(("asked", "granted"), [(-5, 10), (0, 10), (10, 10), (77, 77), (3600, 3600), (9999, 3600)])
    def test_it_clamps_the_lease(self, call: Call, post: Post, clock: Clock, asked: int, granted: int) -> None:
        post("one")
        call("inbox_pull", agent_id="bob", lease_seconds=asked)

        clock.shift(timedelta(seconds=granted))
        assert call("inbox_count", agent_id="bob")["in_flight"] == 1
        clock.shift(INSTANT)
        assert call("inbox_count", agent_id="bob")["unread"] == 1

    def test_it_leases_for_as_long_as_the_setting_says(
        self, call: Call, post: Post, clock: Clock, configure: Call
    ) -> None:
        configure(inbox_lease_ttl_seconds=7)
        post("one")

        pulled = call("inbox_pull", agent_id="bob")["messages"][0]

        assert pulled["lease_expires_at"] == "2026-03-01T12:00:07.000000Z"

    @pytest.mark.parametrize(
        "arguments",
        [{"limit": 0}, {"limit": -1}, {"limit": True}, {"limit": "5"}, {"lease_seconds": True}, {"lease_seconds": 1.5},
         {"agent_id": ""}, {"agent_id": None}],
    )  # fmt: skip
    def test_it_refuses_what_is_no_count_or_agent(self, refused: Call, arguments: dict[str, Any]) -> None:
        assert refused("inbox_pull", **{"agent_id": "bob"} | arguments)["code"] == "VALIDATION_ERROR"


class TestParking:
    """A delivery handed out five times is parked by the next claim."""

    def test_it_hands_out_five_times_and_then_parks(self, call: Call, post: Post, clock: Clock) -> None:
        message = post("poison")
        exhaust(call, clock)
        assert call("message_status", message_id=message)["deliveries"][0]["status"] == "unread"

        assert call("inbox_pull", agent_id="bob")["count"] == 0

        delivery = call("message_status", message_id=message)["deliveries"][0]
        assert (delivery["status"], delivery["attempts"]) == ("parked", 5)
        clock.shift(LEASE + INSTANT)
        assert call("inbox_pull", agent_id="bob")["count"] == 0

    def test_it_counts_what_it_parks_against_the_limit(self, call: Call, post: Post, clock: Clock) -> None:
        post("poison")
        exhaust(call, clock)
        post("two")
        post("three")

        assert subjects(call("inbox_pull", agent_id="bob", limit=2)) == ["two"]
        assert subjects(call("inbox_pull", agent_id="bob", limit=2)) == ["three"]

    def test_it_shows_the_parked_only_when_asked_and_counts_it_nowhere(
        self, call: Call, post: Post, clock: Clock
    ) -> None:
        post("poison")
        exhaust(call, clock)
        call("inbox_pull", agent_id="bob")

        assert call("inbox_peek", agent_id="bob")["count"] == 0
        dead = call("inbox_peek", agent_id="bob", include_parked=True)["messages"]
        assert [(message["subject"], message["status"]) for message in dead] == [("poison", "parked")]
        assert call("inbox_count", agent_id="bob") == {"unread": 0, "in_flight": 0, "read": 0}

    def test_it_settles_a_parked_message_by_an_ack(self, call: Call, post: Post, clock: Clock) -> None:
        message = post("poison")
        exhaust(call, clock)
        call("inbox_pull", agent_id="bob")

        assert call("inbox_ack", agent_id="bob", message_ids=message) == {"acknowledged": 1}
        assert subjects(call("inbox_history", agent_id="bob")) == ["poison"]


class TestAck:
    def test_it_moves_messages_into_history_once(self, call: Call, post: Post, clock: Clock) -> None:
        ids = [post("one"), post("two")]
        call("inbox_pull", agent_id="bob")

        assert call("inbox_ack", agent_id="bob", message_ids=ids) == {"acknowledged": 2}
        clock.shift(LEASE + INSTANT)
        assert call("inbox_ack", agent_id="bob", message_ids=ids) == {"acknowledged": 0}

        assert call("inbox_pull", agent_id="bob")["count"] == 0
        assert call("inbox_count", agent_id="bob") == {"unread": 0, "in_flight": 0, "read": 2}
        times = {message["read_at"] for message in call("inbox_history", agent_id="bob")["messages"]}
        assert times == {"2026-03-01T12:00:00.000000Z"}

    def test_it_takes_one_id_as_text_and_repeats_as_one(self, call: Call, post: Post) -> None:
        one, two = post("one"), post("two")

        assert call("inbox_ack", agent_id="bob", message_ids=one) == {"acknowledged": 1}
        assert call("inbox_ack", agent_id="bob", message_ids=[two, two, "msg_x"]) == {"acknowledged": 1}

    def test_it_never_settles_the_mail_of_others(self, call: Call, post: Post) -> None:
        message = post("one")

        assert call("inbox_ack", agent_id="cleo", message_ids=message) == {"acknowledged": 0}
        assert call("inbox_count", agent_id="bob")["unread"] == 1

    def test_it_settles_a_lapsed_message_that_nobody_pulled_again(self, call: Call, post: Post, clock: Clock) -> None:
        message = post("one")
        call("inbox_pull", agent_id="bob")
        clock.shift(LEASE + INSTANT)

        assert call("inbox_ack", agent_id="bob", message_ids=message) == {"acknowledged": 1}

    @pytest.mark.parametrize("ids", [None, "", [""], [7], 7, {"a": 1}, [None], True])
    def test_it_refuses_what_is_no_list_of_ids(self, refused: Call, ids: Any) -> None:
        for verb, more in (("inbox_ack", {}), ("inbox_extend", {"extend_seconds": 60})):
            assert refused(verb, agent_id="bob", message_ids=ids, **more)["code"] == "VALIDATION_ERROR"

    def test_it_acknowledges_nothing_of_an_empty_list(self, call: Call, refused: Call) -> None:
        assert call("inbox_ack", agent_id="bob", message_ids=[]) == {"acknowledged": 0}
        nothing = refused("inbox_extend", agent_id="bob", message_ids=[], extend_seconds=60)
        assert nothing["code"] == "VALIDATION_ERROR"


class TestExtend:
    def test_it_renews_the_lease_from_now(self, call: Call, post: Post, clock: Clock) -> None:
        ids = [post("one"), post("two")]
        call("inbox_pull", agent_id="bob")
        clock.shift(LEASE)  # the last instant of the lease

        extended = call("inbox_extend", agent_id="bob", message_ids=[*ids, ids[0]], extend_seconds=60)

        assert extended == {"extended": 2, "lease_expires_at": "2026-03-01T12:06:00.000000Z"}
        clock.shift(timedelta(seconds=60))
        assert call("inbox_count", agent_id="bob")["in_flight"] == 2
        clock.shift(INSTANT)
        assert call("inbox_count", agent_id="bob")["unread"] == 2

    @pytest.mark.parametrize(("asked", "granted"), [(-1, 10), (10, 10), (3600, 3600), (10**6, 3600)])
    def test_it_clamps_as_a_pull_does(self, call: Call, post: Post, clock: Clock, asked: int, granted: int) -> None:
        message = post("one")
        call("inbox_pull", agent_id="bob")

        call("inbox_extend", agent_id="bob", message_ids=message, extend_seconds=asked)

        clock.shift(timedelta(seconds=granted))
        assert call("inbox_count", agent_id="bob")["in_flight"] == 1
        clock.shift(INSTANT)
        assert call("inbox_count", agent_id="bob")["in_flight"] == 0

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

    def test_it_does_not_extend_the_lease_of_another_agent(self, call: Call, refused: Call, post: Post) -> None:
        message = post("one")
        call("inbox_pull", agent_id="bob")

        error = refused("inbox_extend", agent_id="cleo", message_ids=message, extend_seconds=60)

        assert error["details"]["messages"] == {message: "not in your inbox"}

    @pytest.mark.parametrize("seconds", [None, True, 1.5, "60"])
    def test_it_refuses_what_is_no_whole_number_of_seconds(self, refused: Call, seconds: Any) -> None:
        error = refused("inbox_extend", agent_id="bob", message_ids="m", extend_seconds=seconds)

        assert (error["code"], error["details"]["field"]) == ("VALIDATION_ERROR", "extend_seconds")


class TestLooking:
    """Peek, count, history and status change nothing."""

    def test_it_shows_pending_mail_with_bodies_in_its_effective_lane(
        self, call: Call, post: Post, clock: Clock
    ) -> None:
        post("lapsed")
        call("inbox_pull", agent_id="bob")
        clock.shift(LEASE + INSTANT)
        post("waiting")

        shown = call("inbox_peek", agent_id="bob")

        assert [(m["subject"], m["body"], m["status"]) for m in shown["messages"]] == [
            ("lapsed", "body of lapsed", "unread"),
            ("waiting", "body of waiting", "unread"),
        ]
        assert call("inbox_count", agent_id="bob") == {"unread": 2, "in_flight": 0, "read": 0}

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

    def test_it_tells_the_sender_where_each_recipient_stands(self, call: Call, project: str, team: None) -> None:
        sent = call(
            "message_create",
            project_root=project,
            from_agent_id="ana",
            subject="s",
            body="b",
            target={"strategy": "capability", "capability": "python"},
        )
        call("inbox_pull", agent_id="bob")
        call("inbox_pull", agent_id="cleo")
        call("inbox_ack", agent_id="cleo", message_ids=sent["message_id"])

        status = call("message_status", message_id=sent["message_id"])

        assert (status["message_id"], status["count"]) == (sent["message_id"], 2)
        bob, cleo = status["deliveries"]
        assert bob == {"recipient": "bob", "status": "delivered", "attempts": 1, "read_at": None}
        assert (cleo["recipient"], cleo["status"], cleo["attempts"]) == ("cleo", "read", 1)
        assert cleo["read_at"] is not None

    def test_it_knows_no_status_of_what_was_never_sent(self, refused: Call) -> None:
        assert refused("message_status", message_id="msg_x")["code"] == "NOT_FOUND"
        assert refused("message_status")["code"] == "VALIDATION_ERROR"


@pytest.mark.parametrize(
    ("verb", "more"),
    [("inbox_pull", {}), ("inbox_ack", {"message_ids": "msg_x"})],
)
def test_it_stamps_the_receivers_last_action(
    call: Call, clock: Clock, team: None, verb: str, more: dict[str, Any]
) -> None:
    clock.shift(60)

    call(verb, agent_id="bob", **more)

    assert call("agent_get", agent_id="bob")["last_seen_at"] == "2026-03-01T12:01:00.000000Z"


@pytest.mark.sqlite  # whose plans say so; the indexes are the same
def test_each_lane_is_counted_along_its_index(call: Call, post: Post) -> None:
    post("one")
    (plan,) = plans(lambda: lane_sizes("bob", now()))
    counted = [step for step in plan.split(" / ") if "U0" in step]
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
@pytest.mark.parametrize("lane", ["unread", "delivered", "parked"])
def test_a_lane_is_listed_along_the_index_of_pending_mail(call: Call, post: Post, lane: str) -> None:
    post("one")
    rows = DeliveryFilters({"status": lane}, queryset=Delivery.objects.order_by("-delivery_id")).qs
    (listing,) = plans(lambda: list(rows[:50]))
    assert "deliveries_in_lanes (recipient_agent_id=? AND status=?" in listing, listing
    assert "deliveries_to" not in listing, listing


@pytest.mark.sqlite
def test_the_unread_mail_of_an_agent_is_found_along_the_index_of_pending_mail(call: Call, post: Post) -> None:
    post("one")
    (plan,) = plans(lambda: Delivery.objects.of("bob").in_lane("unread", now()).count())
    assert plan.count("deliveries_in_lanes (recipient_agent_id=? AND status=?") == 2, plan
    assert "deliveries_to (recipient_agent_id=?)" not in plan and "deliveries_to_by_message" not in plan, plan
