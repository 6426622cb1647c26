"""What a handoff is called: by its creator, or by what its payload says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoffs.titles import MAX_TITLE, title_of

TARGET: Any = {"strategy": "capability", "capability": "python"}


@pytest.mark.parametrize(
    ("payload", "title"),
    [
        ("Fix the login\nIt fails for guests.", "Fix the login"),
        ("\n\n   Fix  the\tlogin  ", "Fix the login"),
        ('{"title": "Fix the login", "task": "other"}', "Fix the login"),
        ('{"title": "", "task": 7, "instructions": "Read it\\nthen fix"}', "Read it"),
        ('{"summary": "In short"}', "In short"),
        ('{"file": "a.py"}', "Work for capability python"),
        ("[2]", "Work for capability python"),
        ("{not json", "{not json"),
        (None, "Work for capability python"),
        (" \n ", "Work for capability python"),
        ("x" * 300, "x" * (MAX_TITLE - 1) + "…"),
    ],
)
def test_it_is_called_what_its_payload_says_first(payload: str | None, title: str) -> None:
    assert title_of(payload, TARGET) == title


@given(st.one_of(st.text(), st.recursive(st.none() | st.text(), st.lists).map(json.dumps), st.just("[" * 50_000)))
def test_whatever_it_says_it_has_a_title_of_one_line(payload: str) -> None:
    title = title_of(payload, TARGET)
    assert title.strip() and len(title) <= MAX_TITLE and len(title.splitlines()) == 1
