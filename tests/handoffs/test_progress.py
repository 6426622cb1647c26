"""What happens between claiming and completing: work that starts and stops, and what its verifier says."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from coordination import selectors
from coordination.models import Event
from coordination.toolset import call as perform
from coordination.toolset import run
from tests.conftest import OPERATOR, Call
from tests.handoffs.conftest import TO_BOB, Clock, Offer, events_of, mail_of

INSTANT = timedelta(microseconds=1)


@pytest.fixture
def denied(refused: Call, project: str) -> Call:
    """The error of an act on a handoff."""

    def denied(verb: str, handoff: str, agent: str, **more: Any) -> dict[str, Any]:
        return refused(verb, project_root=project, handoff_id=handoff, agent_id=agent, **more)

    return denied


@pytest.fixture
def claimed(on: Call, offer: Offer) -> Callable[..., str]:
    """A handoff of ana's that bob has."""

    def claimed(lease_seconds: int | None = None, **changes: Any) -> str:
        handoff = offer(**changes)
        on("handoff_claim", handoff, "bob", **({} if lease_seconds is None else {"lease_seconds": lease_seconds}))
        return handoff

    return claimed


class TestStartAndBlock:
    def test_it_starts_once_however_often_it_is_said(self, on: Call, claimed: Offer, clock: Clock) -> None:
        handoff = claimed()

        first, again = on("handoff_start", handoff, "bob"), on("handoff_start", handoff, "bob")

        assert first == again
        assert (first["status"], first["lease_expires_at"]) == ("IN_PROGRESS", "2026-03-01T12:05:00.000000Z")
        assert events_of(handoff)[2:] == ["handoff.started"]

    def test_it_tells_the_creator_why_work_is_blocked_and_keeps_the_lease(
        self, on: Call, call: Call, claimed: Offer, clock: Clock
    ) -> None:
        handoff = claimed()

        blocked = on("handoff_block", handoff, "bob", reason="no access to the vault")

        assert (blocked["status"], blocked["notified"]) == ("BLOCKED", ["ana"])
        assert blocked["lease_expires_at"] == "2026-03-01T12:05:00.000000Z"
        assert "no access to the vault" in mail_of(call, "ana")[0]["body"]
        assert on("handoff_get", handoff, "ana")["blocked_reason"] == "no access to the vault"
        assert "notified" not in on("handoff_block", handoff, "bob", reason="no access to the vault")
        on("handoff_start", handoff, "bob")
        assert on("handoff_get", handoff, "ana")["blocked_reason"] is None
        assert events_of(handoff)[2:] == ["handoff.blocked", "handoff.started"]

    @pytest.mark.parametrize("verb", ["handoff_start", "handoff_block", "handoff_extend"])
    def test_it_is_for_the_claimant_while_the_lease_runs(
        self, on: Call, denied: Call, offer: Offer, claimed: Offer, clock: Clock, verb: str
    ) -> None:
        more = {"reason": "stuck"} if verb == "handoff_block" else {}
        handoff = claimed()

        assert denied(verb, offer(), "bob", **more)["code"] == "INVALID_TRANSITION"
        assert denied(verb, handoff, "cleo", **more)["code"] == "NOT_OWNER"
        clock.shift(timedelta(seconds=300) + INSTANT)
        late = denied(verb, handoff, "bob", **more)
        assert late["code"] == "INVALID_TRANSITION"
        assert "2026-03-01T12:05:00.000000Z" in late["message"] and "handoff_claim" in late["message"]

    def test_it_asks_for_a_reason(self, denied: Call, claimed: Offer) -> None:
        assert denied("handoff_block", claimed(), "bob", reason=" ")["details"]["field"] == "reason"


class TestExtend:
    @pytest.mark.parametrize("seconds", [9, 86_401])
    def test_it_takes_ten_seconds_to_a_day(self, denied: Call, offer: Offer, claimed: Offer, seconds: int) -> None:
        errors = [
            denied("handoff_claim", offer(), "bob", lease_seconds=seconds),
            denied("handoff_extend", claimed(), "bob", seconds=seconds),
        ]

        assert [error["code"] for error in errors] == ["VALIDATION_ERROR"] * 2

    def test_it_lets_an_operator_give_more_time(self, on: Call, claimed: Offer, clock: Clock) -> None:
        handoff = claimed()

        held = perform(OPERATOR, "handoff_prolong", {"handoff_id": handoff, "seconds": 3600})

        assert held["lease_expires_at"] == "2026-03-01T13:00:00.000000Z"
        event = Event.objects.get(type="handoff.extended")
        assert (event.actor_agent_id, event.payload["operator"]) == (None, "olga")


