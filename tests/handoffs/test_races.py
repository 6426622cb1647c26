"""What happens when many reach for one handoff at the same time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import time_machine
from django.db import transaction

from coordination.toolset import run
from handoffs import leases
from handoffs.models import Handoff
from nexus.core.database.store import commits
from tests.conftest import LOCAL, Call, at_once
from tests.handoffs.conftest import Offer, events_of
from tests.store import held

pytestmark = pytest.mark.usefixtures("committed", "team")

WORKERS = ("bob", "cleo") * 4
ROUNDS = 5  # a race that is lost only sometimes is lost in one of these


@pytest.fixture
def lapsed(call: Call, offer: Offer, project: str) -> Offer:
    """A handoff that bob claimed and whose lease has run out, with nobody having noticed."""

    def lapsed() -> str:
        with time_machine.travel(datetime.now(UTC) - timedelta(hours=1)):
            handoff = offer()
            call("handoff_claim", project_root=project, handoff_id=handoff, agent_id="bob")
        return handoff

    return lapsed


def calls_on(handoff: str, project: str, verb: str, *agents: str) -> list[partial[dict[str, Any]]]:
    more = {} if verb == "handoff_list_available" else {"handoff_id": handoff}
    return [partial(run, LOCAL, verb, {"project_root": project, "agent_id": agent, **more}) for agent in agents]


def codes(envelopes: list[dict[str, Any]]) -> list[str]:
    return sorted("won" if envelope["ok"] else envelope["error"]["code"] for envelope in envelopes)


def test_it_lets_exactly_one_of_many_claimants_win(call: Call, offer: Offer, project: str) -> None:
    for _ in range(ROUNDS):
        handoff = offer()

        claims = at_once(calls_on(handoff, project, "handoff_claim", *WORKERS))

        assert codes(claims) == ["HANDOFF_ALREADY_CLAIMED"] * (len(WORKERS) - 1) + ["won"]
        assert events_of(handoff) == ["handoff.created", "handoff.claimed"]
        (winner,) = (claim["data"]["claimed_by"] for claim in claims if claim["ok"])
        shown = call("handoff_get", project_root=project, handoff_id=handoff, agent_id="ana")
        assert shown["claimed_by"] == winner


def test_it_reopens_a_lapsed_claim_once_however_many_notice(lapsed: Offer, project: str) -> None:
    for _ in range(ROUNDS):
        handoff = lapsed()

        looks = at_once(calls_on(handoff, project, "handoff_list_available", *WORKERS))

        assert codes(looks) == ["won"] * len(WORKERS)
        assert events_of(handoff) == ["handoff.created", "handoff.claimed", "handoff.expired"]


def test_it_lets_one_claimant_win_while_others_reopen(lapsed: Offer, project: str) -> None:
    for _ in range(ROUNDS):
        handoff = lapsed()

        results = at_once(
            calls_on(handoff, project, "handoff_claim", "bob", "cleo", "bob", "cleo")
            + calls_on(handoff, project, "handoff_list_available", "bob", "cleo", "bob", "cleo")
        )

        assert codes(results[:4]) == ["HANDOFF_ALREADY_CLAIMED"] * 3 + ["won"]
        assert events_of(handoff) == ["handoff.created", "handoff.claimed", "handoff.expired", "handoff.claimed"]


def test_it_either_takes_the_late_result_or_reopens(call: Call, lapsed: Offer, project: str) -> None:
    for _ in range(ROUNDS):
        handoff = lapsed()

        (complete, claim, *_) = at_once(
            calls_on(handoff, project, "handoff_complete", "bob")
            + calls_on(handoff, project, "handoff_claim", "cleo")
            + calls_on(handoff, project, "handoff_list_available", "bob", "cleo", "ana")
        )

        steps, shown = (
            events_of(handoff)[2:],
            call("handoff_get", project_root=project, handoff_id=handoff, agent_id="ana"),
        )
        if complete["ok"]:
            assert codes([claim]) == ["HANDOFF_ALREADY_CLAIMED"]
            assert (steps, shown["status"], shown["claimed_by"]) == (["handoff.completed"], "COMPLETED", "bob")
        else:
            assert complete["error"]["code"] in ("INVALID_TRANSITION", "NOT_OWNER")
            assert codes([claim]) == ["won"]
            assert [step for step in steps if step != "handoff.remarked"] == ["handoff.expired", "handoff.claimed"]
            (remark,) = shown["remarks"]
            assert (remark["agent_id"], remark["kind"]) == ("bob", "late_result")
            assert (shown["status"], shown["claimed_by"]) == ("CLAIMED", "cleo")


def test_it_ends_a_handoff_one_way_only(offer: Offer, call: Call, project: str) -> None:
    for _ in range(ROUNDS):
        handoff = offer()
        call("handoff_claim", project_root=project, handoff_id=handoff, agent_id="bob")

        ends = at_once(
            calls_on(handoff, project, "handoff_complete", "bob", "bob")
            + calls_on(handoff, project, "handoff_reject", "bob", "bob")
        )

        assert codes(ends) == ["INVALID_TRANSITION"] * 3 + ["won"]
        assert len(events_of(handoff)) == 3


def test_it_reads_a_lapsed_claim_as_open_while_a_writer_holds_the_store(
    call: Call, lapsed: Offer, project: str
) -> None:
    handoff = lapsed()
    with held():
        got = call("handoff_get", project_root=project, handoff_id=handoff, agent_id="cleo")
    assert (got["status"], got["claimed_by"], got["lease_expires_at"]) == ("OPEN", None, None)
    assert events_of(handoff)[-1] == "handoff.claimed", "whoever writes next records it"


def verdict(handoff: str, project: str, verb: str, agent: str) -> partial[dict[str, Any]]:
    more = {"reasons": "no tests"} if verb == "handoff_return" else {}
    arguments = {"project_root": project, "handoff_id": handoff, "agent_id": agent, **more}
    return partial(run, LOCAL, verb, arguments)


def test_it_hears_one_verdict_only(offer: Offer, call: Call, project: str) -> None:
    for _ in range(ROUNDS):
        handoff = offer(verifier={"role": "coder"})
        for verb in ("handoff_claim", "handoff_complete"):
            call(verb, project_root=project, handoff_id=handoff, agent_id="bob")

        verbs = ["handoff_accept", "handoff_return"] * 2
        said = at_once([verdict(handoff, project, verb, "cleo") for verb in verbs])

        assert codes(said) == ["INVALID_TRANSITION"] * 3 + ["won"]
        shown = call("handoff_get", project_root=project, handoff_id=handoff, agent_id="ana")
        (accepted,) = (verb == "handoff_accept" for verb, envelope in zip(verbs, said, strict=True) if envelope["ok"])
        end = ["handoff.accepted", "handoff.completed"] if accepted else ["handoff.returned"]
        assert events_of(handoff)[3:] == end
        assert (shown["status"], len(shown["remarks"])) == (("COMPLETED", 0) if accepted else ("CLAIMED", 2))


def test_it_either_holds_on_or_opens_when_a_lease_is_renewed_as_it_lapses(
    offer: Offer, call: Call, project: str
) -> None:
    """A step of its holder never revives a claim that another saw lapse."""
    for verb in ("handoff_start", "handoff_block", "handoff_extend"):
        handoff = offer()
        with time_machine.travel(datetime.now(UTC) - timedelta(hours=1)):
            call("handoff_claim", project_root=project, handoff_id=handoff, agent_id="bob")
        more = {"reason": "stuck"} if verb == "handoff_block" else {}
        act = partial(run, LOCAL, verb, {"project_root": project, "handoff_id": handoff, "agent_id": "bob", **more})

        (acted, *_) = at_once([act, *calls_on(handoff, project, "handoff_list_available", *WORKERS)])

        assert codes([acted]) == ["INVALID_TRANSITION"]
        assert events_of(handoff) == ["handoff.created", "handoff.claimed", "handoff.expired"]


def test_it_does_not_reopen_a_claim_that_was_renewed_since_it_was_seen_to_lapse(
    call: Call, offer: Offer, project: str
) -> None:
    handoff = offer()
    call("handoff_claim", project_root=project, handoff_id=handoff, agent_id="bob")
    seen = Handoff.objects.get(pk=handoff)
    moment = datetime.now(UTC)
    seen.lease_expires_at = moment - timedelta(seconds=1)  # as it was before the renewal

    with transaction.atomic():
        leases._reopen(seen, moment)

    assert call("handoff_get", project_root=project, handoff_id=handoff, agent_id="ana")["claimed_by"] == "bob"


def test_it_renews_no_lease_that_changed_since_it_was_read(
    call: Call, offer: Offer, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process extended it between the look and the renewal: the longer lease stands."""
    handoff = offer()
    call("handoff_claim", project_root=project, handoff_id=handoff, agent_id="bob")
    until = Handoff.objects.get(pk=handoff).lease_expires_at
    call("handoff_extend", project_root=project, handoff_id=handoff, agent_id="bob", seconds=3600)
    monkeypatch.setattr("handoffs.sql.running", lambda **_: [(handoff, 300, until)])
    assert until is not None

    leases.renew("bob", until - timedelta(seconds=1))

    assert Handoff.objects.filter(pk=handoff, lease_expires_at__gt=until + timedelta(seconds=3000)).exists()


def test_it_gives_a_handoff_at_its_deadline_to_one_or_to_nobody(offer: Offer, call: Call, project: str) -> None:
    for _ in range(ROUNDS):
        with time_machine.travel(datetime.now(UTC) - timedelta(hours=1)):
            handoff = offer(deadline_seconds=60)

        claims = at_once(calls_on(handoff, project, "handoff_claim", *WORKERS))

        assert codes(claims) == ["INVALID_TRANSITION"] * len(WORKERS)
        assert events_of(handoff) == ["handoff.created", "handoff.timed_out"]


def test_it_lets_others_write_while_it_records_what_became_of_many(
    offer: Offer, call: Call, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "AT_ONCE", 2)
    with time_machine.travel(datetime.now(UTC) - timedelta(hours=1)):
        handoffs = [offer(deadline_seconds=60) for _ in range(5)]
    before = commits()

    assert call("handoff_list_available", project_root=project, agent_id="bob")["handoffs"] == []
    assert commits() - before == 1, "a look does not pay for all of them"
    leases.expire_everywhere()

    assert commits() - before == 3
    assert [events_of(handoff)[1:] for handoff in handoffs] == [["handoff.timed_out"]] * 5
