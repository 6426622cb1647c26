"""Who acts in the pool, and on whom: identity is proved, a header only narrows, and every refusal names its rule."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordination.toolset import run
from nexus.client.jsonrpc import INVALID_PARAMS
from nexus.control.agents import turns
from nexus.control.models import PoolAgent, Turn
from nexus.control.permissions.members import TURN_TRANSPORT
from nexus.core.config import CoreSettings
from nexus.core.operations import dispatch
from nexus.core.operations.caller import Caller
from nexus.core.operations.registry import TOOLSETS
from tests.control.wire import Wire, narrowed, request

OPERATOR = Caller("test", operator="ops")
FAMILY = {"top": None, "kid": "top", "grandkid": "kid", "sibling": "top", "stranger": None}


@pytest.fixture
def family(rpc: Wire, tmp_path: Path) -> Path:
    """Trusted agents in three generations, and one beside them; the directory of all."""
    for agent_id, parent in FAMILY.items():
        rpc.call("create_agent", agent_id=agent_id, preset="trusted", parent_agent_id=parent, cwd=str(tmp_path))
    return tmp_path


def key_of(agent_id: str) -> str:
    """A new key of an agent's."""
    if agent_id == "outsider":
        run(OPERATOR, "agent_register", {"agent_id": agent_id})
    key: str = run(OPERATOR, "agent_key_issue", {"agent_id": agent_id})["data"]["api_key"]
    return key


def by_key(rpc: Wire, key: str, method: str, path: str = "/rpc", headers: Any = (), **params: Any) -> Any:
    return rpc.post(path, request(method, params), token=key, headers=headers).json


BELOW = {"top": {"kid", "grandkid", "sibling"}, "kid": {"grandkid"}}


@pytest.mark.parametrize("actor", FAMILY)
@pytest.mark.parametrize("how", ["header", "key"])
def test_an_agent_ends_itself_and_what_descends_from_it(rpc: Wire, family: Path, actor: str, how: str) -> None:
    proof = {"headers": [("x-nexus-agent", actor)]} if how == "header" else {"token": key_of(actor)}
    living = set(FAMILY)
    for target in sorted(FAMILY, key=lambda name: name == actor):  # itself last
        answer = rpc.post("/rpc", request("destroy_agent", {"agent_id": target}), **proof).json
        if target == actor or target in BELOW.get(actor, ()):
            assert answer["result"] == {"success": True, "agent_id": target}
            living -= {target}
        else:
            assert answer["error"]["code"] == INVALID_PARAMS
            assert answer["error"]["data"] == {"code": "NOT_PERMITTED", "details": {"rule": "lineage"}}
        assert {agent["agent_id"] for agent in rpc.call("list_agents")["agents"]} == living


def test_without_a_header_the_token_ends_whomever_it_names(rpc: Wire, family: Path) -> None:
    assert rpc.call("destroy_agent", agent_id="grandkid") == {"success": True, "agent_id": "grandkid"}
    assert rpc.call("destroy_agent", agent_id="grandkid") == {"success": False, "agent_id": "grandkid"}


def test_a_header_that_names_no_agent_is_refused(rpc: Wire, family: Path) -> None:
    for named in [[""], [" "], ["nobody"], ["top", "top"], ["TOP"], ["top\t"], ["\xff"], ["../top"]]:
        for method, params in [("destroy_agent", {"agent_id": "kid"}), ("list_agents", {})]:
            answer = rpc.post("/rpc", request(method, params), headers=[("x-nexus-agent", name) for name in named])
            assert (answer.status, answer.code, answer.json["id"]) == (200, INVALID_PARAMS, 1)
            assert len(rpc.call("list_agents")["agents"]) == len(FAMILY)


