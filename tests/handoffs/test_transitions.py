"""Every step between the states, and every refusal in its order."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from coordination.models import Event
from handoffs.models import Handoff
from tests.conftest import Call
from tests.handoffs.conftest import TO_BOB, Clock, Offer, events_of, mail_of

LEASE = timedelta(seconds=300)
INSTANT = timedelta(microseconds=1)
VERBS = ["handoff_claim", "handoff_complete", "handoff_reject", "handoff_cancel"]


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


class TestReject:
    def test_it_keeps_the_claimants_reason_and_tells_the_creator(self, on: Call, call: Call, offer: Offer) -> None:
        handoff = offer()
        on("handoff_claim", handoff, "bob")

        assert on("handoff_reject", handoff, "bob", reason="no scanner")["notified"] == ["ana"]

        outcome = on("handoff_get", handoff, "ana")
        assert (outcome["status"], outcome["rejected_reason"]) == ("REJECTED", "no scanner")
        assert "no scanner" in mail_of(call, "ana")[0]["body"]
        assert events_of(handoff)[-1] == "handoff.rejected"

    def test_it_lets_nobody_refuse_open_work_that_others_may_do(
        self, refused: Call, offer: Offer, project: str
    ) -> None:
        handoff = offer(target={"strategy": "mixed", "rules": [TO_BOB]})

        for agent in ("ana", "bob"):
            error = refused("handoff_reject", project_root=project, handoff_id=handoff, agent_id=agent)
            assert error["code"] == "NOT_OWNER"


class TestCancel:
    def test_it_retracts_open_work_with_the_reason_in_the_event(self, on: Call, call: Call, offer: Offer) -> None:
        handoff = offer()

        assert on("handoff_cancel", handoff, "ana", reason="typo") == {"handoff_id": handoff, "status": "CANCELLED"}

        assert Event.objects.get(type="handoff.cancelled").payload["reason"] == "typo"
        assert on("handoff_get", handoff, "ana")["rejected_reason"] is None


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
