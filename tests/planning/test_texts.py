"""The text of a file, byte for byte what other consumers write."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from nexus.planning import schemas

TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)
ENTRIES = st.dictionaries(
    TEXTS, TEXTS | st.integers() | st.lists(TEXTS | st.integers()) | st.dictionaries(TEXTS, TEXTS)
)


@given(st.dictionaries(TEXTS, TEXTS | st.lists(ENTRIES)))
def test_it_is_json_with_two_spaces_and_no_escape_that_json_does_not_ask_for(document: object) -> None:
    expected = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    assert schemas.text_of(document) == expected.encode()
