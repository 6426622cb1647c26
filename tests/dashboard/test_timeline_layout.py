"""The geometry of the timeline: whatever was done, it can be read."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoffs.spans import Doing, Span
from nexus.dashboard.views import timeline_layout
from nexus.dashboard.views.timeline_layout import TimelineRow, TimeWindow

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = TimeWindow(NOON, NOON + timedelta(hours=1))
MOMENTS = st.integers(min_value=-3600, max_value=7200).map(lambda seconds: NOON + timedelta(seconds=seconds))


@st.composite
def spans(draw: st.DrawFn) -> Span:
    start, end = draw(st.none() | MOMENTS), draw(st.none() | MOMENTS)
    if start and end and end < start:
        start, end = end, start
    return Span(draw(st.text("abc", min_size=1)), draw(st.sampled_from(Doing)), "bob", start, end, 1)


def drawn(row: TimelineRow) -> int:
    return len(row.bars) + sum(block.count for block in row.blocks)


@given(st.lists(spans(), max_size=40))
def test_it_draws_every_span_once_inside_the_window_and_none_over_another(found: list[Span]) -> None:
    (row,) = timeline_layout.draw_rows({"bob": found}, HOUR)
    assert drawn(row) == len(found)
    assert all(mark.x >= 0 and mark.x + mark.width <= 100 + 1e-6 for mark in row.marks)
    for one, other in combinations(row.marks, 2):
        assert (
            row.y(one) != row.y(other) or one.x + one.width <= other.x + 1e-6 or other.x + other.width <= one.x + 1e-6
        )
    assert all(row.top <= row.y(mark) and row.y(mark) + 11 <= row.top + row.height for mark in row.marks)


@given(st.lists(spans(), max_size=60), st.integers(min_value=1, max_value=20))
def test_it_gathers_more_into_blocks_until_they_are_few(found: list[Span], marks: int) -> None:
    (free,) = timeline_layout.draw_rows({"bob": found}, HOUR)
    (few,) = timeline_layout.draw_rows({"bob": found}, HOUR, marks=marks)
    assert drawn(few) == drawn(free) == len(found)
    assert len(few.marks) <= len(free.marks)


def test_it_holds_ten_thousand_spans_of_sixty_agents_to_so_many_marks() -> None:
    by_agent: dict[str | None, list[Span]] = {
        f"agent-{agent:02d}": [
            Span(f"h{i}", Doing.CLAIMED, "", start := NOON + timedelta(seconds=(i * 21.3 + agent) % 3600),
                 start + timedelta(seconds=5 + i % 40), 1)
            for i in range(167)
        ]
        for agent in range(60)
    }  # fmt: skip
    found = timeline_layout.draw_rows(by_agent, HOUR)
    assert sum(len(row.marks) for row in found) <= timeline_layout.MARKS
    assert sum(map(drawn, found)) == 60 * 167
    tops = [row.top for row in found]
    assert tops == sorted(tops) and len(set(tops)) == 60


@given(st.lists(spans(), max_size=30), st.integers(min_value=1, max_value=50))
def test_it_counts_what_there_was_at_once(found: list[Span], cells: int) -> None:
    depth = timeline_layout.depth(found, HOUR, cells)
    shares = sum(HOUR.at(span.end, 100) - HOUR.at(span.start, 0) for span in found) / 100
    assert sum(depth) / cells == pytest.approx(shares)
    assert len(depth) == cells and all(many <= len(found) + 1e-6 for many in depth)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc"), MOMENTS), max_size=40),
    st.integers(min_value=1, max_value=10),
)
def test_it_leaves_no_send_out_unsaid(sends: list[tuple[str, str, datetime]], most: int) -> None:
    within = [send for send in sends if HOUR.since <= send[2] < HOUR.until]
    found, left_out = timeline_layout.arrows(within, HOUR, most=most)
    assert len(found) <= most and sum(arrow.count for arrow in found) + left_out == len(within)
    every, nothing = timeline_layout.arrows(within, HOUR, most=1000)
    assert not nothing and Counter((sender, to) for sender, to, _ in within) == sum(
        (Counter({(arrow.sender, arrow.recipient): arrow.count}) for arrow in every), Counter()
    )


def test_it_lets_nothing_jump_while_the_window_moves_on() -> None:
    moments = [NOON + timedelta(seconds=700 + i) for i in range(3)]
    found = [Span("h", Doing.CLAIMED, "bob", at, at, 1) for at in moments]
    later = TimeWindow(HOUR.since + timedelta(seconds=13), HOUR.until + timedelta(seconds=13))
    before, after = (timeline_layout.draw_rows({"bob": found}, window)[0].blocks for window in (HOUR, later))
    assert [(block.since, block.until) for block in before] == [(block.since, block.until) for block in after]


@given(st.integers(min_value=10, max_value=92 * 86_400), MOMENTS)
def test_it_marks_round_moments_of_the_window(seconds: int, since: datetime) -> None:
    window = TimeWindow(since, since + timedelta(seconds=seconds))
    found = timeline_layout.ticks(window)
    assert len(found) <= timeline_layout.TICKS and all(window.since <= moment <= window.until for _, moment in found)
    assert [x for x, _ in found] == sorted(x for x, _ in found)
