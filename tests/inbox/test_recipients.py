"""Whom a message reaches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine

from coordination.models import Event, Workspace
from inbox.models import Delivery, Message
from tests.conftest import Call

pytestmark = pytest.mark.usefixtures("team")

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def send(call: Call, project: str) -> Call:
    """Send a message from ana."""

    def send(**arguments: Any) -> dict[str, Any]:
        return call(
            "message_create",
            **{"project_root": project, "from_agent_id": "ana", "subject": "s", "body": "b"} | arguments,
        )

    return send


def enter(call: Call, project: str, *agents: str) -> None:
    """Open a session for each agent in the project."""
    workspace = call("workspace_resolve", project_root=project)["workspace_id"]
    for agent in agents:
        call("session_open", agent_id=agent, workspace_id=workspace)


@pytest.mark.parametrize(
    ("target", "recipients"),
    [
        ({"strategy": "direct", "agent_id": "bob"}, ["bob"]),
        ({"strategy": "direct", "agent_id": "ana"}, ["ana"]),
        ({"strategy": "capability", "capability": "ocr"}, ["bob"]),
        ({"strategy": "capability", "capability": ["cobol", "python"]}, ["bob", "cleo"]),
        ({"strategy": "capability", "capability": "OCR"}, []),
        ({"strategy": "role", "role": "reviewer"}, ["bob"]),
        ({"strategy": "role", "role": "Reviewer"}, []),
        (
            {
                "strategy": "mixed",
                "rules": [{"strategy": "role", "role": "coder"}, {"strategy": "direct", "agent_id": "bob"}],
            },
            ["bob", "cleo"],
        ),
        ({"kind": "Direct", "agent_id": "bob"}, ["bob"]),
    ],
)
def test_it_resolves_a_target_against_every_registered_agent(
    send: Call, call: Call, target: dict[str, Any], recipients: list[str]
) -> None:
    sent = send(target=target)

    assert sent["recipients"] == recipients
    assert sent["delivered_count"] == len(recipients)
    held = {agent: call("inbox_count", agent_id=agent)["unread"] for agent in ("ana", "bob", "cleo")}
    assert held == {agent: int(agent in recipients) for agent in held}


@pytest.mark.parametrize("target", [None, {}, {"strategy": "broadcast"}])
def test_it_broadcasts_to_those_present_in_the_workspace_but_not_to_the_sender(
    send: Call, call: Call, project: str, tmp_path: Any, target: Any
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    enter(call, project, "ana", "bob")
    enter(call, str(elsewhere), "cleo")

    assert send(target=target)["recipients"] == ["bob"]


def test_it_reports_whom_a_broadcast_passes_over_as_stale(send: Call, call: Call, project: str) -> None:
    with time_machine.travel(NOON, tick=False) as clock:
        enter(call, project, "ana", "bob")
        clock.shift(timedelta(minutes=20))
        enter(call, project, "cleo")
        clock.shift(timedelta(minutes=10, microseconds=1))

        sent = send()

    assert (sent["recipients"], sent["excluded_stale"]) == (["cleo"], ["bob"])
    assert "excluded_stale" in sent["warning"]
    assert call("inbox_count", agent_id="bob")["unread"] == 0


@pytest.mark.parametrize("target", [None, {"strategy": "capability", "capability": "cobol"}])
def test_it_warns_when_nobody_matches(send: Call, target: Any) -> None:
    sent = send(target=target)

    assert (sent["recipients"], sent["delivered_count"]) == ([], 0)
    assert "nobody" in sent["warning"]
    assert "excluded_stale" not in sent


def test_it_leaves_nothing_of_a_message_to_an_unregistered_agent(refused: Call, project: str) -> None:
    error = refused(
        "message_create",
        project_root=project,
        from_agent_id="ana",
        subject="s",
        body="b",
        target={"strategy": "direct", "agent_id": "nobody"},
    )

    assert error["code"] == "NOT_FOUND"
    assert error["details"] == {"agent": "nobody"}
    assert [model.objects.count() for model in (Message, Delivery, Event, Workspace)] == [0, 0, 0, 0]


def test_it_takes_no_target_that_changes_with_time(refused: Call, project: str) -> None:
    letter = {"project_root": project, "from_agent_id": "ana", "subject": "s", "body": "b"}
    timed = {"strategy": "direct_with_fallback", "agent_id": "bob", "fallback_after_seconds": 5}

    for target in (timed, {"strategy": "mixed", "rules": [timed]}):
        assert refused("message_create", **letter, target=target)["code"] == "VALIDATION_ERROR"
    assert not Message.objects.exists()


def test_it_tells_when_the_send_made_the_workspace_and_only_then(send: Call) -> None:
    assert send()["workspace_created"] is True
    assert "workspace_created" not in send()


def test_it_names_recipients_in_the_order_of_their_ids(send: Call, call: Call) -> None:
    for agent in ("zoe", "abe", "mia"):  # registered in another order than their ids
        call("agent_register", agent_id=agent, role="tester")
    assert send(target={"strategy": "role", "role": "tester"})["recipients"] == ["abe", "mia", "zoe"]
