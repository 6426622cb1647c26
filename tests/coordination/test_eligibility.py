"""Eligibility against a second, naive reading of the contract's table, and visibility on top of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordination.log.follow import FEW, Filters
from coordination.log.selectors import event_visible, interest_keys, keys_of
from coordination.models import Event
from coordination.routing import Profile, can_see, capability_set, is_eligible, parse_target
from tests.coordination.test_routing import JSON

CREATED = datetime(2026, 1, 1, tzinfo=UTC)
AGENTS, ROLES, SKILLS = ["ann", "bob", "Ann"], ["reviewer", "Reviewer"], ["ocr", "OCR", "py"]

PROFILES = st.builds(
    Profile,
    st.sampled_from(AGENTS),
    st.sampled_from([None, *ROLES]),
    st.frozensets(st.sampled_from(SKILLS)),
)
SIMPLE = st.one_of(
    st.builds(lambda name: {"strategy": "direct", "agent_id": name}, st.sampled_from(AGENTS)),
    st.builds(lambda role: {"strategy": "role", "role": role}, st.sampled_from(ROLES)),
    st.builds(
        lambda skill: {"strategy": "capability", "capability": skill, "preferred": "py"},
        st.sampled_from(SKILLS) | st.lists(st.sampled_from(SKILLS), min_size=1),
    ),
)


def with_fallback(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda name, seconds, fallback: {
            "strategy": "direct_with_fallback",
            "agent_id": name,
            "fallback_after_seconds": seconds,
            "fallback": fallback,
        },
        st.sampled_from(AGENTS),
        st.integers(0, 20),
        inner,
    )


def mixed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(lambda rules: {"strategy": "mixed", "rules": rules}, st.lists(inner, min_size=1, max_size=3))


BROADCAST = st.just({"strategy": "broadcast"})
COMPOUND = st.recursive(SIMPLE, lambda inner: mixed(inner) | with_fallback(inner), max_leaves=6)
TARGETS = COMPOUND | BROADCAST | st.none() | with_fallback(BROADCAST)


def contract_admits(target: Any, agent: Profile, elapsed: int) -> bool:
    """The contract's table of strategies, read row by row: the set of agents that each row describes."""
    if target is None or target["strategy"] == "broadcast":
        return True
    if target["strategy"] == "direct":
        return bool(target["agent_id"] == agent.agent_id)
    if target["strategy"] == "role":
        return bool(target["role"] == agent.role)
    if target["strategy"] == "capability":
        wanted = target["capability"] if isinstance(target["capability"], list) else [target["capability"]]
        return len([skill for skill in wanted if skill in agent.capabilities]) > 0
    if target["strategy"] == "mixed":
        return True in [contract_admits(rule, agent, elapsed) for rule in target["rules"]]
    named = contract_admits({"strategy": "direct", "agent_id": target["agent_id"]}, agent, elapsed)
    opened = elapsed >= target["fallback_after_seconds"]
    return named or (opened and contract_admits(target["fallback"], agent, elapsed))


@given(TARGETS, PROFILES, st.integers(0, 25))
def test_it_admits_whom_the_contract_admits(target: Any, agent: Profile, elapsed: int) -> None:
    now = CREATED + timedelta(seconds=elapsed)
    got = is_eligible(parse_target(target), agent, created_at=CREATED, now=now)
    assert got == contract_admits(target, agent, elapsed)


@pytest.mark.parametrize(("microseconds", "admitted"), [(-1, False), (0, True), (1, True)])
def test_it_opens_a_fallback_at_its_very_instant(microseconds: int, admitted: bool) -> None:
    target = parse_target({"strategy": "direct_with_fallback", "agent_id": "ann", "fallback_after_seconds": 60})
    now = CREATED + timedelta(seconds=60, microseconds=microseconds)
    assert is_eligible(target, Profile("bob"), created_at=CREATED, now=now) is admitted
    assert is_eligible(target, Profile("ann"), created_at=CREATED, now=now)


@pytest.mark.parametrize(
    ("stored", "advertised"),
    [
        (None, set()),
        ("ocr", {"ocr"}),
        ("", set()),
        (["py", "ocr", "py", " "], {"py", "ocr"}),
        ({"py": True, "ocr": 1, "go": False, "c": None, "": True}, {"py", "ocr"}),
    ],
)
def test_it_reads_capabilities_as_they_are_addressed(stored: Any, advertised: set[str]) -> None:
    assert capability_set(stored) == advertised


