"""Numbers and cursors that come as text: what is none of ours is refused, whatever it is."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from nexus.core.operations import pages
from nexus.core.operations.parameters import MAX_INTEGER, whole_number
from nexus.core.rest.pagination import MAX_LIMIT

PARTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")) | st.integers(
    -(2**63) + 1, 2**63 - 1
)
local = Client(headers={"host": "localhost"})


def sealed(*parts: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()


@given(st.lists(PARTS, min_size=1, max_size=4))
def test_it_reads_back_the_place_that_it_wrote(place: list[str | int]) -> None:
    assert pages.decode_cursor(pages.encode_cursor(*place), *map(type, place)) == place


@given(st.datetimes(timezones=st.just(UTC)))
def test_it_reads_back_a_time(moment: datetime) -> None:
    assert pages.decode_cursor(pages.encode_cursor(moment), datetime) == [moment]


@given(st.text() | st.lists(PARTS | st.none() | st.floats() | st.text()).map(lambda parts: sealed(*parts)))
def test_it_reads_a_place_or_tells_that_it_is_none(text: str) -> None:
    try:
        place = pages.decode_cursor(text, str, int)
    except ValueError:
        return
    assert [type(part) for part in place] == [str, int]


@given(st.text(), st.integers(0, MAX_INTEGER))
def test_it_reads_a_whole_number_up_to_the_highest(text: str, highest: int) -> None:
    number = whole_number(text, highest)
    spelled = text.isascii() and text.isdigit()
    assert number is None or (spelled and 0 <= number <= highest and str(number) == (text.lstrip("0") or "0"))


@given(st.integers(0, MAX_INTEGER), st.integers(0, 5000))
def test_it_reads_a_number_however_it_is_padded(number: int, zeros: int) -> None:
    assert whole_number("0" * zeros + str(number)) == number
    assert whole_number("0" * zeros + str(number), number - 1) is None


@pytest.mark.parametrize("path", ["agents", "capabilities"])
def test_it_refuses_a_page_size_beyond_the_cap_however_it_is_spelled(committed: None, path: str) -> None:
    for size in ("000000001999", f"{MAX_LIMIT + 1:0>40}", "9" * 5000, "0" * 5000, "²", "1_0", "+1"):
        response = local.get(f"/api/v1/{path}", {"limit": size})
        assert (response.status_code, response.json()["error"]["details"]["field"]) == (400, "limit"), size
    assert local.get(f"/api/v1/{path}", {"limit": f"{MAX_LIMIT:0>4000}"}).status_code == 200


TIMES = ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-01-01T00:00:00", "2026", "x", 1, 10**30, None]
PLACES: dict[tuple[str, str], list[list[Any]]] = {  # of a list, and its ordering
    ("messages", "-message_id"): [["\ud800"] * 2, ["\x00", "x"], [1, 1], [None, None], [True, True], ["x"], ["x"] * 3],
    ("agents", "created_at"): [[value, "x"] for value in TIMES],
    ("events", "-event_id"): [[key, key] for key in ("1", "x", 2**63, -(2**70), 1.5, None)],
}


@pytest.mark.parametrize(("path", "ordering"), PLACES)
def test_it_refuses_a_place_that_no_row_has(db: None, path: str, ordering: str) -> None:
    for place in PLACES[path, ordering]:
        query = {"ordering": ordering, "cursor": sealed(ordering, *place)}
        assert local.get(f"/api/v1/{path}", query).status_code == 400, place