def test_a_header_beside_a_key_names_its_own_agent_or_is_refused(rpc: Wire, family: Path) -> None:
    key = key_of("kid")
    assert "result" in by_key(rpc, key, "list_agents", headers=[("x-nexus-agent", "kid")])
    claimed = by_key(rpc, key, "destroy_agent", agent_id="sibling", headers=[("x-nexus-agent", "top")])
    assert claimed["error"]["code"] == INVALID_PARAMS


def test_a_key_of_an_agent_outside_the_pool_opens_nothing_of_it(rpc: Wire, family: Path) -> None:
    key = key_of("outsider")
    for method, path, params in [
        ("list_agents", "/rpc", {}),
        ("create_agent", "/rpc", {}),
        ("create_agent", "/rpc", {"model": "nothing"}),
        ("destroy_agent", "/rpc", {"agent_id": "top"}),
        ("send", "/agent/top", {"content": "x"}),
        ("send", "/agent/nobody", {"content": "x"}),
        ("get_messages", "/agent/top", {}),
        ("cancel", "/agent/top", {"request_id": "x"}),
        ("shutdown", "/agent/top", {}),
        ("compact", "/agent/nobody", {}),
    ]:
        error = by_key(rpc, key, method, path, **params)["error"]
        assert (error["code"], error["data"]["details"]["rule"]) == (INVALID_PARAMS, "member"), method
    named = [by_key(rpc, key, "list_agents", headers=[("x-nexus-agent", name)]) for name in ("top", "nobody")]
    assert named[0] == named[1], "whether there is such an agent"


def test_an_agent_reaches_itself_and_its_descendants_alone(rpc: Wire, family: Path) -> None:
    every: dict[str, dict[str, Any]] = {
        "send": {"content": "x", "timeout_seconds": 0},
        "cancel": {"request_id": "x"},
    }
    for method in ["send", "cancel", "get_tokens", "get_context", "get_messages", "compact", "shutdown"]:
        params = every.get(method, {})
        assert rpc.call(method, "/agent/grandkid", as_agent="top", **params)
        for other in ("top", "sibling", "stranger"):
            error = rpc.refused(method, f"/agent/{other}", as_agent="kid", **params)
            assert (error["code"], error["data"]["details"]["rule"]) == (INVALID_PARAMS, "lineage")


def test_an_agent_sends_as_itself_and_an_operator_may_say_for_whom(rpc: Wire, family: Path) -> None:
    sent = {"content": "x", "timeout_seconds": 0}
    for number, (as_agent, said) in enumerate([("top", None), ("top", "top"), (None, "someone"), (None, None)]):
        told = {} if said is None else {"source_agent_id": said}
        rpc.call("send", "/agent/kid", as_agent=as_agent, request_id=str(number), **sent, **told)
    told_of = list(Turn.objects.order_by("turn_id").values_list("source_agent_id", flat=True))
    assert told_of == ["top", "top", "someone", None]
    error = rpc.refused("send", "/agent/kid", as_agent="top", source_agent_id="sibling", **sent)
    assert (error["code"], error["data"]["details"]["rule"]) == (INVALID_PARAMS, "identity")


def test_no_agent_ends_the_server(rpc: Wire, family: Path) -> None:
    error = rpc.refused("shutdown_server", as_agent="top")
    assert (error["code"], error["data"]["details"]["rule"]) == (INVALID_PARAMS, "operators")


def test_an_agent_creates_below_itself_whatever_it_claims(rpc: Wire, family: Path) -> None:
    rpc.call("create_agent", agent_id="mine", as_agent="kid")
    [mine] = [agent for agent in rpc.call("list_agents")["agents"] if agent["agent_id"] == "mine"]
    assert (mine["parent_agent_id"], mine["permission_level"]) == ("kid", "sandboxed")
    for claimed in ("top", "sibling", "nobody"):
        error = rpc.refused("create_agent", as_agent="kid", parent_agent_id=claimed)
        assert (error["code"], error["data"]["details"]["rule"]) == (INVALID_PARAMS, "lineage")


