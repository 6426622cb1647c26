"""The drawing of tasks: whatever waits for whatever, it can be read."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nexus.planning import graph, rules
from nexus.planning.graph import HEIGHT, WIDTH, Box, Drawing

NUMBERS = st.integers(min_value=1, max_value=25)
PLANS = st.dictionaries(NUMBERS, st.lists(NUMBERS, max_size=5), max_size=25)
ORDERLY = PLANS.map(lambda deps: {task: [each for each in needed if each < task] for task, needed in deps.items()})


def over(one: Box, other: Box) -> bool:
    return abs(one.x - other.x) < WIDTH and abs(one.y - other.y) < HEIGHT


def crossings(drawn: Drawing) -> int:
    """How many pairs of lines cross between two columns."""
    parts = [part for line in drawn.lines for part in pairwise(line.points)]
    return sum(
        one[0][0] == other[0][0] and (one[0][1] - other[0][1]) * (one[1][1] - other[1][1]) < 0
        for one, other in combinations(parts, 2)
    )


@given(PLANS)
def test_it_draws_every_task_that_has_an_order_once_and_none_over_another(deps: dict[int, list[int]]) -> None:
    drawn = graph.draw(deps, lines=1_000)
    assert sorted(box.number for box in drawn.boxes) == sorted(rules.layers(deps))
    assert not any(over(one, other) for one, other in combinations(drawn.boxes, 2))
    for box in drawn.boxes:
        assert box.x >= 0 and box.y >= 0 and box.x + WIDTH <= drawn.width and box.y + HEIGHT <= drawn.height


@given(PLANS)
def test_it_leads_every_line_from_left_to_right_from_task_to_task(deps: dict[int, list[int]]) -> None:
    drawn = graph.draw(deps, lines=1_000)
    at = {box.number: box for box in drawn.boxes}
    wanted = {(each, task) for task in at for each in deps[task] if each in at}
    assert {(line.start, line.end) for line in drawn.lines} == wanted and len(drawn.lines) == len(wanted)
    for line in drawn.lines:
        start, end = at[line.start], at[line.end]
        assert line.points[0] == (start.x + WIDTH, start.y + HEIGHT / 2) and line.points[-1] == (
            end.x,
            end.y + HEIGHT / 2,
        )
        assert all(before[0] < after[0] for before, after in pairwise(line.points))
        assert all(0 <= y <= drawn.height for _, y in line.points)


@given(ORDERLY)
@example({1: [], 2: [], 3: [], 4: [], 5: [2], 6: [1, 2], 7: [1, 5], 8: [1, 2, 7]})  # a line passes below all that wait
def test_it_leads_no_line_through_a_task(deps: dict[int, list[int]]) -> None:
    drawn = graph.draw(deps, lines=1_000)
    for line in drawn.lines:
        for x, y in line.points[1:-1]:
            assert not any(box.x <= x <= box.x + WIDTH and box.y < y < box.y + HEIGHT for box in drawn.boxes)


def test_it_untangles_what_need_not_cross() -> None:
    ladder = {
        **{n: [] for n in range(1, 9)},
        **{n: [17 - n] for n in range(9, 17)},
        **{n: [n - 8] for n in range(17, 25)},
    }
    assert crossings(graph.draw(ladder, lines=100)) == 0
    tree = {1: [], **{n: [n // 2] for n in range(2, 32)}}
    assert crossings(graph.draw(tree, lines=100)) == 0


def test_it_draws_no_more_lines_than_it_is_told() -> None:
    every = {task: list(range(1, task)) for task in range(1, 40)}
    assert len(graph.draw(every, lines=50).lines) == 50


@given(st.text())
def test_it_cuts_a_title_to_what_fits(text: str) -> None:
    shown = graph.fitted(text)
    assert shown == text or (shown.endswith("…") and text.startswith(shown[:-1].rstrip()))
    assert len(shown) <= graph.MOST_LETTERS + 1


@pytest.mark.parametrize(
    ("text", "shown"), [("", ""), ("x" * 24, "x" * 24), ("x" * 25, "x" * 22 + "…"), ("測" * 13, "測" * 11 + "…")]
)
def test_it_counts_wide_letters_as_wide(text: str, shown: str) -> None:
    assert graph.fitted(text) == shown
