"""Figures: over a window, and as histograms."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from coordination import metrics
from coordination.metrics import Histograms, summary
from coordination.toolset import run
from inbox.models import Delivery
from nexus.core.clock import now
from nexus.core.contributions import Figure, Sample
from nexus.core.operations.caller import Caller
from tests.conftest import OPERATOR, Call
from tests.handoffs.conftest import Clock, Offer

MINUTE = timedelta(minutes=1)
Work = Callable[[], None]
Write = Callable[[str], str]


def told(**arguments: object) -> dict[str, dict[str, object]]:
    """The figures by name."""
    envelope = run(OPERATOR, "figures", arguments)
    assert envelope["ok"], envelope
    return {figure["name"]: figure for figure in envelope["data"]["figures"]}


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


@given(st.lists(st.floats(min_value=0, max_value=1e6), min_size=1))
def test_it_tells_a_median_that_half_do_not_exceed(values: list[float]) -> None:
    found = summary(values)
    assert found is not None and found.count == len(values) and found.max == max(values)
    assert found.sum == pytest.approx(math.fsum(values), abs=1e-6)
    for share, value in ((0.5, found.median), (0.9, found.p90), (0.99, found.p99)):
        assert value in values and sum(each <= value for each in values) >= share * len(values)
        assert sum(each < value for each in values) < max(1, math.ceil(share * len(values)))


BOUNDS = (0, 1, 2.5, 60)
SAMPLES = st.builds(
    Sample,
    st.just(""),
    st.sampled_from(["ann", "bob", None]),
    st.sampled_from(["direct", "role"]),
    st.sampled_from(BOUNDS) | st.floats(min_value=0, max_value=100),
)


@given(st.lists(SAMPLES))
def test_it_groups_and_spreads_samples_as_a_naive_count_does(samples: list[Sample]) -> None:
    figure = Figure("toys", "Toys", "Toys.", "seconds", ("direct", "role"), BOUNDS, lambda *_: samples)
    with patch.object(metrics, "all_figures", return_value=[figure]):
        (found,) = metrics.measured(now(), now())
    assert found.all == summary(sample.value for sample in samples)
    for told, key in ((found.by_agent, "agent_id"), (found.by_kind, "kind")):
        naive = {name: summary(each.value for each in samples if getattr(each, key) == name)
                 for name in {getattr(each, key) for each in samples} - {None}}  # fmt: skip
        assert told == naive
        assert [each.count for each in told.values()] == sorted((each.count for each in told.values()), reverse=True)
    within = [sum(low < sample.value <= high for sample in samples) for low, high in pairwise((-1, *BOUNDS, math.inf))]
    assert found.bars == within


def test_it_measures_a_handoff_from_its_creation_to_its_first_claim_and_its_end(work: Work) -> None:
    work()
    found = told()
    one = {"count": 1, "sum": 60.0, "median": 60.0, "p90": 60.0, "p99": 60.0, "max": 60.0}
    claimed, done = found["handoff_claim_seconds"], found["handoff_done_seconds"]
    assert (claimed["all"], claimed["by_agent"], claimed["by_kind"]) == (one, {"bob": one}, {"capability": one})
    assert done["all"] == {name: value if name == "count" else 3600.0 for name, value in one.items()}
    assert {"at_most": 60, "count": 1} in claimed["buckets"]  # type: ignore[operator]


def test_it_counts_as_done_what_was_accepted_and_by_who_did_it(
    call: Call, team: None, project: str, offer: Offer, clock: Clock
) -> None:
    handoff = offer(verifier="creator")
    acts = {"project_root": project, "handoff_id": handoff}
    clock.shift(MINUTE)
    call("handoff_claim", **acts, agent_id="bob")
    call("handoff_complete", **acts, agent_id="bob", result="")
    clock.shift(MINUTE)
    call("handoff_accept", **acts, agent_id="ana")
    clock.shift(MINUTE)
    done = told()["handoff_done_seconds"]["by_agent"]
    assert {name: summary["max"] for name, summary in done.items()} == {"bob": 120.0}  # type: ignore[attr-defined]


def test_it_takes_of_one_agent_its_own_newest_however_many_others_have_since(
    write: Write, call: Call, project: str, offer: Offer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "MOST", 1)
    for agent_id in ("bob", "cem"):
        call("agent_register", agent_id=agent_id, capabilities=["python"])
        acts = {"project_root": project, "handoff_id": offer(), "agent_id": agent_id}
        call("handoff_claim", **acts)
        call("handoff_complete", **acts, result="")
        write(agent_id)
        (message,) = call("inbox_pull", agent_id=agent_id)["messages"][-1:]
        call("inbox_ack", agent_id=agent_id, message_ids=[message["message_id"]])
        clock.shift(MINUTE)
    assert [figure["all"]["count"] for figure in told(agent_id="bob").values()] == [1] * 4  # type: ignore[index]


def test_it_tells_what_a_naive_look_at_the_log_tells(
    call: Call, team: None, project: str, offer: Offer, clock: Clock
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
        expected = summary([round(length.total_seconds(), 3) for length in lengths.values()])
        assert expected is not None and told()[name]["all"] == pytest.approx(asdict(expected))


def test_it_measures_mail_to_its_acknowledgement_and_how_often_it_was_redelivered(
    write: Write, call: Call, clock: Clock
) -> None:
    write("bob")
    (first,) = call("inbox_pull", agent_id="bob")["messages"]
    clock.shift(10 * MINUTE)
    call("inbox_pull", agent_id="bob")
    clock.shift(MINUTE)
    call("inbox_ack", agent_id="bob", message_ids=[first["message_id"]])
    clock.shift(MINUTE)
    found = told()
    assert found["mail_ack_seconds"]["by_agent"]["bob"]["median"] == 660.0  # type: ignore[index]
    assert found["mail_redeliveries"]["by_kind"]["direct"]["max"] == 1  # type: ignore[index]


def test_it_keeps_to_a_window_and_an_agent(work: Work, clock: Clock) -> None:
    work()
    assert told(agent_id="ana")["handoff_done_seconds"]["all"] is None
    assert told(agent_id="bob")["handoff_done_seconds"]["all"] is not None
    clock.shift(2 * MINUTE)
    assert told(window_seconds=60)["handoff_done_seconds"]["all"] is None
    until = (now() - MINUTE).isoformat()
    assert told(window_seconds=120, until=until)["handoff_done_seconds"]["all"] is not None


def test_it_keeps_to_a_workspace(
    write: Write, work: Work, call: Call, project: str, clock: Clock, tmp_path: Path
) -> None:
    work()
    write("bob")
    (message,) = call("inbox_pull", agent_id="bob")["messages"][-1:]
    call("inbox_ack", agent_id="bob", message_ids=[message["message_id"]])
    clock.shift(MINUTE)
    other = tmp_path / "other"
    other.mkdir()
    ids = [call("workspace_resolve", project_root=root)["workspace_id"] for root in (project, str(other))]
    here, there = (told(workspace_id=workspace_id) for workspace_id in ids)
    assert here == told() and all(figure["all"] for figure in here.values())
    assert not any(figure["all"] for figure in there.values())


@pytest.mark.parametrize("until", ["tomorrow", "2026-01-31T12:00:00", "0001-01-01T00:00:00Z", "", "9" * 60])
def test_it_refuses_a_time_that_is_none(db: None, until: str) -> None:
    envelope = run(OPERATOR, "figures", {"until": until})
    assert envelope["error"]["code"] == "VALIDATION_ERROR"


def test_it_is_for_operators(call: Call, db: None) -> None:
    assert run(Caller(transport="test"), "figures", {})["error"]["code"] == "NOT_OWNER"


def test_it_says_when_it_summed_up_the_newest_only(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MOST", 1)
    for _ in range(2):
        work()
    found = told()["handoff_done_seconds"]
    assert found["newest_only"] and found["all"]["count"] == 1  # type: ignore[index]


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
@pytest.mark.parametrize("agent_id", ["bob", None])
def test_it_reads_nothing_of_the_log_and_the_handoffs_but_what_it_tells(work: Work, agent_id: str | None) -> None:
    work()
    with CaptureQueriesContext(connection) as asked:
        told(**({"agent_id": agent_id} if agent_id else {}))
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
