"""Figures: histograms of what any process wrote."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from coordination.metrics import Histograms
from coordination.toolset import run
from inbox.models import Delivery
from nexus.core.clock import now
from nexus.core.operations.caller import Caller
from tests.conftest import Call
from tests.handoffs.conftest import Clock, Offer

MINUTE = timedelta(minutes=1)
Work = Callable[[], None]
Write = Callable[[str], str]
Told = Callable[[str], dict[str, tuple[int, float]]]


@pytest.fixture
def told(db: None, clock: Clock) -> Told:
    """By kind, the number and the sum of the samples of a figure since the test began."""
    histograms = Histograms()
    histograms.look(now())

    def found(name: str) -> dict[str, tuple[int, float]]:
        (histogram,) = [found for found in histograms.look(now()) if found.figure.name == name]
        return {kind: (counts.total(), histogram.sums[kind]) for kind, counts in histogram.counted.items()}

    return found


@pytest.fixture
def work(call: Call, offer: Offer, project: str, clock: Clock) -> Work:
    """Bob claims a handoff a minute after its creation, lets it lapse, claims it again, and is done after an hour."""

    def work() -> None:
        acts = {"project_root": project, "handoff_id": offer(), "agent_id": "bob"}
        clock.shift(MINUTE)
        call("handoff_claim", **acts)
        clock.shift(57 * MINUTE)
        call("handoff_claim", **acts)
        clock.shift(2 * MINUTE)
        call("handoff_complete", **acts, result="")
        clock.shift(MINUTE)  # a window ends before its last moment

    return work


@pytest.fixture
def write(call: Call, team: None, project: str) -> Write:
    """Write to an agent; the id of the message."""

    def write(agent_id: str) -> str:
        letter = {"from_agent_id": "ana", "subject": "a", "body": "b"}
        target = {"strategy": "direct", "agent_id": agent_id}
        return str(call("message_create", project_root=project, target=target, **letter)["message_id"])

    return write


def test_it_measures_a_handoff_from_its_creation_to_its_first_claim_and_its_end(told: Told, work: Work) -> None:
    work()
    assert told("handoff_claim_seconds") == {"capability": (1, 60)}
    assert told("handoff_done_seconds") == {"capability": (1, 3600)}


def test_it_counts_as_done_what_was_accepted(
    told: Told, call: Call, team: None, project: str, offer: Offer, clock: Clock
) -> None:
    acts = {"project_root": project, "handoff_id": offer(verifier="creator")}
    clock.shift(MINUTE)
    call("handoff_claim", **acts, agent_id="bob")
    call("handoff_complete", **acts, agent_id="bob", result="")
    clock.shift(MINUTE)
    call("handoff_accept", **acts, agent_id="ana")
    clock.shift(MINUTE)
    assert told("handoff_done_seconds") == {"capability": (1, 120)}


def test_it_tells_what_a_naive_look_at_the_log_tells(
    told: Told, call: Call, team: None, project: str, offer: Offer, clock: Clock
) -> None:
    chance = random.Random(7)
    created: dict[str, datetime] = {}
    claimed: dict[str, timedelta] = {}
    done: dict[str, timedelta] = {}
    for _ in range(30):
        what = chance.choice(["offer", "claim", "claim", "complete"])
        clock.shift(timedelta(milliseconds=chance.randrange(1, 200_000)))  # leases last five minutes
        if what == "offer" or not created:
            created[offer()] = now()
        handoff = chance.choice(list(created))
        acts = {"project_root": project, "handoff_id": handoff, "agent_id": "bob"}
        if what == "claim" and run(Caller(transport="test"), "handoff_claim", acts)["ok"]:
            claimed.setdefault(handoff, now() - created[handoff])
        if what == "complete" and run(Caller(transport="test"), "handoff_complete", {**acts, "result": ""})["ok"]:
            done[handoff] = now() - created[handoff]
    clock.shift(MINUTE)
    assert claimed and done
    for name, lengths in (("handoff_claim_seconds", claimed), ("handoff_done_seconds", done)):
        ((count, seconds),) = told(name).values()
        assert count == len(lengths)
        assert seconds == pytest.approx(sum(round(length.total_seconds(), 3) for length in lengths.values()))


def test_it_measures_mail_to_its_acknowledgement_and_how_often_it_was_redelivered(
    told: Told, write: Write, call: Call, clock: Clock
) -> None:
    write("bob")
    (first,) = call("inbox_pull", agent_id="bob")["messages"]
    clock.shift(10 * MINUTE)
    call("inbox_pull", agent_id="bob")
    clock.shift(MINUTE)
    call("inbox_ack", agent_id="bob", message_ids=[first["message_id"]])
    clock.shift(MINUTE)
    assert told("mail_ack_seconds") == {"direct": (1, 660)}
    assert told("mail_redeliveries") == {"direct": (1, 1)}


def counted(histograms: Histograms, name: str) -> int:
    """How many samples a figure's histogram has."""
    (histogram,) = [found for found in histograms.look(now()) if found.figure.name == name]
    return sum(counter.total() for counter in histogram.counted.values())