def test_a_refusal_names_the_rule_and_makes_nothing(rpc: Wire, family: Path) -> None:
    (family / "sub").mkdir()
    (family / "beside").mkdir()
    rpc.call("create_agent", agent_id="narrow", preset="trusted", cwd=str(family / "sub"), allowed_write_paths=[])
    rpc.call("create_agent", agent_id="low", parent_agent_id="top")
    rpc.call("create_agent", agent_id="barred", preset="trusted", disable_tools=["create_agent"], cwd=str(family))
    before = rpc.call("list_agents")
    refused: list[tuple[str, str | None, dict[str, Any]]] = [
        ("yolo", None, {"preset": "yolo"}),
        ("ceiling", "kid", {"preset": "trusted"}),
        ("agents", "low", {}),
        ("agents", "barred", {}),
        ("agents", None, {"parent_agent_id": "low", "preset": "worker"}),
        ("cwd", "narrow", {"cwd": str(family)}),
        ("cwd", "narrow", {"cwd": str(family / "beside")}),
        ("write_paths", "narrow", {"allowed_write_paths": [str(family / "sub")]}),
        ("write_paths", None, {"cwd": str(family / "sub"), "allowed_write_paths": [str(family / "beside")]}),
        ("write_paths", None, {"cwd": str(family / "sub"), "allowed_write_paths": ["../beside"]}),
        ("write_paths", None, {"preset": "worker", "cwd": str(family), "allowed_write_paths": [str(family / "sub")]}),
    ]
    for rule, as_agent, params in refused:
        error = rpc.refused("create_agent", as_agent=as_agent, agent_id="new", initial_message="x", **params)
        assert (error["code"], error["data"]["details"]["rule"]) == (INVALID_PARAMS, rule), (as_agent, params)
    assert rpc.call("list_agents") == before


def test_no_agent_gives_away_what_is_the_hubs(rpc: Wire, family: Path, configure: Callable[..., None]) -> None:
    home = family / ".nexus"
    (home / "logs").mkdir(parents=True)
    configure(control=True, home=home, db_path=CoreSettings.current().database)
    for params in (
        {"cwd": str(home)},
        {"cwd": str(home / "logs")},
        {"allowed_write_paths": [str(home / "rpc.token")]},
        {"allowed_write_paths": [".nexus"]},
    ):
        error = rpc.refused("create_agent", as_agent="top", agent_id="new", **params)
        assert error["data"]["details"] == {"rule": "home"}, params
    rpc.call("create_agent", as_agent="top", agent_id="new", allowed_write_paths=["src"])


def test_a_symbolic_link_leads_where_it_leads(rpc: Wire, family: Path) -> None:
    (family / "sub").mkdir()
    (family / "sub" / "out").symlink_to(family)
    rpc.call("create_agent", agent_id="narrow", preset="trusted", cwd=str(family / "sub"))
    for params in ({"cwd": str(family / "sub" / "out")}, {"allowed_write_paths": ["out"]}):
        assert "rule" in rpc.refused("create_agent", as_agent="narrow", **params)["data"]["details"]


def test_a_ceiling_is_asked_before_the_disk(rpc: Wire, family: Path) -> None:
    (family / "sub").mkdir()
    rpc.call("create_agent", agent_id="narrow", preset="trusted", cwd=str(family / "sub"))
    told = [
        rpc.refused("create_agent", as_agent="narrow", cwd=str(family / path), worktree=worktree)["data"]
        for path in ("", "not-there", "sub/../not-there")
        for worktree in (False, True)
    ]
    assert all(data == {"code": "NOT_PERMITTED", "details": {"rule": "cwd"}} for data in told), told
    within = rpc.refused("create_agent", as_agent="narrow", cwd=str(family / "sub" / "not-there"))["data"]
    assert within["code"] == "VALIDATION_ERROR"


