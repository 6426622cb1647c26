"""The log of handoffs as spans of time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordination.log.selectors import first_event_at
from coordination.models import Event, RetentionPass
from handoffs import timeline as handoffs_timeline
from handoffs.spans import BEGINS, Doing, HandoffEvent, Span, spans
from handoffs.timeline import course, spans_of
from nexus.core.apps import event_types
from nexus.core.clock import now
from nexus.dashboard.views.timeline import ENDS
from tests.conftest import Call
from tests.handoffs.conftest import Clock, Offer

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TYPES = [*BEGINS, "handoff.extended"]


def steps_of(types: list[str], handoff_id: str = "h") -> list[HandoffEvent]:
    return [HandoffEvent(handoff_id, type, "bob", NOON + i * MINUTE, i + 1) for i, type in enumerate(types)]


def told(found: list[Span]) -> list[tuple[str, str | None]]:
    return [(span.doing.value, span.agent_id) for span in found]


@given(st.lists(st.sampled_from(TYPES), max_size=12))
def test_it_makes_spans_that_follow_each_other_without_overlap(types: list[str]) -> None:
    found = spans(steps_of(types))
    for before, after in pairwise(found):
        assert before.end is not None and after.start is not None and before.end <= after.start
    assert all(span.start is None or span.end is None or span.start <= span.end for span in found)
    assert sum(span.end is None for span in found) <= 1


@given(st.lists(st.sampled_from(TYPES), max_size=8), st.lists(st.sampled_from(TYPES), max_size=8))
def test_it_keeps_handoffs_apart_however_their_steps_are_mixed(one: list[str], other: list[str]) -> None:
    mixed = sorted([*steps_of(one, "one"), *steps_of(other, "other")], key=lambda step: step.at)
    for name, types in (("one", one), ("other", other)):
        assert [span for span in spans(mixed) if span.handoff_id == name] == spans(steps_of(types, name))


def test_it_tells_the_whole_life_of_a_handoff() -> None:
    life = ["created", "claimed", "started", "blocked", "extended", "started", "submitted", "accepted", "completed"]
    found = spans(steps_of([f"handoff.{step}" for step in life]))
    assert told(found) == [
        ("waiting", None), ("claimed", "bob"), ("working", "bob"), ("blocked", "bob"), ("working", "bob"),
        ("checking", None),
    ]  # fmt: skip
    assert found[-1].end is not None and found[-1].ended_by == "handoff.accepted"


def test_it_tells_a_deadline_from_a_lease_that_ran_out() -> None:
    assert told(spans(steps_of(["handoff.created", "handoff.timed_out"]))) == [("waiting", None)]
    lapsed = spans(steps_of(["handoff.created", "handoff.claimed", "handoff.expired"]))
    assert told(lapsed) == [("waiting", None), ("claimed", "bob"), ("waiting", None)]


def test_it_gives_what_is_returned_to_who_did_it() -> None:
    steps = steps_of(["handoff.created", "handoff.claimed", "handoff.submitted"])
    found = spans([*steps, HandoffEvent("h", "handoff.returned", "eve", NOON + 9 * MINUTE, 9)])
    assert told(found)[-2:] == [("checking", None), ("claimed", "bob")]


def test_it_gives_back_what_an_operator_released_by_mistake() -> None:
    life = ["created", "claimed", "released", "restored", "reassigned", "claimed"]
    assert told(spans(steps_of([f"handoff.{step}" for step in life]))) == [
        ("waiting", None), ("claimed", "bob"), ("waiting", None), ("claimed", "bob"), ("waiting", None),
        ("claimed", "bob"),
    ]  # fmt: skip


def test_it_knows_what_every_step_of_a_handoff_begins() -> None:
    """A type that is added to the log and changes who has a handoff must be added to the spans."""
    silent = {
        "handoff.checked",
        "handoff.extended",
        "handoff.remarked",
        "handoff.reoffered",
        "handoff.unblocked",
    }  # the state stays what it was
    assert set(BEGINS) == {type for type in event_types() if type.startswith("handoff.")} - silent
    assert set(ENDS) == set(BEGINS) - {"handoff.created"}


def test_it_ends_a_claim_when_its_lease_ran_out_and_not_when_that_was_recorded(
    call: Call, project: str, offer: Offer, clock: Clock
) -> None:
    handoff = offer()
    call("handoff_claim", project_root=project, handoff_id=handoff, agent_id="bob")
    clock.move_to(NOON + 60 * MINUTE)
    call("handoff_claim", project_root=project, handoff_id=handoff, agent_id="bob")
    assert [(span.doing, span.start, span.end) for span in spans_of(handoff)] == [
        (Doing.WAITING, NOON, NOON),
        (Doing.CLAIMED, NOON, NOON + 5 * MINUTE),
        (Doing.WAITING, NOON + 5 * MINUTE, NOON + 60 * MINUTE),
        (Doing.CLAIMED, NOON + 60 * MINUTE, None),
    ]


def test_it_says_before_where_the_beginning_is_gone() -> None:
    (claim,) = spans(steps_of(["handoff.completed"]))
    assert (claim.doing, claim.agent_id, claim.start, claim.end) == (Doing.CLAIMED, "bob", None, NOON)


def test_it_ends_a_claim_with_its_lease_before_anybody_recorded_that(
    call: Call, project: str, offer: Offer, clock: Clock
) -> None:
    handoff = offer()
    clock.move_to(NOON + MINUTE)
    call("handoff_claim", project_root=project, handoff_id=handoff, agent_id="bob")
    clock.move_to(NOON + 20 * MINUTE)
    found = spans_of(handoff)
    assert [(span.doing, span.start, span.end) for span in found] == [
        (Doing.WAITING, NOON, NOON + MINUTE),
        (Doing.CLAIMED, NOON + MINUTE, NOON + 6 * MINUTE),
        (Doing.WAITING, NOON + 6 * MINUTE, None),
    ]


def test_it_shows_what_touches_a_window_whole(call: Call, project: str, offer: Offer, clock: Clock) -> None:
    over, long, gone_on = offer(), offer(), offer()
    clock.move_to(NOON + MINUTE)
    for handoff in (over, long, gone_on):
        call("handoff_claim", project_root=project, handoff_id=handoff, agent_id="bob")
    clock.move_to(NOON + 2 * MINUTE)
    call("handoff_complete", project_root=project, handoff_id=over, agent_id="bob", result="")
    clock.move_to(NOON + 4 * MINUTE)
    later = offer()
    call("handoff_complete", project_root=project, handoff_id=long, agent_id="bob", result="")

    found = course(NOON + 3 * MINUTE, now() + MINUTE).spans

    seen = {span.handoff_id: (span.doing, span.start, span.end) for span in found}
    assert seen == {
        long: (Doing.CLAIMED, NOON + MINUTE, NOON + 4 * MINUTE),
        gone_on: (Doing.CLAIMED, NOON + MINUTE, None),
        later: (Doing.WAITING, NOON + 4 * MINUTE, None),
    }


def test_it_shows_in_a_window_of_the_past_what_went_on_then(
    call: Call, project: str, offer: Offer, clock: Clock
) -> None:
    handoff = offer()
    call("handoff_claim", project_root=project, handoff_id=handoff, agent_id="bob")
    clock.move_to(NOON + 4 * MINUTE)
    call("handoff_complete", project_root=project, handoff_id=handoff, agent_id="bob", result="")
    (span,) = course(NOON + MINUTE, NOON + 2 * MINUTE).spans
    assert (span.doing, span.agent_id, span.start) == (Doing.CLAIMED, "bob", NOON)


def test_it_shows_the_newest_of_more_steps_than_it_reads(
    call: Call, project: str, offer: Offer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    handoff, over = offer(), offer()
    for minute, name in enumerate(("claim", "start", "complete"), 1):
        clock.move_to(NOON + minute * MINUTE)
        more = {"result": ""} if name == "complete" else {}
        call(f"handoff_{name}", project_root=project, handoff_id=handoff, agent_id="bob", **more)
    call("handoff_cancel", project_root=project, handoff_id=over, agent_id="ana")
    assert course(NOON - MINUTE, now() + MINUTE).cut is None

    monkeypatch.setattr(handoffs_timeline, "STEPS", 3)

    found = course(NOON - MINUTE, now() + MINUTE)
    assert found.cut == NOON + 2 * MINUTE
    assert [(span.handoff_id, span.doing, span.start) for span in found.spans] == [
        (handoff, Doing.WORKING, NOON + 2 * MINUTE), (over, Doing.WAITING, NOON),
    ]  # fmt: skip


def test_it_finds_the_first_event_of_a_time_in_a_log_with_gaps(
    call: Call, team: None, project: str, clock: Clock
) -> None:
    moments = {}
    for minute in range(1, 40):
        clock.move_to(NOON + minute * MINUTE)
        call("artifact_put", project_root=project, artifact_type="text", name="a", content="b")
        moments[Event.objects.latest("event_id").pk] = now()
    doomed = [event_id for event_id in moments if event_id % 3 == 0 or 20 < event_id % 40 < 30]
    gate = RetentionPass.objects.create()
    Event.objects.filter(pk__in=doomed).delete()
    gate.delete()
    left = {event.pk: event.created_at for event in Event.objects.all()}
    for asked in [NOON - MINUTE, NOON, *moments.values(), NOON + 90 * timedelta(seconds=1), now() + MINUTE]:
        assert first_event_at(asked) == min((pk for pk, at in left.items() if at >= asked), default=None)