@pytest.mark.usefixtures("every_act_renews")
class TestRenewal:
    def test_it_outlasts_its_lease_while_its_holder_is_heard_of(
        self, on: Call, call: Call, claimed: Offer, clock: Clock, workspace: str
    ) -> None:
        session = call("session_open", agent_id="bob", workspace_id=workspace)["session_id"]
        handoff = claimed(lease_seconds=60)
        for _ in range(5):
            clock.shift(40)
            call("session_heartbeat", session_id=session)

        assert on("handoff_get", handoff, "ana")["lease_expires_at"] == "2026-03-01T12:04:20.000000Z"
        assert events_of(handoff) == ["handoff.created", "handoff.claimed"]

        clock.shift(timedelta(seconds=60) + INSTANT)
        call("session_heartbeat", session_id=session)
        assert on("handoff_get", handoff, "ana")["status"] == "OPEN"


class TestDeadline:
    def test_it_expires_when_nobody_has_it_by_then(
        self, on: Call, call: Call, denied: Call, offer: Offer, clock: Clock, project: str
    ) -> None:
        handoff = offer(deadline_seconds=60)
        clock.shift(60)
        assert on("handoff_get", handoff, "ana")["status"] == "OPEN"
        clock.shift(INSTANT)

        assert call("handoff_list_available", project_root=project, agent_id="bob")["handoffs"] == []
        refusal = denied("handoff_claim", handoff, "bob")
        assert refusal["code"] == "INVALID_TRANSITION" and "deadline" in refusal["message"]
        assert on("handoff_get", handoff, "ana")["status"] == "EXPIRED"
        assert events_of(handoff) == ["handoff.created", "handoff.timed_out"]
        assert "expired" in mail_of(call, "ana")[0]["subject"]
        assert denied("handoff_cancel", handoff, "ana")["code"] == "INVALID_TRANSITION"


