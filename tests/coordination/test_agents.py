"""Agents: global identities, and what can be found out about them."""

from __future__ import annotations

from typing import Any

import pytest
import time_machine

from coordination.toolset import run
from nexus.core.operations.caller import Caller
from tests.conftest import Call, does

NEW, LATER = "2026-01-01T00:00:00.000000Z", "2026-01-02T00:00:00.000000Z"


def test_it_registers_an_agent_and_gives_its_profile_back(call: Call) -> None:
    with time_machine.travel(NEW, tick=False):
        profile = call("agent_register", agent_id="ann", role="reviewer", capabilities=["py"], metadata={"n": 1})
    assert profile == {
        "agent_id": "ann",
        "role": "reviewer",
        "capabilities": ["py"],
        "metadata": {"n": 1},
        "created_at": NEW,
        "updated_at": NEW,
        "last_seen_at": NEW,
    }
    del profile["updated_at"]
    assert call("agent_get", agent_id="ann") == profile
    assert call("agent_list")["agents"] == [profile]


def test_it_updates_what_a_new_registration_names_and_keeps_the_rest(call: Call) -> None:
    with time_machine.travel(NEW, tick=False):
        call("agent_register", agent_id="ann", role="reviewer", capabilities=["py"], metadata={"n": 1})
    with time_machine.travel(LATER, tick=False):
        again = call("agent_register", agent_id="ann", role="planner", metadata=None)
    assert (again["role"], again["capabilities"], again["metadata"]) == ("planner", ["py"], None)
    assert (again["created_at"], again["updated_at"]) == (NEW, LATER)


def test_it_takes_an_id_as_an_opaque_exact_string(call: Call, refused: Call) -> None:
    for agent_id in ("Ann", "ann", " ann", "änn/#%", '{"a": 1}'):
        assert call("agent_register", agent_id=agent_id)["agent_id"] == agent_id
    assert len(call("agent_list")["agents"]) == 5
    assert refused("agent_get", agent_id="ANN")["code"] == "NOT_FOUND"


def test_it_lists_agents_in_the_order_they_came(call: Call) -> None:
    for day, agent_id in enumerate(("zoe", "ann", "bob"), start=1):
        with time_machine.travel(f"2026-01-0{day}T00:00:00Z", tick=False):
            call("agent_register", agent_id=agent_id)
    call("agent_register", agent_id="zoe")
    assert [agent["agent_id"] for agent in call("agent_list")["agents"]] == ["zoe", "ann", "bob"]


def test_it_lists_those_present_alone(call: Call, workspace: str) -> None:
    with time_machine.travel(NEW, tick=False):
        for agent_id in ("ann", "bob", "cleo", "dan"):
            call("agent_register", agent_id=agent_id)
        call("session_open", agent_id="cleo", workspace_id=workspace)
    with time_machine.travel(LATER, tick=False):
        sessions = [call("session_open", agent_id=each, workspace_id=workspace) for each in ("ann", "bob", "dan")]
        call("session_close", session_id=sessions[1]["session_id"])
        page = call("agent_list", present=True, limit=1)
        assert [agent["agent_id"] for agent in page["agents"]] == ["ann"] and page["has_more"]
        page = call("agent_list", present=True, limit=1, cursor=page["next_cursor"])
        assert [agent["agent_id"] for agent in page["agents"]] == ["dan"] and not page["has_more"]


@pytest.mark.parametrize("arguments", [{}, {"agent_id": None}, {"agent_id": ""}, {"agent_id": "  "}, {"agent_id": 7}])
@pytest.mark.parametrize("name", ["agent_register", "agent_get"])
def test_it_wants_an_agent_id(refused: Call, name: str, arguments: dict[str, Any]) -> None:
    error = refused(name, **arguments)
    assert (error["code"], error["details"]) == ("VALIDATION_ERROR", {"field": "agent_id"})


@pytest.mark.parametrize(
    "capabilities", [7, True, [1], [None], [["py"]], ["py", 1], "p" * 256, ["py", "p" * 256], {"p" * 256: True}]
)
def test_it_refuses_capabilities_that_nobody_could_address(refused: Call, call: Call, capabilities: Any) -> None:
    assert refused("agent_register", agent_id="ann", capabilities=capabilities)["code"] == "VALIDATION_ERROR"
    assert call("agent_list")["agents"] == []


