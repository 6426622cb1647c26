"""A target as a person reads it."""

from __future__ import annotations

from typing import Any

import pytest

from coordination.routing import describe, parse_target


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (None, "everyone present"),
        ({"strategy": "direct", "agent_id": "bob"}, "bob"),
        ({"strategy": "role", "role": "coder"}, "role coder"),
        ({"strategy": "capability", "capability": "ocr"}, "capability ocr"),
        ({"strategy": "capability", "capability": ["ocr", "py"]}, "capability ocr, py"),
        ({"strategy": "broadcast"}, "everyone"),
        (
            {
                "strategy": "mixed",
                "rules": [{"strategy": "role", "role": "a"}, {"strategy": "direct", "agent_id": "b"}],
            },
            "role a or b",
        ),
        (
            {"strategy": "direct_with_fallback", "agent_id": "bob", "fallback_after_seconds": 60},
            "bob, after 60 s everyone",
        ),
    ],
)
def test_it_says_whom_a_target_means(target: dict[str, Any] | None, words: str) -> None:
    assert describe(parse_target(target)) == words


def test_it_has_words_for_a_row_that_no_grammar_made() -> None:
    assert describe({"strategy": "psychic"}) == "unknown target"
