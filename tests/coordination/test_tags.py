"""Tags: a catalog that operators keep, agents that have tags of it, and targets that name them."""

from __future__ import annotations

from typing import Any

import pytest

from coordination.routing import Profile, eligible_agents, parse_target, tag_set
from nexus.core.clock import now
from nexus.core.operations.errors import NexusError
from tests.conftest import Call, at_once, does

TAGS: dict[str, dict[str, Any]] = {
    "ana": {"team": ["core"], "area": ["ENG/BACKEND"]},
    "bob": {"team": ["web", "core"]},
    "cleo": {"area": ["ENGX"]},
    "dora": {},
}


@pytest.fixture
def tagged(call: Call) -> None:
    """Four agents with the tags of TAGS."""
    for key, values in {"team": ("core", "web"), "area": ("ENG", "ENG/BACKEND", "ENGX")}.items():
        for value in (None, *values):
            assert does("tag_create", key=key, **({"value": value} if value else {}))["ok"]
    for name, tags in TAGS.items():
        call("agent_register", agent_id=name)
        assert does("agent_update", agent_id=name, tags=tags)["ok"]


def admits(selector: Any) -> list[str]:
    target = parse_target({"strategy": "tag", "selector": selector})
    agents = [Profile(name, tags=tag_set(tags)) for name, tags in TAGS.items()]
    return [agent.agent_id for agent in eligible_agents(target, agents, created_at=now(), now=now())]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ({"team": "core"}, ["ana", "bob"]),
        ({"team": ["web", "none"]}, ["bob"]),
        ({"team": ["core"], "area": ["ENG"]}, ["ana"]),
        ({"area": ["ENG/BACK"]}, []),
        ([{"key": "team", "operator": "In", "values": ["core"]}], ["ana", "bob"]),
        ([{"key": "area", "operator": "NotIn", "values": ["ENG"]}], ["bob", "cleo", "dora"]),
        ([{"key": "team", "operator": "Exists"}], ["ana", "bob"]),
        ([{"key": "team", "operator": "DoesNotExist", "values": []}], ["cleo", "dora"]),
        ([{"key": "area", "operator": "Exists"}, {"key": "area", "operator": "NotIn", "values": "ENG"}], ["cleo"]),
    ],
)
def test_a_selector_admits_as_in_okto_nexus(selector: Any, names: list[str]) -> None:
    assert admits(selector) == names


@pytest.mark.parametrize(
    "selector",
    [
        None, {}, [], "team", 7, {"": ["a"]}, {"team": []}, {"team": [""]}, {"team": [7]}, {"team": {}},
        {"team": ["a"] * 21}, {"team": ["a" * 256]}, {"a": ["x"], " a": ["y"]}, ["team"], [{"key": "team"}],
        [{"key": "team", "operator": "in", "values": ["a"]}], [{"key": "team", "operator": "In"}],
        [{"key": "team", "operator": "Exists", "values": ["a"]}], [{"key": "team", "operator": "Exists", "vaules": []}],
        [{"key": ["a"], "operator": "Exists"}], [{"key": "a", "operator": ["In"], "values": ["a"]}],
        {str(number): ["x" * 200] for number in range(100)},
    ],
)  # fmt: skip
def test_a_malformed_selector_is_refused(selector: Any) -> None:
    with pytest.raises(NexusError) as caught:
        parse_target({"strategy": "tag", "selector": selector})
    assert caught.value.code == "VALIDATION_ERROR"


def test_a_message_reaches_those_whose_tags_match(tagged: None, call: Call, refused: Call, project: str) -> None:
    letter: dict[str, Any] = {"project_root": project, "from_agent_id": "ana", "subject": "s", "body": "b"}
    sent = call("message_create", **letter, target={"strategy": "tag", "selector": {"team": ["core"]}})
    assert sent["recipients"] == ["bob"]
    mixed = {"strategy": "mixed", "rules": [{"strategy": "tag", "selector": {"area": ["ENGX"]}},
                                            {"strategy": "direct", "agent_id": "dora"}]}  # fmt: skip
    assert call("message_create", **letter, target=mixed)["recipients"] == ["cleo", "dora"]
    nobody = {"strategy": "tag", "selector": {"area": ["ENG/BACKEND"]}}  # but the sender
    assert refused("message_create", **letter, target=nobody)["code"] == "NOT_FOUND"
    for unknown in ({"team": ["cora"]}, [{"key": "tem", "operator": "DoesNotExist"}]):
        for target in (
            {"strategy": "tag", "selector": unknown},
            {**mixed, "rules": [{"strategy": "tag", "selector": unknown}]},
        ):
            error = refused("message_create", **letter, target=target)
            assert error["code"] == "VALIDATION_ERROR" and "tag_list" in error["message"]