def test_it_counts_each_thing_once_however_often_it_looks(work: Work) -> None:
    work()
    histograms = Histograms()
    assert counted(histograms, "handoff_done_seconds") == 0  # what was before is another process's to have told
    for times in range(1, 4):
        work()
        assert [counted(histograms, "handoff_done_seconds") for _ in range(3)] == [times] * 3


def test_it_counts_what_is_committed_after_a_look_that_came_after_its_time(
    write: Write, call: Call, clock: Clock
) -> None:
    write("bob")
    histograms = Histograms()
    assert counted(histograms, "mail_ack_seconds") == 0
    acted = now()
    clock.shift(MINUTE)
    assert counted(histograms, "mail_ack_seconds") == 0
    Delivery.objects.update(status="read", read_at=acted)  # as a call that waited for the store for so long
    clock.shift(MINUTE)
    assert counted(histograms, "mail_ack_seconds") == 1


def test_it_tells_cumulative_buckets_to_prometheus(work: Work) -> None:
    from nexus_site.serving.metrics import exposition

    def series() -> dict[str, float]:
        lines = [
            line.rpartition(" ") for line in exposition().decode().splitlines() if line.startswith("nexus_handoff_")
        ]
        return {name: float(value) for name, _, value in lines}

    before = series()
    work()
    after = series()
    rose = {name for name in after if after[name] > before[name]}
    told = 'nexus_handoff_claim_seconds_bucket{kind="capability",le="%s"}'
    assert told % "60.0" in rose and told % "+Inf" in rose and told % "15.0" not in rose
    assert after['nexus_handoff_claim_seconds_sum{kind="capability"}'] - before[
        'nexus_handoff_claim_seconds_sum{kind="capability"}'
    ] == pytest.approx(60)


@pytest.mark.usefixtures("counted_alone")
@pytest.mark.sqlite  # whose plans say so; the indexes are the same
def test_it_reads_nothing_of_the_log_and_the_handoffs_but_what_it_tells(told: Told, work: Work) -> None:
    work()
    with CaptureQueriesContext(connection) as asked:
        told("handoff_done_seconds")
    plans = []
    for query in asked.captured_queries:
        if "julianday" in query["sql"] and ('FROM "events"' in query["sql"] or 'FROM "handoffs"' in query["sql"]):
            with connection.cursor() as cursor:
                plans.append([row[3] for row in cursor.execute(f"EXPLAIN QUERY PLAN {query['sql']}").fetchall()])
    claims, done = plans
    assert claims[0].startswith("SEARCH events USING INDEX events_of_claims"), claims
    assert done[0].endswith("(handoff_id=?)") and any("COVERING INDEX handoffs_by_change" in step for step in done), (
        done
    )