@pytest.mark.parametrize("worktree", [False, True])
def test_a_directory_that_cannot_be_looked_at_is_none_and_no_fault_of_the_servers(
    rpc: Wire, caplog: pytest.LogCaptureFixture, worktree: bool
) -> None:
    gc.collect()  # asyncio tells then of what nobody asked for: first, of what other tests left
    caplog.clear()
    error = rpc.refused("create_agent", cwd="/" + "a" * 300, worktree=worktree)["data"]
    assert (error["code"], error["details"]) == ("VALIDATION_ERROR", {"field": "cwd"})
    gc.collect()
    assert caplog.messages == []


def test_a_server_whose_own_directory_is_gone_asks_for_another(
    rpc: Wire, family: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = family / "own"
    own.mkdir()
    monkeypatch.chdir(own)
    own.rmdir()
    for worktree in (False, True):
        error = rpc.refused("create_agent", agent_id="x", worktree=worktree)
        assert (error["data"]["code"], error["data"]["details"]) == ("VALIDATION_ERROR", {"field": "cwd"})
    rpc.call("create_agent", agent_id="x", cwd=str(family), allowed_write_paths=["sub"])
    rpc.call("create_agent", agent_id="y", parent_agent_id="top")


def test_a_tool_that_was_taken_away_is_not_there_over_the_wire_either(rpc: Wire, family: Path) -> None:
    taken = ["send", "cancel", "destroy_agent", "create_agent"]
    rpc.call("create_agent", agent_id="barred", preset="trusted", disable_tools=taken, cwd=str(family))
    rpc.call("create_agent", agent_id="low", cwd=str(family))
    sent = {"content": "x", "timeout_seconds": 0}
    tries: list[tuple[str, str, str, dict[str, Any]]] = [
        ("barred", "send", "/agent/barred", sent),
        ("barred", "cancel", "/agent/barred", {"request_id": "x"}),
        ("barred", "destroy_agent", "/rpc", {"agent_id": "barred"}),
        ("low", "send", "/agent/low", sent),  # it would go on for ever, with nobody's bound
    ]
    for as_agent, method, path, params in tries:
        error = rpc.refused(method, path, as_agent=as_agent, **params)
        assert error["data"] == {"code": "NOT_PERMITTED", "details": {"rule": "tools"}}, (as_agent, method)


def test_a_preset_has_its_toolsets_whatever_they_are_called_through(rpc: Wire, family: Path) -> None:
    for preset in ("worker", "sandboxed"):
        rpc.call("create_agent", agent_id=preset, preset=preset, cwd=str(family))

    def refused(agent_id: str, toolset: str, operation: str, **arguments: Any) -> Any:
        caller = Caller("rest", agent_id=agent_id)
        outcome = dispatch.perform(TOOLSETS[toolset], caller, operation, {"project_root": str(family), **arguments})
        return None if outcome.error is None else outcome.error.details.get("rule")

    assert refused("worker", "planning", "plan_status") == "toolsets"
    assert refused("sandboxed", "planning", "plan_status") != "toolsets"
    assert refused("worker", "coordination", "channel_list") is None
    assert refused("nobody-of-the-pool", "planning", "plan_status") != "toolsets"


def test_an_agent_makes_no_project_outside_of_its_directory_and_learns_of_none(rpc: Wire, family: Path) -> None:
    inside, outside = family / "sub", family / "beside"
    inside.mkdir()
    outside.mkdir()
    rpc.call("create_agent", agent_id="narrow", cwd=str(inside))
    (inside / "link").symlink_to(outside)
    caller = Caller("rest", agent_id="narrow")

    def resolve(path: Path) -> Any:
        return run(caller, "workspace_resolve", {"project_root": str(path)})

    for path in (outside, family, family / "not-there", inside / "link", Path("/")):
        error = resolve(path)["error"]
        assert (error["code"], error["details"]) == ("NOT_PERMITTED", {"rule": "cwd"}), path
    assert resolve(inside)["ok"]
    assert run(OPERATOR, "workspace_resolve", {"project_root": str(outside)})["ok"]
    assert resolve(outside)["ok"], "what is a project already, agents of the bus may name"
    assert run(Caller("rest", agent_id="somebody"), "workspace_resolve", {"project_root": str(family)})["ok"]


def test_who_bears_a_name_again_inherits_no_children(rpc: Wire, family: Path) -> None:
    rpc.call("destroy_agent", agent_id="kid")
    rpc.call("create_agent", agent_id="kid", preset="trusted", cwd=str(family))
    assert rpc.refused("destroy_agent", as_agent="kid", agent_id="grandkid")["data"]["details"]["rule"] == "lineage"
    assert rpc.call("destroy_agent", as_agent="top", agent_id="grandkid")["success"]


def test_an_agent_that_ended_acts_no_more(rpc: Wire, family: Path) -> None:
    key = key_of("kid")
    rpc.call("destroy_agent", agent_id="kid")
    assert rpc.post("/rpc", request("list_agents"), token=key).status == 403
    rpc.call("create_agent", agent_id="kid", cwd=str(family))
    assert rpc.post("/rpc", request("list_agents"), token=key).status == 403, "who bears the name next is another"
    rpc.call("destroy_agent", agent_id="kid")
    assert rpc.refused("list_agents", as_agent="kid")["code"] == INVALID_PARAMS


def test_a_turn_of_one_that_ended_acts_no_more_though_another_bears_its_name(rpc: Wire, family: Path) -> None:
    def call(toolset: str, operation: str) -> Any:
        caller = Caller(TURN_TRANSPORT, agent_id="kid", connection=f"{TURN_TRANSPORT}:{pk}")
        error = dispatch.perform(TOOLSETS[toolset], caller, operation, {}).error
        return error and error.details

    pk = PoolAgent.objects.living().get(agent_id="kid").pk
    assert call("coordination", "agent_whoami") is None
    rpc.call("destroy_agent", agent_id="kid")
    rpc.call("create_agent", agent_id="kid", cwd=str(family))
    assert call("coordination", "agent_whoami") == call("control", "pool_list_agents") == {"rule": "member"}


def creates(rpc: Wire, parent: str, where: Path) -> tuple[int, str]:
    """How many agents an agent could create, and why not one more."""
    made = 0
    while "error" not in (answer := create(rpc, parent, where)):
        made += 1
    assert answer["error"]["data"] == {"code": "POOL_FULL"}
    return made, answer["error"]["message"]


def create(rpc: Wire, parent: str | None, where: Path) -> Any:
    asked = request("create_agent", {"cwd": str(where), "preset": "worker"})
    return rpc.post("/rpc", asked, headers=narrowed(parent)).json


def test_one_agent_fills_its_share_of_the_pool_and_all_leave_room_for_operators(
    rpc: Wire, family: Path, configure: Callable[..., None]
) -> None:
    configure(control=True, pool_agents=20)
    made, why = creates(rpc, "kid", family)
    assert made == 6 and "are 10 at most" in why
    assert creates(rpc, "sibling", family)[0] == 0, "it is below the same agent"
    made, why = creates(rpc, "stranger", family)
    assert made == 7 and "ask an operator" in why
    answers = [create(rpc, None, family) for _ in range(3)]
    assert ["error" in answer for answer in answers] == [False, False, True]


def test_agents_leave_a_place_for_operators_in_the_queue_of_an_agent(
    rpc: Wire, family: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "QUEUE", 5)
    sent: dict[str, Any] = {"content": "x", "timeout_seconds": 0}
    for _ in range(4):
        rpc.call("send", "/agent/kid", as_agent="top", **sent)
    assert rpc.refused("send", "/agent/kid", as_agent="top", **sent)["data"] == {"code": "POOL_FULL"}
    rpc.call("send", "/agent/kid", **sent)
