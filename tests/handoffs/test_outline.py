"""The timeline of many handoffs against the same said naively."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext

from coordination.models import Workspace
from handoffs import timeline as outlines
from handoffs.models import HELD, Handoff, HandoffStatus
from handoffs.timeline import Outline, outline

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SINCE, LENGTH, PARTS = NOON, timedelta(hours=1), 12
CELL = timedelta(minutes=10)
STATES = (HandoffStatus.OPEN, *HELD, HandoffStatus.SUBMITTED, HandoffStatus.COMPLETED, HandoffStatus.CANCELLED)


@pytest.fixture
def rows(request: pytest.FixtureRequest, db: None) -> list[Handoff]:
    """Handoffs of a while before and in an hour, in every state."""
    chance = random.Random(request.param)
    place = Workspace.objects.create(
        workspace_id="w" * 64, root_realpath="/srv/project", created_at=NOON, last_seen_at=NOON
    )

    def made(number: int) -> Handoff:
        status = chance.choice(STATES)
        created = NOON + timedelta(milliseconds=chance.randrange(-1_000_000, 4_000_000))
        claimed = created + timedelta(milliseconds=chance.randrange(1, 900_000))
        ended = claimed + timedelta(milliseconds=chance.randrange(0, chance.choice((60_000, 2_400_000))))
        was_held = status != HandoffStatus.OPEN and (status != HandoffStatus.CANCELLED or number % 2 == 0)
        return Handoff(
            handoff_id=f"hnd_{number:03d}", workspace=place, from_agent_id="ana", title="x", visibility="public",
            target={"strategy": "broadcast"}, status=status, created_event_id=number, created_at=created,
            claimed_by=chance.choice(["bob", "eve"]) if was_held else None, claimed_at=claimed if was_held else None,
            lease_expires_at=ended if status in HELD else None, updated_at=created if status == "OPEN" else ended,
        )  # fmt: skip

    return Handoff.objects.bulk_create(made(number) for number in range(120))


def shown() -> Outline:
    with time_machine.travel(NOON + timedelta(minutes=50), tick=False):
        return outline(SINCE, SINCE + LENGTH, workspace_id=None, cell=CELL, parts=PARTS)


NOW = NOON + timedelta(minutes=50)
ROWS = pytest.mark.parametrize("rows", range(6), indirect=True)


def claims(rows: list[Handoff]) -> dict[str, tuple[str, datetime, datetime]]:
    """By handoff, who held it, from when to when, within the hour as far as it is over."""
    found = {}
    for row in rows:
        if row.claimed_by and row.claimed_at:
            end = row.lease_expires_at if row.status in HELD else row.updated_at
            start, end = max(row.claimed_at, SINCE), min(end or NOW, NOW)
            if start < end and row.created_at < NOW:
                found[row.pk] = (row.claimed_by, start, end)
    return found


@ROWS
def test_it_tells_long_claims_and_counts_the_others(rows: list[Handoff]) -> None:
    found, expected = shown(), claims(rows)
    long = {pk for pk, (_, start, end) in expected.items() if end - start >= CELL / 2}
    assert {span.handoff_id for span in found.spans} == long
    short = [(who, int(start.timestamp() // CELL.total_seconds())) for pk, (who, start, _) in expected.items()
             if pk not in long]  # fmt: skip
    assert Counter({(who, cell): count for who, cell, count in found.counted}) == Counter(short)


@ROWS
def test_it_counts_too_what_is_long_beyond_so_many(rows: list[Handoff], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlines, "LONG", 3)
    found, expected = shown(), claims(rows)
    assert len(found.spans) <= 3
    assert len(found.spans) + sum(counted.many for counted in found.counted) == len(expected)
    least = min((expected[span.handoff_id] for span in found.spans), key=lambda claim: claim[2] - claim[1])
    others = [end - start for pk, (_, start, end) in expected.items() if pk not in {s.handoff_id for s in found.spans}]
    assert max(others) <= least[2] - least[1]


@ROWS
def test_it_tells_how_many_waited(rows: list[Handoff]) -> None:
    waits = []
    for row in rows:
        end = NOW if row.status == HandoffStatus.OPEN else row.claimed_at or row.updated_at
        if row.created_at < NOW and end > SINCE:
            waits.append((max(row.created_at, SINCE), min(end, NOW)))
    width = LENGTH / PARTS
    expected = [
        sum(max(min(end, SINCE + (part + 1) * width) - max(start, SINCE + part * width), timedelta()) / width
            for start, end in waits)
        for part in range(PARTS)
    ]  # fmt: skip
    assert shown().waited == pytest.approx(expected, abs=0.001)


@pytest.mark.usefixtures("counted_alone")
@pytest.mark.parametrize("rows", [0], indirect=True)
def test_it_looks_at_the_handoffs_once(rows: list[Handoff], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlines, "LONG", 3)
    with CaptureQueriesContext(connection) as queries:
        assert shown().spans
    assert [query["sql"] for query in queries if "handoffs" in query["sql"]] == [queries[-1]["sql"]]
