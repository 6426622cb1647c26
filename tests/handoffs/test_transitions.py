"""Every step between the states, and every refusal in its order."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from coordination.models import Event
from handoffs.models import Handoff
from tests.conftest import Call
from tests.handoffs.conftest import TO_BOB, Clock, Offer, events_of, mail_of

LEASE = timedelta(seconds=300)
INSTANT = timedelta(microseconds=1)
Denied = Callable[..., str]
VERBS = ["handoff_claim", "handoff_complete", "handoff_reject", "handoff_cancel"]


@pytest.fixture
def denied(refused: Call, project: str) -> Denied:
    """The code of the error of an act on a handoff."""

    def denied(verb: str, handoff: str, agent: str, **more: Any) -> str:
        code: str = refused(verb, project_root=project, handoff_id=handoff, agent_id=agent, **more)["code"]
        return code

    return denied


def ended(on: Call, handoff: str, how: str) -> None:
    """Bring a handoff from ana into one of the terminal states."""
    if how == "CANCELLED":
        on("handoff_cancel", handoff, "ana")
        return
    on("handoff_claim", handoff, "bob")
    on("handoff_complete" if how == "COMPLETED" else "handoff_reject", handoff, "bob")


class TestClaim:
    def test_it_gives_the_work_and_a_lease_to_the_claimant(self, on: Call, offer: Offer, clock: Clock) -> None:
        handoff = offer(payload="dig")

        claimed = on("handoff_claim", handoff, "bob")

        assert (claimed["handoff_id"], claimed["status"], claimed["claimed_by"]) == (handoff, "CLAIMED", "bob")
        assert (claimed["lease_expires_at"], claimed["payload"]) == ("2026-03-01T12:05:00.000000Z", "dig")
        event = Event.objects.get(type="handoff.claimed")
        assert (event.stream, event.actor_agent_id, event.payload["claimed_by"]) == ("handoff", "bob", "bob")

    def test_it_leases_for_as_long_as_the_setting_says(
        self, on: Call, offer: Offer, clock: Clock, configure: Call
    ) -> None:
        configure(handoff_lease_ttl_seconds=7)

        assert on("handoff_claim", offer(), "bob")["lease_expires_at"] == "2026-03-01T12:00:07.000000Z"

    def test_it_refuses_the_second_even_the_winner_itself(self, on: Call, denied: Denied, offer: Offer) -> None:
        handoff = offer()
        on("handoff_claim", handoff, "bob")

        assert [denied("handoff_claim", handoff, agent) for agent in ("bob", "cleo")] == ["HANDOFF_ALREADY_CLAIMED"] * 2
        assert events_of(handoff) == ["handoff.created", "handoff.claimed"]

    def test_it_tells_who_has_it_and_until_when(
        self, on: Call, refused: Call, offer: Offer, clock: Clock, project: str
    ) -> None:
        handoff = offer(visibility="private")
        claim = {"project_root": project, "handoff_id": handoff}
        on("handoff_claim", handoff, "bob")
        clock.shift(60)
        on("handoff_start", handoff, "bob")
        until = on("handoff_get", handoff, "bob")["lease_expires_at"]

        error = refused("handoff_claim", **claim, agent_id="cleo")

        held = {"handoff_id": handoff, "status": "IN_PROGRESS", "claimed_by": "bob", "lease_expires_at": until}
        assert error["details"] == held
        assert f"bob has it until {until}" in error["message"]
        assert "You have it yourself" in refused("handoff_claim", **claim, agent_id="bob")["message"]
        on("handoff_complete", handoff, "bob")
        error = refused("handoff_claim", **claim, agent_id="cleo")
        assert error["details"] == held | {"status": "COMPLETED", "lease_expires_at": None}

    def test_it_asks_whether_one_is_eligible_before_whether_it_is_free(
        self, on: Call, denied: Denied, offer: Offer
    ) -> None:
        handoff = offer()
        on("handoff_claim", handoff, "bob")

        assert denied("handoff_claim", handoff, "ana") == "NOT_ELIGIBLE_TO_CLAIM"

    def test_it_shows_public_work_to_those_who_may_not_claim_it(self, on: Call, denied: Denied, offer: Offer) -> None:
        handoff = offer(target=TO_BOB)

        assert on("handoff_get", handoff, "cleo")["status"] == "OPEN"
        assert denied("handoff_claim", handoff, "cleo") == "NOT_ELIGIBLE_TO_CLAIM"
        assert events_of(handoff) == ["handoff.created"]

    @pytest.mark.parametrize("state", ["COMPLETED", "REJECTED", "CANCELLED"])
    def test_it_finds_an_ended_handoff_taken(self, on: Call, denied: Denied, offer: Offer, state: str) -> None:
        handoff = offer()
        ended(on, handoff, state)

        assert denied("handoff_claim", handoff, "cleo") == "HANDOFF_ALREADY_CLAIMED"


class TestComplete:
    def test_it_keeps_the_result_and_tells_the_creator(self, on: Call, call: Call, offer: Offer) -> None:
        handoff = offer()
        on("handoff_claim", handoff, "bob")

        done = on("handoff_complete", handoff, "bob", result="42")

        assert done == {"handoff_id": handoff, "status": "COMPLETED", "notified": ["ana"]}
        outcome = on("handoff_get", handoff, "ana")
        assert (outcome["status"], outcome["result"], outcome["claimed_by"]) == ("COMPLETED", "42", "bob")
        assert outcome["lease_expires_at"] is None
        (notice,) = mail_of(call, "ana")
        assert notice["from_agent_id"] == "bob"
        assert handoff in notice["body"]
        assert "42" in notice["body"]

    def test_it_tells_a_long_result_in_short(self, on: Call, call: Call, offer: Offer) -> None:
        handoff = offer()
        on("handoff_claim", handoff, "bob")
        on("handoff_complete", handoff, "bob", result="x" * 65_536)

        assert len(mail_of(call, "ana")[0]["body"]) < 3000
        assert on("handoff_get", handoff, "ana")["result"] == "x" * 65_536

    def test_it_tells_nobody_who_is_unregistered_or_did_the_work_itself(
        self, on: Call, call: Call, offer: Offer
    ) -> None:
        for creator in ("ghost", "bob"):
            handoff = offer(from_agent_id=creator)
            on("handoff_claim", handoff, "bob")
            assert "notified" not in on("handoff_complete", handoff, "bob")
        assert mail_of(call, "bob") == []

    def test_it_asks_for_the_state_before_the_owner(self, on: Call, denied: Denied, offer: Offer) -> None:
        handoff = offer()
        assert denied("handoff_complete", handoff, "cleo") == "INVALID_TRANSITION"
        on("handoff_claim", handoff, "bob")
        assert denied("handoff_complete", handoff, "cleo") == "NOT_OWNER"
        assert denied("handoff_complete", handoff, "ana") == "NOT_OWNER"
        on("handoff_complete", handoff, "bob")
        assert denied("handoff_complete", handoff, "bob") == "INVALID_TRANSITION"
        assert events_of(handoff) == ["handoff.created", "handoff.claimed", "handoff.completed"]

    def test_it_takes_the_result_of_a_lapsed_claim_nobody_reopened(self, on: Call, offer: Offer, clock: Clock) -> None:
        handoff = offer()
        on("handoff_claim", handoff, "bob")
        clock.shift(LEASE + INSTANT)

        assert on("handoff_complete", handoff, "bob")["status"] == "COMPLETED"


class TestReject:
    def test_it_keeps_the_claimants_reason_and_tells_the_creator(self, on: Call, call: Call, offer: Offer) -> None:
        handoff = offer()
        on("handoff_claim", handoff, "bob")

        assert on("handoff_reject", handoff, "bob", reason="no scanner")["notified"] == ["ana"]

        outcome = on("handoff_get", handoff, "ana")
        assert (outcome["status"], outcome["rejected_reason"]) == ("REJECTED", "no scanner")
        assert "no scanner" in mail_of(call, "ana")[0]["body"]
        assert events_of(handoff)[-1] == "handoff.rejected"

    def test_it_lets_a_direct_target_refuse_before_claiming(self, on: Call, offer: Offer) -> None:
        handoff = offer(target=TO_BOB)

        assert on("handoff_reject", handoff, "bob")["status"] == "REJECTED"
        assert on("handoff_get", handoff, "bob")["claimed_by"] is None

    @pytest.mark.parametrize(
        "target",
        [
            {"strategy": "capability", "capability": "python"},
            {"strategy": "direct_with_fallback", "agent_id": "bob", "fallback_after_seconds": 60},
            {"strategy": "mixed", "rules": [TO_BOB]},
        ],
    )
    def test_it_lets_nobody_else_refuse_open_work(self, denied: Denied, offer: Offer, target: dict[str, Any]) -> None:
        handoff = offer(target=target)

        assert [denied("handoff_reject", handoff, agent) for agent in ("ana", "bob")] == ["NOT_OWNER"] * 2

    def test_it_lets_only_the_claimant_refuse_claimed_work(self, on: Call, denied: Denied, offer: Offer) -> None:
        handoff = offer()
        on("handoff_claim", handoff, "bob")

        assert [denied("handoff_reject", handoff, agent) for agent in ("ana", "cleo")] == ["NOT_OWNER"] * 2

    @pytest.mark.parametrize("state", ["COMPLETED", "REJECTED", "CANCELLED"])
    def test_it_refuses_nothing_that_has_ended(self, on: Call, denied: Denied, offer: Offer, state: str) -> None:
        handoff = offer()
        ended(on, handoff, state)

        assert denied("handoff_reject", handoff, "bob") == "INVALID_TRANSITION"


class TestCancel:
    def test_it_retracts_open_work_with_the_reason_in_the_event(self, on: Call, call: Call, offer: Offer) -> None:
        handoff = offer()

        assert on("handoff_cancel", handoff, "ana", reason="typo") == {"handoff_id": handoff, "status": "CANCELLED"}

        assert Event.objects.get(type="handoff.cancelled").payload["reason"] == "typo"
        assert on("handoff_get", handoff, "ana")["rejected_reason"] is None

    def test_it_asks_for_the_creator_before_the_state(self, on: Call, denied: Denied, offer: Offer) -> None:
        handoff = offer()
        assert denied("handoff_cancel", handoff, "bob") == "NOT_OWNER"
        on("handoff_claim", handoff, "bob")
        assert denied("handoff_cancel", handoff, "bob") == "NOT_OWNER"
        assert denied("handoff_cancel", handoff, "ana") == "INVALID_TRANSITION"

    @pytest.mark.parametrize("state", ["COMPLETED", "REJECTED", "CANCELLED"])
    def test_it_retracts_nothing_that_has_ended(self, on: Call, denied: Denied, offer: Offer, state: str) -> None:
        handoff = offer()
        ended(on, handoff, state)

        assert denied("handoff_cancel", handoff, "ana") == "INVALID_TRANSITION"

    def test_it_retracts_work_whose_claim_has_lapsed(self, on: Call, offer: Offer, clock: Clock) -> None:
        handoff = offer()
        on("handoff_claim", handoff, "bob")
        clock.shift(LEASE + INSTANT)

        assert on("handoff_cancel", handoff, "ana")["status"] == "CANCELLED"
        assert events_of(handoff)[-2:] == ["handoff.expired", "handoff.cancelled"]


class TestExpiry:
    @pytest.mark.parametrize("look", ["handoff_list_available", "handoff_get", "handoff_claim"])
    def test_it_reopens_a_claim_once_the_lease_is_strictly_past(
        self, on: Call, call: Call, offer: Offer, clock: Clock, project: str, look: str
    ) -> None:
        handoff = offer()
        on("handoff_claim", handoff, "bob")
        clock.shift(LEASE)
        assert on("handoff_get", handoff, "ana")["status"] == "CLAIMED"
        assert call("handoff_list_available", project_root=project, agent_id="cleo")["handoffs"] == []
        clock.shift(INSTANT)

        more = {} if look == "handoff_list_available" else {"handoff_id": handoff}
        call(look, project_root=project, agent_id="cleo", **more)

        event = Event.objects.get(type="handoff.expired")
        assert (event.actor_agent_id, event.payload["claimed_by"], event.handoff_id) == (None, "bob", handoff)
        row = Handoff.objects.get()
        assert row.claimed_by == ("cleo" if look == "handoff_claim" else None)

    def test_it_tells_when_it_last_changed(self, on: Call, offer: Offer, clock: Clock) -> None:
        handoff = offer()
        on("handoff_claim", handoff, "bob")
        clock.shift(LEASE + INSTANT)
        assert on("handoff_get", handoff, "ana")["updated_at"] == "2026-03-01T12:05:00.000001Z"  # reopened
        clock.shift(LEASE)
        on("handoff_cancel", handoff, "ana")
        assert on("handoff_get", handoff, "ana")["updated_at"] == "2026-03-01T12:10:00.000001Z"

    def test_it_reopens_once_however_often_one_looks(self, on: Call, offer: Offer, clock: Clock) -> None:
        handoff = offer()
        on("handoff_claim", handoff, "bob")
        clock.shift(LEASE + INSTANT)

        shown = [on("handoff_get", handoff, "ana") for _ in range(2)]

        assert [(row["status"], row["claimed_by"], row["lease_expires_at"]) for row in shown] == [
            ("OPEN", None, None)
        ] * 2
        assert events_of(handoff).count("handoff.expired") == 1

    def test_it_refuses_the_former_claimant_whose_work_another_took(
        self, on: Call, denied: Denied, offer: Offer, clock: Clock
    ) -> None:
        handoff = offer()
        on("handoff_claim", handoff, "bob")
        clock.shift(LEASE + INSTANT)
        on("handoff_claim", handoff, "cleo")

        assert denied("handoff_complete", handoff, "bob") == "NOT_OWNER"


class TestTheOrderOfRefusals:
    @pytest.mark.parametrize("verb", [*VERBS, "handoff_get"])
    def test_it_tells_a_missing_handoff_from_one_elsewhere(
        self, refused: Call, offer: Offer, tmp_path: Path, verb: str
    ) -> None:
        handoff = offer()
        there = {"project_root": str(tmp_path), "agent_id": "bob"}

        assert refused(verb, **there, handoff_id="hnd_x")["code"] == "NOT_FOUND"
        error = refused(verb, **there, handoff_id=handoff)
        assert error["code"] == "WORKSPACE_MISMATCH"
        assert error["details"] == {"handoff_id": handoff}

    @pytest.mark.parametrize("verb", VERBS[1:])
    def test_it_looks_at_sizes_before_the_handoff_and_at_arguments_first(
        self, refused: Call, project: str, verb: str
    ) -> None:
        text = {"handoff_complete": "result"}.get(verb, "reason")
        large = {text: "é" * 32_769, "handoff_id": "hnd_x", "agent_id": "bob"}

        assert refused(verb, **large)["code"] == "WORKSPACE_REQUIRED"
        assert refused(verb, **large | {"project_root": "/no/such"})["code"] == "WORKSPACE_UNRESOLVED"
        assert refused(verb, **large | {"project_root": project, "extra": 1})["code"] == "VALIDATION_ERROR"
        assert refused(verb, **large | {"project_root": project})["code"] == "CONTENT_TOO_LARGE"
        assert refused(verb, **large | {"project_root": project, text: "é" * 32_768})["code"] == "NOT_FOUND"

    @pytest.mark.parametrize("verb", [*VERBS, "handoff_get"])
    @pytest.mark.parametrize("field", ["handoff_id", "agent_id"])
    def test_it_names_an_id_that_is_missing(self, refused: Call, project: str, verb: str, field: str) -> None:
        arguments = {"project_root": project, "handoff_id": "h", "agent_id": "bob"}
        del arguments[field]

        error = refused(verb, **arguments)

        assert (error["code"], error["details"]["field"]) == ("VALIDATION_ERROR", field)


def test_it_stamps_the_last_action_of_whoever_acts(clock: Clock, on: Call, call: Call, offer: Offer) -> None:
    def seen(agent: str) -> str:
        moment: str = call("agent_get", agent_id=agent)["last_seen_at"]
        return moment[11:16]

    clock.shift(60)
    first, second = offer(), offer()
    assert (seen("ana"), seen("bob")) == ("12:01", "12:00")
    clock.shift(60)
    on("handoff_claim", first, "bob")
    on("handoff_claim", second, "cleo")
    assert (seen("ana"), seen("bob"), seen("cleo")) == ("12:01", "12:02", "12:02")
    clock.shift(60)
    on("handoff_complete", first, "bob")
    on("handoff_reject", second, "cleo")
    assert (seen("ana"), seen("bob"), seen("cleo")) == ("12:01", "12:03", "12:03")


@pytest.mark.usefixtures("counted_alone")
def test_it_asks_once_whether_a_handoff_carries_a_task(on: Call, offer: Offer) -> None:
    handoff = offer()
    on("handoff_claim", handoff, "bob")
    with CaptureQueriesContext(connection) as asked:
        on("handoff_complete", handoff, "bob", result="done")
    of_handoffs = [query["sql"] for query in asked if 'FROM "handoffs" WHERE "handoffs"."handoff_id" =' in query["sql"]]
    assert len(of_handoffs) == 1, "read as it is inside the transaction, and not before for its task"
