"""Trust: what the sensitive verbs accept as proof that an agent acts, in open and in strict mode."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordination.toolset import COORDINATION, run
from nexus.core.operations.caller import Caller
from nexus.core.operations.registry import operations
from tests.conftest import Call

SENSITIVE = {
    "message_create",
    "inbox_pull",
    "inbox_ack",
    "inbox_extend",
    "inbox_peek",
    "inbox_history",
    "handoff_create",
    "handoff_claim",
    "handoff_complete",
    "handoff_reject",
    "handoff_cancel",
    "handoff_start",
    "handoff_block",
    "handoff_extend",
    "handoff_accept",
    "handoff_return",
    "handoff_verify",
}
Credentials = dict[str, str]
OPEN = {  # an agent needs these before it has a session
    *("join", "agent_register", "session_open"),
    # and these show counts, or what other agents of the workspace may also see
    *("inbox_count", "event_get", "event_wait", "event_cursor", "coordination_health"),
    *("handoff_list_available", "handoff_mine", "handoff_get"),
}


@pytest.fixture
def mine(call: Call, ann: str, workspace: str) -> Credentials:
    opened = call("session_open", agent_id=ann, workspace_id=workspace)
    return {"session_id": opened["session_id"], "session_secret": opened["session_secret"]}


@pytest.fixture
def theirs(call: Call, workspace: str) -> Credentials:
    call("agent_register", agent_id="bob")
    opened = call("session_open", agent_id="bob", workspace_id=workspace)
    return {"session_id": opened["session_id"], "session_secret": opened["session_secret"]}


@pytest.fixture
def letter(project: str) -> dict[str, str]:
    return {"project_root": project, "from_agent_id": "ann", "subject": "s", "body": "b"}


def test_it_guards_exactly_the_sensitive_verbs() -> None:
    guarded = {name for name, operation in COORDINATION.operations.items() if operation.requires and operation.tool}
    assert guarded == SENSITIVE


def test_every_operation_that_names_an_agent_asks_unless_it_shows_what_others_see() -> None:
    acting = {each.name: each for each in operations() if each.acts_as and not each.operator_only}
    guarded = {name for name, each in acting.items() if any(one.who.startswith("in strict") for one in each.requires)}
    assert acting.keys() - guarded == OPEN
    parameters = {name for each in operations() if "session_secret" in each.params.model_fields for name in [each.name]}
    assert parameters == guarded


def test_it_asks_an_operator_who_acts_for_an_agent_for_none(ann: str, configure: Callable[..., None]) -> None:
    configure(trust_mode="strict")
    assert run(Caller("test", operator="olga"), "inbox_pull", {"agent_id": ann})["ok"]


@pytest.mark.parametrize("mode", ["open", "strict"])
def test_it_refuses_the_secret_of_a_closed_session(
    mode: str, call: Call, refused: Call, mine: Credentials, ann: str, configure: Callable[..., None]
) -> None:
    call("session_close", session_id=mine["session_id"])
    configure(trust_mode=mode)
    assert refused("inbox_pull", agent_id=ann, **mine)["code"] == "NOT_OWNER"


def test_it_checks_a_session_named_without_its_secret(
    refused: Call, call: Call, letter: dict[str, str], mine: Credentials, theirs: Credentials
) -> None:
    assert refused("message_create", **letter, from_session_id="ses_none")["code"] == "NOT_FOUND"
    assert refused("message_create", **letter, from_session_id=theirs["session_id"])["code"] == "NOT_OWNER"
    assert call("message_create", **letter, from_session_id=mine["session_id"])


def test_it_does_nothing_when_credentials_fail(
    refused: Call, call: Call, letter: dict[str, str], mine: Credentials, project: str
) -> None:
    refused("message_create", **letter, from_session_id=mine["session_id"], session_secret="x")
    events = call("event_get", project_root=project, agent_id="ann", stream="workspace")["events"]
    assert [event["type"] for event in events] == ["session.opened"]


def test_it_leaves_the_other_verbs_alone_in_strict_mode(
    call: Call, ann: str, project: str, workspace: str, configure: Callable[..., None]
) -> None:
    configure(trust_mode="strict")
    call("agent_register", agent_id=ann)
    call("session_open", agent_id=ann, workspace_id=workspace)
    call("inbox_count", agent_id=ann)
    call("handoff_list_available", project_root=project, agent_id=ann)
    call("event_get", project_root=project, agent_id=ann, stream="workspace")
    call("artifact_put", project_root=project, artifact_type="text", content="c")
