"""What operators do about handoffs that are stuck: release, reassign, offer again, and back."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import partial

import pytest

from coordination.models import Event
from coordination.toolset import run
from handoffs.models import Handoff
from nexus.core.clock import now
from nexus.core.operations.caller import Caller
from tests.conftest import Call, at_once, does
from tests.handoffs.conftest import PYTHON, TO_BOB, Clock, Offer, events_of, mail_of
from tests.nexus_site.test_cli import nexus


@pytest.fixture
def held(clock: Clock, call: Call, offer: Offer, project: str) -> str:
    """What bob holds."""
    handoff_id = offer(title="Fix the login")
    call("handoff_claim", project_root=project, handoff_id=handoff_id, agent_id="bob")
    return handoff_id


# Release


def test_it_takes_a_handoff_from_its_holder_who_is_told(held: str, call: Call, project: str) -> None:
    released = does("handoff_release", handoff_id=held, reason="You seem stuck")["data"]
    assert (released["status"], released["claimed_by"], released["lease_expires_at"]) == ("OPEN", None, None)
    event = Event.objects.get(type="handoff.released")
    assert (event.payload["claimed_by"], event.payload["operator"]) == ("bob", "olga")
    [told] = mail_of(call, "bob")
    assert told["subject"] == "“Fix the login” was taken back from you" and "You seem stuck" in told["body"]
    claimed = call("handoff_claim", project_root=project, handoff_id=held, agent_id="cleo")
    assert claimed["claimed_by"] == "cleo"


def test_it_keeps_what_its_former_holder_brings_too_late(held: str, refused: Call, project: str) -> None:
    does("handoff_release", handoff_id=held)
    late = refused("handoff_complete", project_root=project, handoff_id=held, agent_id="bob", result="all of it")
    assert late["code"] == "INVALID_TRANSITION" and late["details"]["kept"] is True


# Reassign


def test_it_makes_a_held_handoff_one_for_another_agent(held: str, call: Call, refused: Call, project: str) -> None:
    reassigned = does("handoff_reassign", handoff_id=held, agent_id="cleo")["data"]
    assert (reassigned["status"], reassigned["target"]["agent_id"]) == ("OPEN", "cleo")
    assert "was given to cleo" in mail_of(call, "bob")[0]["subject"]
    assert held in mail_of(call, "cleo")[0]["body"]
    of = {"project_root": project, "handoff_id": held}
    assert refused("handoff_claim", **of, agent_id="bob")["code"] == "NOT_ELIGIBLE_TO_CLAIM"
    assert call("handoff_claim", **of, agent_id="cleo")["status"] == "CLAIMED"


def test_it_reassigns_what_nobody_may_take_and_what_lapsed(
    clock: Clock, offer: Offer, held: str, call: Call, project: str
) -> None:
    clock.shift(301)
    for handoff_id in (offer(target={"strategy": "role", "role": "pilot"}), held):
        assert does("handoff_reassign", handoff_id=handoff_id, agent_id="cleo")["data"]["status"] == "OPEN"
        call("handoff_claim", project_root=project, handoff_id=handoff_id, agent_id="cleo")
    assert events_of(held) == ["handoff.created", "handoff.claimed", "handoff.expired", "handoff.reassigned",
                               "handoff.claimed"]  # fmt: skip


@pytest.mark.parametrize("verb", ["handoff_release", "handoff_reassign"])
def test_it_opens_again_what_was_held_at_its_deadline(
    verb: str, clock: Clock, offer: Offer, call: Call, project: str
) -> None:
    handoff_id = offer(deadline_seconds=60)
    of = {"project_root": project, "handoff_id": handoff_id, "agent_id": "bob"}
    call("handoff_claim", **of)
    clock.shift(61)
    does(verb, handoff_id=handoff_id, **({"agent_id": "bob"} if verb == "handoff_reassign" else {}))
    assert call("handoff_claim", **of)["status"] == "CLAIMED"


def test_it_gives_another_agent_all_of_the_time(clock: Clock, offer: Offer, call: Call, project: str) -> None:
    handoff_id = offer(deadline_seconds=60)
    for agent_id in ("bob", "cleo"):
        clock.shift(50)
        does("handoff_reassign", handoff_id=handoff_id, agent_id=agent_id)
        assert Handoff.objects.get(pk=handoff_id).deadline_at == now() + timedelta(seconds=60)


def test_it_reassigns_to_nobody_who_is_unknown(held: str) -> None:
    assert does("handoff_reassign", handoff_id=held, agent_id="nobody")["error"]["code"] == "NOT_FOUND"
    assert Handoff.objects.get(pk=held).claimed_by == "bob"


# Offer again


@pytest.mark.parametrize("ending", ["rejected", "cancelled", "timed out"])
def test_it_offers_the_same_work_again_and_links_both(
    clock: Clock, offer: Offer, call: Call, project: str, ending: str
) -> None:
    deadline = {"deadline_seconds": 60} if ending == "timed out" else {}
    handoff_id = offer(target=TO_BOB, payload="the work", title="Fix it", **deadline)
    of = {"project_root": project, "handoff_id": handoff_id}
    match ending:
        case "rejected":
            call("handoff_reject", **of, agent_id="bob")
        case "cancelled":
            call("handoff_cancel", **of, agent_id="ana")
        case "timed out":
            clock.shift(timedelta(minutes=2))
    again = does("handoff_reoffer", handoff_id=handoff_id)["data"]
    assert (again["status"], again["title"], again["payload"]) == ("OPEN", "Fix it", "the work")
    assert (again["target"], again["from_agent_id"]) == (TO_BOB, "ana")
    old, new = (Event.objects.filter(handoff_id=each).latest("event_id") for each in (handoff_id, again["handoff_id"]))
    assert (old.type, old.payload["as"]) == ("handoff.reoffered", again["handoff_id"])
    assert (new.type, new.payload["of"]) == ("handoff.created", handoff_id)
    twice = does("handoff_reoffer", handoff_id=handoff_id)["error"]
    assert (twice["code"], twice["details"]["as"]) == ("INVALID_TRANSITION", again["handoff_id"])
    assert twice["message"] == "“Fix it” was offered again already to bob, and is open."
    call("handoff_claim", project_root=project, handoff_id=again["handoff_id"], agent_id="bob")
    twice = does("handoff_reoffer", handoff_id=handoff_id)["error"]
    assert twice["message"] == "“Fix it” was offered again already to bob, and is claimed, with bob."


def test_it_offers_work_again_to_another_agent(clock: Clock, offer: Offer, call: Call, project: str) -> None:
    handoff_id = offer(target=TO_BOB)
    call("handoff_reject", project_root=project, handoff_id=handoff_id, agent_id="bob")
    again = does("handoff_reoffer", handoff_id=handoff_id, agent_id="cleo")["data"]
    assert again["target"] == {"strategy": "direct", "agent_id": "cleo"}
    assert again["handoff_id"] in mail_of(call, "cleo")[0]["body"]


# All of them


@pytest.mark.parametrize("verb", ["release", "reassign", "reoffer"])
def test_it_is_for_operators_and_refuses_what_is_over(
    held: str, refused: Call, call: Call, project: str, verb: str
) -> None:
    more = {"agent_id": "cleo"} if verb == "reassign" else {}
    assert refused(f"handoff_{verb}", handoff_id=held, **more)["code"] == "NOT_OWNER"
    assert does(f"handoff_{verb}", handoff_id="hnd_x", **more)["error"]["code"] == "NOT_FOUND"
    call("handoff_complete", project_root=project, handoff_id=held, agent_id="bob", result="r")
    assert does(f"handoff_{verb}", handoff_id=held, **more)["error"]["code"] == "INVALID_TRANSITION"


def test_it_lets_one_of_many_who_act_at_once_win(
    committed: None, clock: Clock, offer: Offer, call: Call, project: str
) -> None:
    for _ in range(3):
        handoff_id = offer(target=PYTHON)
        of = {"project_root": project, "handoff_id": handoff_id, "agent_id": "bob"}
        call("handoff_claim", **of)
        release = partial(does, "handoff_release", handoff_id=handoff_id)
        complete = partial(run, Caller(transport="test"), "handoff_complete", of)
        answers = at_once([release, complete, release, release])
        assert Counter(answer["ok"] for answer in answers) == {True: 1, False: 3}
        status = Handoff.objects.get(pk=handoff_id).status
        assert status == ("COMPLETED" if answers[1]["ok"] else "OPEN")


def test_it_offers_work_again_once_of_many_who_do_at_once(
    committed: None, clock: Clock, offer: Offer, call: Call, project: str
) -> None:
    handoff_id = offer()
    call("handoff_cancel", project_root=project, handoff_id=handoff_id, agent_id="ana")
    answers = at_once([partial(does, "handoff_reoffer", handoff_id=handoff_id)] * 5)
    assert Counter(answer["ok"] for answer in answers) == {True: 1, False: 4}
    assert Handoff.objects.count() == 2


def test_its_commands_tell_of_each_handoff_what_became_of_it(held: str, offer: Offer) -> None:
    assert nexus("handoffs", "extend", held, "--seconds", "900").code == 0
    ran = nexus("handoffs", "release", held, "hnd_x", "--reason", "stuck", "--json")
    assert (ran.code, [row["handoff_id"] for row in ran.json["done"]]) == (1, [held])
    assert [error["code"] for error in ran.json["refused"]] == ["NOT_FOUND"]
    assert nexus("handoffs", "reassign", held, "--to", "cleo").code == 0
    assert "INVALID_TRANSITION" in nexus("handoffs", "accept", held).err
    assert "INVALID_TRANSITION" in nexus("handoffs", "return", held, "--reasons", "no tests").err
    assert nexus("handoffs", "cancel", held).code == 0
    assert nexus("handoffs", "reoffer", held, "--to", "bob").code == 0
