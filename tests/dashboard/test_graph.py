"""The graph: every label stands clear of the others, lines point from dot to dot, and what is chosen stands out."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from inbox import monitoring
from nexus.dashboard.views import graph
from tests.pages import Ids, do

LETTER = 13.0  # the height of a label


@given(sizes=st.lists(st.floats(0, 1), max_size=80))
def test_it_gives_every_agent_a_place_of_its_own(sizes: list[float]) -> None:
    sheet = graph.sheet_for(len(sizes))
    spots = graph.oval(sheet, [5 + size * (sheet.largest - 5) for size in sizes])
    for anchor in ("start", "end"):
        side = sorted((spot for spot in spots if spot.anchor == anchor), key=lambda spot: spot.y)
        for above, below in pairwise(side):
            assert below.y - above.y >= LETTER
            assert math.dist((above.x, above.y), (below.x, below.y)) >= above.radius + below.radius
    for spot in spots:
        assert spot.radius <= spot.y <= sheet.height - spot.radius
        assert 100 <= spot.label_x <= sheet.width - 100  # room for the label


@given(count=st.integers(2, 80), data=st.data())
def test_it_draws_lines_from_edge_to_edge(count: int, data: st.DataObject) -> None:
    sheet = graph.sheet_for(count)
    spots = graph.oval(sheet, [8.0] * count)
    start, end = data.draw(st.permutations(spots))[:2]
    numbers = [float(number) for number in re.findall(r"-?\d+\.\d", graph.arc(sheet, start, end))]
    assert math.isclose(math.dist(numbers[:2], (start.x, start.y)), start.radius, abs_tol=0.2)
    assert math.dist(numbers[-2:], (end.x, end.y)) >= end.radius


def page(browser: Client, query: str = "") -> str:
    return browser.get(f"/admin/graph/{query}").content.decode()


def test_it_points_lines_at_who_receives(team: Ids, browser: Client) -> None:
    assert 'marker-end="url(#head)"' in page(browser)


def test_it_marks_the_neighbours_of_the_agent_that_is_chosen(team: Ids, browser: Client) -> None:
    text = page(browser, "?agent=archivist")
    near = re.findall(r'class="node \w+ near[^"]*"[^>]*data-agent="([\w-]+)"', text)
    assert sorted(near) == ["archivist", "planner"]
    assert not re.findall(r'class="node \w+ near', page(browser))


def test_it_lists_the_agents_for_those_who_see_no_picture(team: Ids, browser: Client) -> None:
    text = page(browser)
    listed = text[text.index("nx-agents") :]
    assert all(
        f'data-agent="{name}"' in listed for name in ("planner", "builder-1", "builder-2", "reviewer", "archivist")
    )


def test_it_tells_of_live_handoffs_by_their_titles(team: Ids, browser: Client) -> None:
    assert "write grammar.py" in page(browser, "?agent=builder-1")


def test_it_counts_so_many_sends_however_many_one_message_reached(
    team: Ids, browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    do("message_create", project_root=team["root"], from_agent_id="planner", subject="All of you", body="Look.")
    monkeypatch.setattr(monitoring, "NEWEST", 2)
    text = page(browser)
    assert len(re.findall(r'class="line', text)) <= 2 + len(re.findall(r'class="claim', text))
    assert "There is more traffic than the map counts" in text


def test_an_agent_of_the_pool_is_there_in_each_workspace(team: Ids, browser: Client) -> None:
    do("agent_register", agent_id="lead")
    for query in ("", f"?workspace={team['workspace']}"):
        assert re.search(r'class="node present[^>]*data-agent="lead"', page(browser, query)), query
