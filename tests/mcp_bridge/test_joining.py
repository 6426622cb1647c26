"""An agent joins with one call, and from then on need not say who it is and where."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from coordination.toolset import COORDINATION
from coordination.toolset import run as operate
from mcp_bridge.features import tools
from nexus.core.operations import dispatch, registry
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import NexusError
from nexus.core.operations.registry import TOOLSETS
from tests.conftest import Call

pytestmark = pytest.mark.django_db


def called(caller: Caller, name: str, **arguments: Any) -> dict[str, Any]:
    toolset = next(each for each in TOOLSETS.values() if name in each.operations)
    return dispatch.run(toolset, caller, name, arguments)


def data(caller: Caller, name: str, **arguments: Any) -> Any:
    body = called(caller, name, **arguments)
    assert body["ok"], body
    return body["data"]


@pytest.fixture
def ana() -> Caller:
    return Caller("stdio", connection="stdio:1-test-of-joining", cwd="/")


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nexus.core.operations.caller._joined", OrderedDict())


def test_one_call_answers_who_is_here_what_waits_and_what_is_reserved(call: Call, ana: Caller, project: str) -> None:
    bob = Caller("stdio", connection="stdio:2-test-of-joining")
    assert data(bob, "join", agent_id="bob", project_root=project, role="reviewer")["here"] == []
    data(bob, "files_reserve", paths=["src/"], reason="the parser")
    data(bob, "handoff_create", target={"strategy": "broadcast"}, visibility="public", title="Scan")
    call("agent_register", agent_id="ana")
    data(bob, "message_create", subject="Hello", body="b", target={"strategy": "direct", "agent_id": "ana"})
    joined = data(ana, "join", agent_id="ana", project_root=project)
    assert joined["here"] == [{"agent_id": "bob", "role": "reviewer"}]
    assert joined["waiting"]["mail"]["unread"] == 1
    assert [offer["title"] for offer in joined["waiting"]["handoffs"]] == ["Scan"]
    assert [(held["agent_id"], held["pattern"]) for held in joined["waiting"]["reserved"]] == [("bob", "/src/")]
    assert joined["next"][0] == "inbox_pull" and len(joined["next"]) == 4
    assert data(ana, "inbox_pull")["messages"][0]["subject"] == "Hello"


def test_a_connection_without_a_key_is_told_that_it_acts_unbound(
    call: Call, ana: Caller, project: str, settings: Any
) -> None:
    warning = data(ana, "join", agent_id="ana", project_root=project)["warning"]
    assert warning == f"No key came with this connection: you act unbound, in the store {settings.NEXUS.location}."
    bound = Caller("stdio", agent_id="bob", connection="stdio:2-test-of-joining", cwd="/")
    assert "warning" not in data(bound, "join", agent_id="bob", project_root=project)


def test_a_connection_that_joined_need_not_say_who_it_is_and_may(call: Call, ana: Caller, project: str) -> None:
    assert called(ana, "inbox_count")["error"]["code"] == "VALIDATION_ERROR"
    data(ana, "join", agent_id="ana", project_root=project)
    sent = data(ana, "message_create", subject="s", body="b")
    assert sent["from_agent_id"] == "ana"
    answer = data(ana, "message_create", subject="s", body="b", parent_message_id=sent["message_id"])
    assert answer["workspace_id"] == sent["workspace_id"]
    call("agent_register", agent_id="bob")
    assert data(ana, "message_create", subject="s", body="b", from_agent_id="bob")["from_agent_id"] == "bob"
    other = Caller("stdio", connection="stdio:3-test-of-joining")
    assert called(other, "message_create", subject="s", body="b", from_agent_id="bob")["error"]["code"] == (
        "WORKSPACE_REQUIRED"
    )


def test_of_too_many_connections_the_one_that_joined_longest_ago_is_forgotten(
    call: Call, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nexus.core.operations.caller.MOST_JOINED", 2)
    ana, bob, cleo = (Caller("stdio", connection=f"stdio:{number}-test-of-joining") for number in range(3))
    for caller, agent_id in ((ana, "ana"), (bob, "bob"), (ana, "ana"), (cleo, "cleo")):
        data(caller, "join", agent_id=agent_id, project_root=project)
    assert data(ana, "inbox_count") == data(cleo, "inbox_count")
    assert called(bob, "inbox_count")["error"]["code"] == "VALIDATION_ERROR"


def test_a_key_says_who_a_connection_is(call: Call, project: str) -> None:
    call("agent_register", agent_id="ana")
    bound = Caller("rest", agent_id="ana", connection="key:1")
    assert data(bound, "inbox_count") == {"unread": 0, "in_flight": 0, "read": 0}
    assert called(bound, "inbox_count", agent_id="bob")["error"]["code"] == "NOT_OWNER"
    assert data(bound, "join", project_root=project)["agent_id"] == "ana"
    assert called(bound, "message_create", subject="s", body="b")["error"]["code"] == "WORKSPACE_REQUIRED"


def test_a_variable_of_the_client_says_who_a_connection_is_where_no_key_does(call: Call, project: str) -> None:
    named = Caller("stdio", named="ana", connection="stdio:7-test-of-joining", cwd="/")
    assert data(named, "join", project_root=project)["agent_id"] == "ana"
    data(named, "join", agent_id="bob", project_root=project)
    assert data(named, "message_create", subject="s", body="b")["from_agent_id"] == "bob"  # it joined under this name


def test_a_key_takes_its_names_in_topics_back(call: Call, project: str) -> None:
    def topics(caller: Caller, name: str, /, **arguments: Any) -> Any:
        return dispatch.perform(TOOLSETS["topics"], caller, name, arguments).result()

    call("agent_register", agent_id="ana")
    before, after = (Caller("http", agent_id="ana", connection=f"mcp:{number}-of-ana") for number in (1, 2))
    topic = topics(before, "topic_create", name="parser")["topic_id"]
    first = topics(before, "topic_join", topic_id=topic, agent_name="red-squirrel")
    stranger = Caller("stdio", connection="stdio:9-no-key")
    assert "topics" not in data(stranger, "join", agent_id="ana", project_root=project)["waiting"]
    assert data(after, "join", project_root=project)["waiting"]["topics"] == [
        {"topic_id": topic, "topic": "parser", "agent_name": "red-squirrel"}
    ]
    sent = topics(after, "sync", topic_id=topic, outbox=[{"content_markdown": "again"}], wait_seconds=0)["sent"]
    assert sent[0]["message"]["sender"] == "red-squirrel"
    with pytest.raises(NexusError, match="red-squirrel"):  # the former token is of no use
        topics(
            stranger, "topic_join", topic_id=topic, **{each: first[each] for each in ("agent_name", "reclaim_token")}
        )
    topics(after, "topic_close", topic_id=topic)
    last = Caller("http", agent_id="ana", connection="mcp:3-of-ana")
    assert "topics" not in data(last, "join", project_root=project)["waiting"]


def test_a_project_is_where_the_client_was_started(call: Call, project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    relayed = Caller("relay", connection="stdio:4-test-of-joining", cwd=project)
    assert data(relayed, "join", agent_id="ana")["project_root"] == str(Path(project).resolve())
    monkeypatch.setenv("HOME", project)
    for nowhere in (relayed, Caller("relay", connection="stdio:5-t", cwd="/"), Caller("rest", connection="key:2")):
        monkeypatch.setattr("nexus.core.operations.caller._joined", OrderedDict())
        assert called(nowhere, "join", agent_id="ana")["error"]["code"] == "WORKSPACE_REQUIRED"


def test_an_operator_says_in_whose_name_it_acts(call: Call) -> None:
    operator = Caller("rest", operator="olga", connection="operator:olga")
    assert operate(operator, "inbox_count", {})["error"]["code"] == "VALIDATION_ERROR"


def test_a_bound_connection_is_told_of_no_agent_id_that_it_must_give() -> None:
    choice = registry.default()
    free, bound = ({one.name: one for one in tools(choice, bound=bound)} for bound in (False, True))
    assert free["inbox_count"].input_schema["required"] == ["agent_id"]
    assert "required" not in bound["inbox_count"].input_schema
    assert "agent_id" in bound["agent_get"].input_schema["required"]  # whom to look at
    assert free.keys() == bound.keys() == {each.name for each in COORDINATION.tools}