def test_a_handoff_is_for_those_whose_tags_match(tagged: None, call: Call, refused: Call, project: str) -> None:
    offer = {"project_root": project, "from_agent_id": "dora", "visibility": "eligible", "title": "t"}
    selector = [{"key": "team", "operator": "DoesNotExist"}]
    made = call("handoff_create", **offer, target={"strategy": "tag", "selector": selector})
    assert made["eligible_count"] == 2
    seen = [
        name for name in TAGS
        if call("handoff_list_available", project_root=project, agent_id=name)["handoffs"]
    ]  # fmt: skip
    assert seen == ["cleo", "dora"]
    claim = {"project_root": project, "handoff_id": made["handoff_id"]}
    assert refused("handoff_claim", **claim, agent_id="ana")["code"] == "NOT_ELIGIBLE_TO_CLAIM"
    call("handoff_claim", **claim, agent_id="cleo")
    later = {"strategy": "direct_with_fallback", "agent_id": "ana", "fallback_after_seconds": 60,
             "fallback": {"strategy": "tag", "selector": {"none": ["x"]}}}  # fmt: skip
    assert refused("handoff_create", **offer, target=later)["code"] == "VALIDATION_ERROR"


def test_the_catalog_is_listed_by_key(tagged: None, call: Call) -> None:
    does("tag_create", key="empty", description="No values yet.")
    listed = call("tag_list")
    assert listed["total"] == 3
    assert [(tag["key"], [each["value"] for each in tag["values"]]) for tag in listed["tags"]] == [
        ("area", ["ENG", "ENG/BACKEND", "ENGX"]), ("empty", []), ("team", ["core", "web"]),
    ]  # fmt: skip
    assert listed["tags"][1]["description"] == "No values yet."


def test_agents_show_their_tags_and_keep_them(tagged: None, call: Call, refused: Call) -> None:
    assert call("agent_get", agent_id="bob")["tags"] == {"team": ["web", "core"]}
    assert "tags" not in call("agent_get", agent_id="dora")
    call("agent_register", agent_id="bob", role="r")  # an agent names no tags
    assert call("agent_get", agent_id="bob")["tags"] == {"team": ["web", "core"]}
    assert refused("agent_register", agent_id="bob", tags={"team": ["web"]})["code"] == "VALIDATION_ERROR"
    malformed: list[Any] = [{"team": ["none"]}, {"none": ["core"]}, {"team": []}, [], {"team": ["core"] * 21}]
    for wrong in malformed:
        assert does("agent_update", agent_id="bob", tags=wrong)["error"]["code"] == "VALIDATION_ERROR"


def test_a_tag_that_an_agent_has_stays(tagged: None) -> None:
    def code(**given: str) -> Any:
        return does("tag_delete", **given).get("error", {}).get("code")

    assert code(key="team", value="web") == code(key="team") == "TAG_IN_USE"
    assert code(key="team", value="none") == code(key="none") == "NOT_FOUND"
    assert does("tag_create", key="team")["error"]["code"] == "VALIDATION_ERROR"
    assert does("tag_create", key="none", value="x")["error"]["code"] == "NOT_FOUND"
    assert does("tag_create", key="team", value="unused")["ok"] and code(key="team", value="unused") is None
    for name in TAGS:
        does("agent_update", agent_id=name, tags={})
    assert code(key="team", value="web") is None
    assert code(key="team") is None and code(key="area") is None
    assert does("tag_list")["data"]["total"] == 0


def test_of_two_that_make_one_tag_one_does(committed: None) -> None:
    made = at_once([lambda: does("tag_create", key="team") for _ in range(4)])
    assert sorted(answer["ok"] for answer in made) == [False, False, False, True]
    assert {answer["error"]["code"] for answer in made if not answer["ok"]} == {"VALIDATION_ERROR"}


def test_agents_cannot_change_the_catalog(call: Call, refused: Call) -> None:
    assert refused("tag_create", key="team")["code"] == "NOT_OWNER"
