"""The agents that a target admits, as the store looks them up."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings

from coordination import selectors
from coordination.routing import Profile, capability_set, eligible_agents, parse_target
from nexus.core.clock import now
from tests.conftest import Call, examples
from tests.coordination.test_eligibility import TARGETS

TEAM: dict[str, dict[str, Any]] = {
    "ann": {"role": "reviewer", "capabilities": ["ocr", "OCR"]},
    "bob": {"role": "Reviewer", "capabilities": {"py": True, "ocr": False}},
    "Ann": {"capabilities": "py"},
    "cy": {"role": "tester", "capabilities": ["copying", "naïve", "a_b", "axb", 'say "py"']},
}


@pytest.fixture
def many(call: Call) -> None:
    for agent_id, profile in TEAM.items():
        call("agent_register", agent_id=agent_id, **profile)


def names(target: Any) -> list[str]:
    return sorted(agent.agent_id for agent in selectors.admitted(parse_target(target), now()))


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(target=TARGETS)
def test_it_finds_whom_the_rules_admit_among_all(many: None, target: Any) -> None:
    moment, parsed = now(), parse_target(target)
    everyone = eligible_agents(parsed, selectors.profiles(), created_at=moment, now=moment)
    assert names(target) == sorted(agent.agent_id for agent in everyone)
    assert selectors.count_admitted(parsed, moment) == len(everyone)


@pytest.mark.parametrize(
    ("capability", "found"),
    [("py", ["Ann", "bob"]), ("naïve", ["cy"]), ("a_b", ["cy"]), ('say "py"', ["cy"]), ("o", []), ("ocr", ["ann"])],
)
def test_a_capability_is_the_whole_of_it(many: None, capability: str, found: list[str]) -> None:
    assert names({"strategy": "capability", "capability": capability}) == found


@pytest.mark.parametrize(
    "target", [{"strategy": "role", "role": "tester"}, {"strategy": "capability", "capability": "a_b"}]
)
def test_it_reads_the_profiles_of_those_alone_whom_a_target_names(
    many: None, monkeypatch: pytest.MonkeyPatch, target: Any
) -> None:
    read = Mock(wraps=Profile)
    monkeypatch.setattr(selectors, "Profile", read)
    assert names(target) == ["cy"]
    assert read.call_count == 1


@pytest.mark.parametrize("target", [None, {"strategy": "broadcast"}])
def test_it_counts_everyone_without_reading_them(many: None, monkeypatch: pytest.MonkeyPatch, target: Any) -> None:
    monkeypatch.setattr(selectors, "profiles", Mock(side_effect=AssertionError))
    assert selectors.count_admitted(target, now()) == len(TEAM)


def test_it_parses_the_capabilities_that_many_share_once(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(9):
        call("agent_register", agent_id=f"a{number}", capabilities=["shared by nine", "py"])
    parsed = Mock(wraps=capability_set)
    monkeypatch.setattr(selectors, "capability_set", parsed)
    assert [row["agent_count"] for row in call("capability_list")["capabilities"]] == [9, 9]
    assert parsed.call_count == 1
