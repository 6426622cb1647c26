"""The target grammar: total, canonical, and closed to what no write path could honour."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordination.routing import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_FALLBACK_SECONDS,
    MAX_NAME,
    MAX_RULES,
    Profile,
    describe,
    is_eligible,
    next_opening,
    parse_target,
)
from nexus.core.operations.errors import Code, NexusError

NAMES = st.text(min_size=1, max_size=8).filter(lambda text: bool(text.strip()))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
WORDS = ["direct", "capability", "role", "broadcast", "mixed", "direct_with_fallback"]
FIELDS = ("agent_id", "capability", "role", "rules", "fallback", "fallback_after_seconds", "preferred", "kind")
ROLE = {"strategy": "role", "role": "r"}
LATER = {"strategy": "direct_with_fallback", "agent_id": "a", "fallback_after_seconds": 5, "fallback": ROLE}
CREATED = datetime(2026, 3, 1, tzinfo=UTC)
ALMOST = st.fixed_dictionaries(
    {"strategy": st.sampled_from(WORDS) | JSON},
    optional=dict.fromkeys(FIELDS, NAMES | JSON),
)


@st.composite
def spelled(draw: st.DrawFn, strategy: str) -> dict[str, Any]:
    """The discriminator in one of the spellings the grammar takes."""
    word = strategy.replace("_", draw(st.sampled_from(["_", "-", " "])))
    word = "".join(draw(st.sampled_from([letter.lower(), letter.upper()])) for letter in word)
    return {draw(st.sampled_from(["strategy", "kind"])): word}


@st.composite
def targets(draw: st.DrawFn, within_mixed: bool = False, timed: bool = True, depth: int = 1) -> dict[str, Any]:
    """A target as an agent might well write it."""
    choices = ["direct", "role", "capability"]
    choices += [] if within_mixed else ["broadcast"]
    if depth < 4:
        choices += ["mixed", "direct_with_fallback"] if timed else ["mixed"]
    strategy = draw(st.sampled_from(choices))
    target: dict[str, Any] = draw(spelled(strategy))
    if strategy in ("direct", "direct_with_fallback"):
        target["agent_id"] = draw(NAMES)
    if strategy == "role":
        target["role"] = draw(NAMES)
    if strategy == "capability":
        target["capability"] = draw(NAMES | st.lists(NAMES, min_size=1, max_size=3))
        if draw(st.booleans()):
            target["preferred"] = draw(NAMES)
    if strategy == "mixed":
        target["rules"] = draw(
            st.lists(targets(within_mixed=True, timed=timed, depth=depth + 1), min_size=1, max_size=3)
        )
    if strategy == "direct_with_fallback":
        target["fallback_after_seconds"] = draw(st.integers(0, 10**6) | st.floats(0, 10**6))
        if within_mixed or draw(st.booleans()):
            target["fallback"] = draw(targets(within_mixed=within_mixed, timed=timed, depth=depth + 1))
    return target


def refusal(target: Any, *, timed: bool = True) -> NexusError:
    with pytest.raises(NexusError) as caught:
        parse_target(target, timed=timed)
    assert caught.value.code == Code.VALIDATION_ERROR
    return caught.value


@given(JSON | ALMOST)
def test_it_gives_any_json_a_canonical_target_or_a_validation_error(value: Any) -> None:
    try:
        target = parse_target(value)
    except NexusError as error:
        assert error.code == Code.VALIDATION_ERROR
        assert error.details["path"].startswith("target")
    else:
        assert parse_target(target) == target


@given(targets())
def test_it_accepts_every_well_formed_target_and_its_form_is_a_fixed_point(value: dict[str, Any]) -> None:
    target = parse_target(value)
    assert target is not None
    assert target["strategy"] in WORDS
    assert parse_target(target) == target


@given(targets(timed=False))
def test_it_gives_messages_and_handoffs_the_same_form_of_an_untimed_target(value: dict[str, Any]) -> None:
    assert parse_target(value, timed=False) == parse_target(value, timed=True)


@pytest.mark.parametrize("blank", [None, {}, "", "  "])
def test_it_reads_a_blank_target_as_no_restriction(blank: Any) -> None:
    assert parse_target(blank) is None


@pytest.mark.parametrize("word", ["direct_with_fallback", "Direct-With-Fallback", "DIRECT WITH FALLBACK"])
@pytest.mark.parametrize("key", ["strategy", "kind"])
def test_it_takes_the_discriminator_in_any_case_and_separator(key: str, word: str) -> None:
    target = parse_target({key: word, "agent_id": "a", "fallback_after_seconds": 5})
    assert target == {
        "strategy": "direct_with_fallback",
        "agent_id": "a",
        "fallback_after_seconds": 5,
        "fallback": {"strategy": "broadcast"},
    }


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ([], "target"),
        ("direct", "target"),
        ({"agent_id": "a"}, "target.strategy"),
        ({"strategy": "nobody"}, "target.strategy"),
        ({"strategy": True}, "target.strategy"),
        ({"strategy": "direct", "kind": "role", "agent_id": "a"}, "target.strategy"),
        ({"strategy": "direct"}, "target.agent_id"),
        ({"strategy": "direct", "agent_id": " "}, "target.agent_id"),
        ({"strategy": "direct", "agent_id": 7}, "target.agent_id"),
        ({"strategy": "direct", "agent_id": "a", "role": "r"}, "target"),
        ({"strategy": "role", "role": ["r"]}, "target.role"),
        ({"strategy": "capability", "capability": []}, "target.capability"),
        ({"strategy": "capability", "capability": ["py", ""]}, "target.capability"),
        ({"strategy": "capability", "capability": {"py": True}}, "target.capability"),
        ({"strategy": "mixed"}, "target.rules"),
        ({"strategy": "mixed", "rules": []}, "target.rules"),
        ({"strategy": "mixed", "rules": [{"strategy": "role", "role": "r"}] * (MAX_RULES + 1)}, "target.rules"),
        ({"strategy": "mixed", "rules": [None]}, "target.rules[0]"),
        ({"strategy": "mixed", "rules": [{}]}, "target.rules[0]"),
        ({"strategy": "mixed", "rules": [{"strategy": "role", "role": "r"}, ""]}, "target.rules[1]"),
        ({"strategy": "mixed", "rules": [{"strategy": "broadcast"}]}, "target.rules[0]"),
        ({"strategy": "direct_with_fallback", "agent_id": "a"}, "target.fallback_after_seconds"),
    ],
)
def test_it_refuses_and_names_the_part_that_is_wrong(target: Any, path: str) -> None:
    assert refusal(target).details["path"] == path


@pytest.mark.parametrize("seconds", [True, "5", -1, MAX_FALLBACK_SECONDS + 1, 10**400, float("nan"), float("inf")])
def test_it_refuses_a_fallback_that_never_opens(seconds: Any) -> None:
    target = {"strategy": "direct_with_fallback", "agent_id": "a", "fallback_after_seconds": seconds}
    assert refusal(target).details["path"] == "target.fallback_after_seconds"


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (
            {"strategy": "mixed", "rules": [{"strategy": "mixed", "rules": [ROLE] * 50}] * 2},
            "target.rules[1].rules[48]",
        ),
        ({"strategy": "mixed", "rules": [ROLE] * 99 + [LATER]}, "target.rules[99].fallback"),
        ({"strategy": "direct", "agent_id": "a" * (MAX_NAME + 1)}, "target.agent_id"),
        ({"strategy": "role", "role": "a" * (MAX_NAME + 1)}, "target.role"),
        ({"strategy": "capability", "capability": ["py", "a" * (MAX_NAME + 1)]}, "target.capability"),
        ({"strategy": "capability", "capability": "py", "preferred": "a" * MAX_BYTES}, "target"),
        ({"strategy": "capability", "capability": ["a" * 200] * 100}, "target"),
    ],
)
def test_it_bounds_what_a_target_may_cost(target: Any, path: str) -> None:
    assert refusal(target).details["path"] == path


def test_it_takes_a_target_as_large_as_the_bounds() -> None:
    assert parse_target({"strategy": "mixed", "rules": [ROLE] * MAX_RULES})
    assert parse_target({"strategy": "direct", "agent_id": "a" * MAX_NAME})


def test_it_holds_an_agent_against_no_more_rules_than_the_bound_whatever_is_stored() -> None:
    beyond: dict[str, Any] = {}  # a rule that cannot even be looked at
    stored = {"strategy": "mixed", "rules": [{"strategy": "mixed", "rules": [ROLE] * 64}] * 2 + [beyond] * 100_000}
    assert not is_eligible(stored, Profile("a"), created_at=CREATED, now=CREATED)
    assert len(describe(stored)) < 1000
    timed = {"strategy": "mixed", "rules": [LATER] * 100_000}
    assert next_opening(timed, created_at=CREATED, now=CREATED) == CREATED + timedelta(seconds=5)


def test_it_refuses_a_broadcast_hidden_in_a_mixed_fallback() -> None:
    fallback = {"strategy": "direct_with_fallback", "agent_id": "a", "fallback_after_seconds": 1}
    assert refusal({"strategy": "mixed", "rules": [fallback]}).details["path"] == "target.rules[0].fallback"


def test_it_refuses_a_timed_target_where_time_plays_no_part() -> None:
    timed = {"strategy": "direct_with_fallback", "agent_id": "a", "fallback_after_seconds": 1}
    assert parse_target(timed)
    refusal(timed, timed=False)


def test_it_bounds_the_nesting() -> None:
    def nested(levels: int) -> dict[str, Any]:
        return {"strategy": "mixed", "rules": [nested(levels - 1)]} if levels else {"strategy": "role", "role": "r"}

    assert parse_target(nested(MAX_DEPTH - 1))
    refusal(nested(MAX_DEPTH))


def test_it_keeps_a_refusal_short_whatever_it_was_given() -> None:
    assert len(refusal({"strategy": "broadcast", **{f"{n}-{'x' * 500}": 1 for n in range(500)}}).message) < 1000


@given(targets())
def test_it_finds_the_next_opening_strictly_after_now(value: dict[str, Any]) -> None:
    created = datetime(2026, 1, 1, tzinfo=UTC)
    target = parse_target(value)
    moment, steps = created - timedelta(seconds=1), 0
    while (opening := next_opening(target, created_at=created, now=moment)) is not None:
        assert opening > moment
        moment, steps = opening, steps + 1
    assert steps <= str(target).count("fallback_after_seconds")
