"""Reservations and claims that a former session of an agent names: it gives up nothing that its successor holds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import time_machine

from tests.conftest import Call
from tests.reservations.conftest import Project

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def epoch(shop: Project, path: str) -> int:
    taken: int = shop.call("reserve", agent_id="ann", paths=[path], seconds=60)["reservations"][0]["claim_epoch"]
    return taken


@pytest.mark.parametrize("verb", ["release", "extend"])
def test_a_former_session_touches_nothing_that_was_reserved_since(shop: Project, verb: str) -> None:
    with time_machine.travel(NOON, tick=False) as clock:
        former = epoch(shop, "a.py")
        clock.shift(timedelta(seconds=61))
        other, latest = epoch(shop, "b.py"), epoch(shop, "a.py")
        assert former < other < latest
        assert epoch(shop, "a.py") == latest, "what is renewed is the same reservation"
        before = shop.call("who", path="**")["held"]
        error = shop.refused(verb, agent_id="ann", paths=["a.py"], claim_epoch=former)
        assert (error["code"], error["details"]["claim_epoch"]) == ("STALE_CLAIM", latest)
        changed = f"{verb}ed" if verb == "extend" else f"{verb}d"
        assert shop.call(verb, agent_id="ann", claim_epoch=former)[changed] == []
        assert shop.call("who", path="**")["held"] == before
        assert [row["pattern"] for row in shop.call(verb, agent_id="ann", claim_epoch=other)[changed]] == ["/b.py"]
        assert shop.call(verb, agent_id="ann", paths=["a.py"], claim_epoch=latest)[changed]


def test_a_former_claim_on_a_handoff_reserves_nothing(shop: Project, call: Call) -> None:
    call("agent_register", agent_id="ann")
    at = {"project_root": str(shop.root)}
    target = {"strategy": "direct", "agent_id": "ann"}
    handoff = call("handoff_create", **at, from_agent_id="ann", target=target, visibility="public")["handoff_id"]
    with time_machine.travel(datetime.now(UTC), tick=False) as clock:
        claim = {**at, "agent_id": "ann", "handoff_id": handoff, "lease_seconds": 60}
        former = call("handoff_claim", **claim)["claim_epoch"]
        clock.shift(timedelta(seconds=61))
        latest = call("handoff_claim", **claim)["claim_epoch"]
        wish = {"agent_id": "ann", "paths": ["a.py"], "handoff_id": handoff}
        assert shop.refused("reserve", **wish, claim_epoch=former)["code"] == "STALE_CLAIM"
        assert shop.held() == []
        assert shop.call("reserve", **wish, claim_epoch=latest)["reservations"]
    alone = shop.refused("reserve", agent_id="ann", paths=["b.py"], claim_epoch=1)
    assert (alone["code"], alone["details"]["field"]) == ("VALIDATION_ERROR", "claim_epoch")