class TestVerification:
    @pytest.fixture
    def submitted(self, on: Call, claimed: Offer) -> Callable[..., str]:
        """What bob did for ana, not looked at yet."""

        def submitted(verifier: Any = "creator", **changes: Any) -> str:
            handoff = claimed(verifier=verifier, **changes)
            done = on("handoff_complete", handoff, "bob", result="42")
            assert done["status"] == "SUBMITTED"
            return handoff

        return submitted

    def test_it_counts_once_its_verifier_says_so(self, on: Call, call: Call, submitted: Offer, denied: Call) -> None:
        handoff = submitted({"agent_id": "cleo"})
        (asked,) = mail_of(call, "cleo")
        assert "42" in asked["body"] and "handoff_accept" in asked["body"]
        assert mail_of(call, "ana") == [], "nothing counts yet"

        done = on("handoff_accept", handoff, "cleo")

        assert (done["status"], sorted(done["notified"])) == ("COMPLETED", ["ana", "bob"])
        shown = on("handoff_get", handoff, "ana")
        assert (shown["status"], shown["result"], shown["claimed_by"]) == ("COMPLETED", "42", "bob")
        assert shown["verifier"] == {"agent_id": "cleo"}
        assert events_of(handoff)[2:] == ["handoff.submitted", "handoff.accepted", "handoff.completed"]
        assert denied("handoff_return", handoff, "cleo", reasons="no")["code"] == "INVALID_TRANSITION"

    def test_it_asks_the_first_of_a_role_and_reads_the_profiles_of_no_others(
        self, call: Call, submitted: Offer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(25):
            call("agent_register", agent_id=f"judge-{24 - number}", role="judge")
        monkeypatch.setattr(selectors, "profiles", Mock(side_effect=AssertionError))

        submitted({"role": "judge"})

        asked = [f"judge-{24 - number}" for number in range(25) if mail_of(call, f"judge-{24 - number}")]
        assert asked == [f"judge-{24 - number}" for number in range(20)]

    def test_it_returns_to_who_did_it_with_reasons_and_a_fresh_lease(
        self, on: Call, call: Call, submitted: Offer, clock: Clock
    ) -> None:
        handoff = submitted(lease_seconds=60)
        clock.shift(600)

        assert on("handoff_return", handoff, "ana", reasons="no tests")["notified"] == ["bob"]

        shown = on("handoff_get", handoff, "bob")
        assert (shown["status"], shown["claimed_by"], shown["result"]) == ("CLAIMED", "bob", None)
        assert shown["lease_expires_at"] == "2026-03-01T12:11:00.000000Z"
        assert [(each["agent_id"], each["kind"], each["text"]) for each in shown["remarks"]] == [
            ("bob", "result", "42"),
            ("ana", "returned", "no tests"),
        ]
        assert "no tests" in mail_of(call, "bob")[0]["body"]
        assert on("handoff_complete", handoff, "bob", result="43")["status"] == "SUBMITTED"
        on("handoff_accept", handoff, "ana")
        assert on("handoff_get", handoff, "ana")["result"] == "43"

    @pytest.mark.parametrize(
        ("verifier", "who"),
        [("creator", "ana"), ({"agent_id": "cleo"}, "cleo"), ({"role": "coder"}, "cleo"), ("operator", None)],
    )
    def test_it_takes_the_word_of_no_other(
        self, on: Call, denied: Call, submitted: Offer, verifier: Any, who: str | None
    ) -> None:
        handoff = submitted(verifier)

        for agent in {"ana", "bob", "cleo", "operator"} - {who}:
            assert denied("handoff_accept", handoff, agent)["code"] == "NOT_OWNER"
            assert denied("handoff_return", handoff, agent, reasons="no")["code"] == "NOT_OWNER"
        if who:
            on("handoff_accept", handoff, who)

    @pytest.mark.parametrize("verifier", ["creator", {"agent_id": "bob"}, {"role": "reviewer"}])
    def test_it_lets_nobody_accept_its_own_work_but_an_operator_may(
        self, on: Call, denied: Call, submitted: Offer, verifier: Any
    ) -> None:
        handoff = submitted(verifier, from_agent_id="bob", target=TO_BOB)
        assert denied("handoff_accept", handoff, "bob")["code"] == "NOT_OWNER"

        done = perform(OPERATOR, "handoff_approve", {"handoff_id": handoff})

        assert (done["status"], done["notified"]) == ("COMPLETED", ["bob"])
        assert Event.objects.get(type="handoff.accepted").payload["operator"] == "olga"

    def test_it_lets_an_operator_return_what_another_verifies(self, on: Call, submitted: Offer) -> None:
        handoff = submitted({"agent_id": "cleo"})

        done = perform(OPERATOR, "handoff_send_back", {"handoff_id": handoff, "reasons": "no tests"})

        assert (done["status"], done["notified"]) == ("CLAIMED", ["bob"])
        event = Event.objects.get(type="handoff.returned")
        assert (event.actor_agent_id, event.payload["operator"]) == (None, "olga")

    @pytest.mark.parametrize(
        "verifier",
        ["", "ana", 7, [], {}, {"agent_id": ""}, {"agent_id": 7}, {"agent": "ana"}, {"agent_id": "a", "role": "b"}],
    )
    def test_it_refuses_a_verifier_that_is_none(self, refused: Call, team: None, project: str, verifier: Any) -> None:
        offer = {"project_root": project, "from_agent_id": "ana", "target": TO_BOB, "visibility": "public"}

        assert refused("handoff_create", **offer, verifier=verifier)["details"]["field"] == "verifier"
        assert refused("handoff_create", **offer, verifier={"agent_id": "ghost"})["code"] == "NOT_FOUND"


class TestLateResults:
    def test_it_says_what_happened_and_keeps_the_result_as_a_remark(
        self, on: Call, denied: Call, claimed: Offer, clock: Clock
    ) -> None:
        handoff = claimed()
        clock.shift(timedelta(seconds=300) + INSTANT)
        on("handoff_claim", handoff, "cleo")

        errors = [denied("handoff_complete", handoff, "bob", result="42") for _ in range(2)]

        assert [error["code"] for error in errors] == ["NOT_OWNER"] * 2
        for said in ("2026-03-01T12:05:00.000000Z", "cleo has it now"):
            assert said in errors[0]["message"]
        assert [error["details"]["kept"] for error in errors] == [True, True]
        (remark,) = on("handoff_get", handoff, "ana")["remarks"]
        assert (remark["agent_id"], remark["kind"], remark["text"]) == ("bob", "late_result", "42")
        assert events_of(handoff)[-1] == "handoff.remarked"

    def test_it_keeps_what_an_operator_brings_for_an_agent_too(
        self, on: Call, claimed: Offer, clock: Clock, project: str
    ) -> None:
        handoff = claimed()
        clock.shift(timedelta(seconds=300) + INSTANT)
        on("handoff_claim", handoff, "cleo")

        late = {"project_root": project, "handoff_id": handoff, "agent_id": "bob", "result": "42"}
        error = run(OPERATOR, "handoff_complete", late)["error"]

        assert (error["code"], error["details"]["kept"]) == ("NOT_OWNER", True)
        assert [remark["text"] for remark in on("handoff_get", handoff, "ana")["remarks"]] == ["42"]
        assert not Event.objects.filter(type="operator.acted").exists()

    def test_it_tells_the_way_back_to_what_nobody_took(
        self, on: Call, denied: Call, claimed: Offer, clock: Clock
    ) -> None:
        handoff = claimed()
        clock.shift(timedelta(seconds=300) + INSTANT)
        on("handoff_get", handoff, "ana")

        error = denied("handoff_complete", handoff, "bob", result="42")

        assert (error["code"], error["details"]["status"]) == ("INVALID_TRANSITION", "OPEN")
        assert "handoff_claim it again" in error["message"]
        on("handoff_claim", handoff, "bob")
        assert on("handoff_complete", handoff, "bob", result="42")["status"] == "COMPLETED"

    def test_it_keeps_no_more_than_a_few(self, on: Call, denied: Call, claimed: Offer, clock: Clock) -> None:
        handoff = claimed()
        clock.shift(timedelta(seconds=300) + INSTANT)
        on("handoff_claim", handoff, "cleo")

        errors = [denied("handoff_complete", handoff, "bob", result=f"{n}") for n in range(11)]

        assert [error["details"]["kept"] for error in errors] == [True] * 10 + [False]
        assert len(on("handoff_get", handoff, "ana")["remarks"]) == 10