def see(agent: Profile = Profile("bob"), **changes: Any) -> bool:  # noqa: B008  # frozen
    item: dict[str, Any] = {
        "visibility": "public",
        "target": {"strategy": "direct", "agent_id": "ann"},
        "actor": "eve",
        "item_workspace": "w",
        "workspace": "w",
        "created_at": CREATED,
        "now": CREATED,
    }
    return can_see(agent=agent, **{**item, **changes})


@pytest.mark.parametrize(
    ("visibility", "seen"), [("public", True), (None, True), ("eligible", False), ("private", False)]
)
def test_it_shows_what_is_not_public_to_the_eligible_alone(visibility: str | None, seen: bool) -> None:
    assert see(visibility=visibility) is seen
    assert see(Profile("ann"), visibility=visibility)


@given(TARGETS, PROFILES, st.integers(0, 25))
def test_it_never_makes_private_wider_than_eligible(target: Any, agent: Profile, elapsed: int) -> None:
    when = {"target": parse_target(target), "now": CREATED + timedelta(seconds=elapsed)}
    assert see(agent, visibility="private", **when) == see(agent, visibility="eligible", **when)
    assert see(agent, visibility="eligible", **when) == contract_admits(target, agent, elapsed)


MANY = frozenset(map(str, range(FEW)))
MET = [
    Filters(**{name: frozenset(values) for name, values in given.items()})
    for given in (
        {},
        {"workspace": ["v", "w"]},
        {"stream": ["workspace"]},
        {"workspace": ["w"], "stream": ["handoff", "workspace"]},
        {"workspace": ["w", *MANY], "stream": ["workspace"]},
        {"type": ["note"]},
    )
]
NOT_MET = [
    Filters(workspace=frozenset("v")),
    Filters(stream=frozenset({"handoff"})),
    Filters(workspace=frozenset("w") | MANY, stream=frozenset({"handoff"})),
    Filters(type=frozenset({"another"})),
]


@given(TARGETS, PROFILES, st.sampled_from([None, "public", "eligible", "private", "nonsense"]), st.integers(0, 25))
def test_whoever_sees_an_event_looks_out_for_its_keys(
    target: Any, agent: Profile, visibility: str | None, elapsed: int
) -> None:
    place = {"workspace_id": "w", "stream": "workspace", "type": "note", "actor_agent_id": "bob"}
    event = Event(**place, visibility=visibility, target=parse_target(target), created_at=CREATED)
    if event_visible(event, agent, CREATED + timedelta(seconds=elapsed)):
        assert set(keys_of(event)) & set(interest_keys(["w"], ["workspace"], agent.agent_id))
        assert all(filters.interest(agent.agent_id)(event) for filters in MET)
        assert not any(filters.interest(agent.agent_id)(event) for filters in NOT_MET)
    assert all(filters.interest(None)(event) for filters in MET), "an operator sees all"


@pytest.mark.parametrize(("agent_id", "looks"), [("ann", True), ("eve", True), ("bob", False)])
def test_nobody_else_looks_out_for_what_one_agent_alone_sees(agent_id: str, looks: bool) -> None:
    target = {"strategy": "direct", "agent_id": "ann"}
    place = {"workspace_id": "w", "stream": "workspace", "type": "note", "actor_agent_id": "eve"}
    event = Event(**place, visibility="private", target=target)
    assert bool(set(keys_of(event)) & set(interest_keys(["w"], ["workspace"], agent_id))) is looks
    assert not set(keys_of(event)) & set(interest_keys(["v"], ["workspace", "handoff"], "ann"))
    assert {filters.interest(agent_id)(event) for filters in MET} == {looks}


@pytest.mark.parametrize("visibility", ["eligible", "private", "nonsense"])
def test_it_always_shows_an_actor_its_own_item(visibility: str) -> None:
    assert see(Profile("eve"), visibility=visibility)


@pytest.mark.parametrize(("item", "looker"), [("w", "v"), (None, "w"), ("w", None), (None, None), ("", "")])
def test_it_keeps_workspaces_apart_even_for_the_actor(item: str | None, looker: str | None) -> None:
    assert not see(Profile("eve"), item_workspace=item, workspace=looker)


@given(JSON | st.fixed_dictionaries({"strategy": st.sampled_from(["mixed", "capability", "role", "bogus"])}))
def test_it_shows_a_poisoned_item_to_nobody_and_raises_nothing(target: Any) -> None:
    if target is not None:
        assert not see(visibility="eligible", target=target)


@pytest.mark.parametrize("seconds", [10**30, float("nan"), "soon", None])
def test_it_survives_a_poisoned_fallback(seconds: Any) -> None:
    target = {"strategy": "direct_with_fallback", "agent_id": "x", "fallback_after_seconds": seconds, "fallback": {}}
    assert not see(visibility="eligible", target=target)