@pytest.mark.parametrize("field", ["capabilities", "metadata"])
def test_it_holds_inline_fields_to_the_limit_inclusively(refused: Call, call: Call, configure: Any, field: str) -> None:
    configure(max_inline_bytes=12)
    call("agent_register", agent_id="ann", **{field: ["12345678"]})
    error = refused("agent_register", agent_id="ann", **{field: ["ü2345678"]})
    assert (error["code"], error["details"]["size"]) == ("CONTENT_TOO_LARGE", 13)


def test_it_refuses_tags_over_the_limit_before_it_looks_them_up(configure: Any, call: Call) -> None:
    call("agent_register", agent_id="ann")
    configure(max_inline_bytes=20)
    answer = does("agent_update", agent_id="ann", tags={"team": ["a" * 20]})
    assert answer["error"]["code"] == "CONTENT_TOO_LARGE"


def test_it_keeps_metadata_as_the_json_that_it_was(call: Call) -> None:
    for value in ('{"a": 1}', [1, 2.5, None, True], "", 0, False, {"k": {"ü": "🙂"}}, 10**40):
        assert call("agent_register", agent_id="ann", metadata=value)["metadata"] == value
        assert call("agent_get", agent_id="ann")["metadata"] == value


def test_it_lists_each_addressable_capability_with_its_agents(call: Call) -> None:
    call("agent_register", agent_id="zoe", capabilities=["py", "OCR", " "])
    call("agent_register", agent_id="ann", capabilities={"py": True, "go": False, "": True})
    call("agent_register", agent_id="bob", capabilities="ocr")
    call("agent_register", agent_id="eve")
    assert call("capability_list")["capabilities"] == [
        {"capability": "OCR", "agent_count": 1, "agents": ["zoe"]},
        {"capability": "ocr", "agent_count": 1, "agents": ["bob"]},
        {"capability": "py", "agent_count": 2, "agents": ["ann", "zoe"]},
    ]


def test_it_tells_a_bound_connection_who_it_is(call: Call, ann: str) -> None:
    assert run(Caller("test", agent_id=ann), "agent_whoami", {})["data"] == call("agent_get", agent_id=ann)


def test_it_tells_an_unbound_connection_that_it_is_nobody(refused: Call) -> None:
    assert refused("agent_whoami")["code"] == "VALIDATION_ERROR"


def test_it_stamps_every_action_of_an_agent(call: Call, ann: str, project: str, workspace: str) -> None:
    handoff = {"target": {"strategy": "role", "role": "reviewer"}, "visibility": "public"}
    session = call("session_open", agent_id=ann, workspace_id=workspace)["session_id"]
    work = [call("handoff_create", project_root=project, from_agent_id="boss", **handoff)["handoff_id"] for _ in "12"]
    actions: list[tuple[str, dict[str, Any]]] = [
        ("session_heartbeat", {"session_id": session}),
        ("session_close", {"session_id": session}),
        ("session_open", {"agent_id": ann, "workspace_id": workspace}),
        ("message_create", {"project_root": project, "from_agent_id": ann, "subject": "s", "body": "b"}),
        ("inbox_pull", {"agent_id": ann}),
        ("inbox_ack", {"agent_id": ann, "message_ids": "m"}),
        ("handoff_create", {"project_root": project, "from_agent_id": ann, **handoff}),
        ("handoff_claim", {"project_root": project, "handoff_id": work[0], "agent_id": ann}),
        ("handoff_complete", {"project_root": project, "handoff_id": work[0], "agent_id": ann}),
        ("handoff_claim", {"project_root": project, "handoff_id": work[1], "agent_id": ann}),
        ("handoff_reject", {"project_root": project, "handoff_id": work[1], "agent_id": ann}),
        ("event_get", {"project_root": project, "agent_id": ann, "stream": "agent"}),
        ("event_wait", {"project_root": project, "agent_id": ann, "stream": "agent"}),
    ]
    with time_machine.travel("2030-01-01T00:00:00Z", tick=False) as clock:
        for name, arguments in actions:
            clock.shift(1)
            before = call("agent_get", agent_id=ann)["last_seen_at"]
            call(name, **arguments)
            assert call("agent_get", agent_id=ann)["last_seen_at"] > before, name


def test_it_leaves_the_stamp_alone_when_others_look(call: Call, ann: str, project: str) -> None:
    before = call("agent_get", agent_id=ann)
    call("agent_list")
    call("capability_list")
    call("event_get", project_root=project, agent_id="nobody", stream="workspace")
    assert call("agent_get", agent_id=ann) == before
