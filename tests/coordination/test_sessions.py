"""Sessions: their life, derived staleness, the one predicate of presence, and the reaper in passing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from time_machine import Traveller

from coordination.models import Agent, Session
from coordination.services import sessions
from nexus.core.database.store import write
from tests.conftest import Call, at_once


def types(call: Call, project: str, prefix: str = "session.") -> list[str]:
    events = call("event_get", project_root=project, agent_id="audit", stream="workspace")["events"]
    return [event["type"] for event in events if event["type"].startswith(prefix)]


def audience(call: Call, project: str) -> tuple[list[str], list[str]]:
    sent = call("message_create", project_root=project, from_agent_id="boss", subject="s", body="b")
    return sent["recipients"], sent.get("excluded_stale", [])


def test_it_opens_a_session_with_a_secret_of_its_own(session: dict[str, Any], call: Call, workspace: str) -> None:
    assert session["session_id"].startswith("ses")
    assert session["status"] == "active"
    assert session["started_at"] == session["last_heartbeat_at"] == "2026-01-01T00:00:00.000000Z"
    other = call("session_open", agent_id="ann", workspace_id=workspace)
    assert other["session_secret"] != session["session_secret"]
    assert other["session_id"] != session["session_id"]


def test_it_keeps_the_secret_as_a_hash_and_never_tells_it_again(
    session: dict[str, Any], call: Call, project: str
) -> None:
    secret = session["session_secret"]
    assert secret not in str(Session.objects.values())
    for name in ("session_heartbeat", "session_close"):
        assert "session_secret" not in call(name, session_id=session["session_id"])
    assert secret not in str(call("event_get", project_root=project, agent_id="ann", stream="workspace"))


def test_it_wants_a_workspace_before_anything_else(refused: Call) -> None:
    for arguments in ({}, {"workspace_id": None}, {"workspace_id": ""}, {"agent_id": 7, "unknown": 1}):
        assert refused("session_open", **arguments)["code"] == "WORKSPACE_REQUIRED"


def test_it_makes_nothing_when_it_refuses(refused: Call, call: Call, configure: Any, ann: str, workspace: str) -> None:
    assert refused("session_open", workspace_id=workspace)["code"] == "VALIDATION_ERROR"
    assert refused("session_open", agent_id=ann, workspace_id="0" * 64)["code"] == "NOT_FOUND"
    assert refused("session_open", agent_id="nobody", workspace_id=workspace)["code"] == "NOT_FOUND"
    configure(max_inline_bytes=4)
    too_large = refused("session_open", agent_id=ann, workspace_id=workspace, metadata="12345")
    assert too_large["code"] == "CONTENT_TOO_LARGE"
    assert not Session.objects.exists()


def test_it_logs_the_life_of_a_session_in_public(session: dict[str, Any], call: Call, project: str) -> None:
    call("session_heartbeat", session_id=session["session_id"])
    call("session_close", session_id=session["session_id"])
    assert types(call, project) == ["session.opened", "session.heartbeat", "session.closed"]


def test_it_reads_as_stale_past_the_window_while_the_row_stays_active(
    session: dict[str, Any], clock: Traveller, call: Call
) -> None:
    from coordination.services.sessions import derived_status
    from nexus.core.clock import now

    row = Session.objects.get(pk=session["session_id"])
    clock.shift(60)
    assert derived_status(row, now()) == "active"
    clock.shift(0.001)
    assert derived_status(row, now()) == "stale"
    assert row.status == "active"
    beat = call("session_heartbeat", session_id=session["session_id"])
    assert beat == {
        "session_id": session["session_id"],
        "status": "active",
        "last_heartbeat_at": "2026-01-01T00:01:00.001000Z",
    }


def test_it_closes_once_and_stays_closed(session: dict[str, Any], clock: Traveller, call: Call, project: str) -> None:
    first = call("session_close", session_id=session["session_id"])
    assert set(first) == {
        "session_id",
        "agent_id",
        "workspace_id",
        "status",
        "started_at",
        "last_heartbeat_at",
        "closed_at",
        "owes",
    }
    clock.shift(5)
    assert call("session_close", session_id=session["session_id"]) == first
    assert first["status"] == "closed"
    assert types(call, project) == ["session.opened", "session.closed"]


def test_it_does_not_bring_a_closed_session_back(session: dict[str, Any], clock: Traveller, call: Call) -> None:
    call("session_close", session_id=session["session_id"])
    clock.shift(5)
    beat = call("session_heartbeat", session_id=session["session_id"])
    assert (beat["status"], beat["last_heartbeat_at"]) == ("closed", session["last_heartbeat_at"])


@pytest.mark.parametrize("name", ["session_heartbeat", "session_close"])
def test_it_tells_unknown_from_elsewhere(
    session: dict[str, Any], call: Call, refused: Call, tmp_path: Path, name: str
) -> None:
    elsewhere = call("workspace_resolve", project_root=str(tmp_path))["workspace_id"]
    assert refused(name)["code"] == "VALIDATION_ERROR"
    assert refused(name, session_id="ses_nope")["code"] == "NOT_FOUND"
    error = refused(name, session_id=session["session_id"], workspace_id=elsewhere)
    assert error["code"] == "WORKSPACE_MISMATCH"
    assert session["workspace_id"] not in str(error)
    row = Session.objects.get(pk=session["session_id"])
    assert row.status == "active"
    assert call(name, session_id=session["session_id"], workspace_id=session["workspace_id"])


def test_it_counts_a_session_as_present_until_the_window_has_passed(
    session: dict[str, Any], clock: Traveller, call: Call, project: str
) -> None:
    clock.shift(1800)
    assert audience(call, project) == (["ann"], [])
    clock.shift(1)
    assert audience(call, project) == ([], ["ann"])
    call("session_heartbeat", session_id=session["session_id"])
    assert audience(call, project) == (["ann"], [])


def test_it_counts_an_agent_as_present_by_its_freshest_session(
    session: dict[str, Any], clock: Traveller, call: Call, project: str, workspace: str
) -> None:
    clock.shift(3600)
    call("session_open", agent_id="ann", workspace_id=workspace)
    assert audience(call, project) == (["ann"], [])


def test_it_forgets_an_agent_whose_sessions_are_closed(session: dict[str, Any], call: Call, project: str) -> None:
    call("session_close", session_id=session["session_id"])
    assert audience(call, project) == ([], [])


@pytest.mark.parametrize("passing", ["heartbeat", "open"])
def test_it_reaps_the_workspaces_long_silent_sessions_in_passing(
    session: dict[str, Any], clock: Traveller, call: Call, project: str, workspace: str, tmp_path: Path, passing: str
) -> None:
    elsewhere = call("workspace_resolve", project_root=str(tmp_path))["workspace_id"]
    far = call("session_open", agent_id="ann", workspace_id=elsewhere)
    clock.shift(86_400)
    opened = {"agent_id": "ann", "workspace_id": workspace}
    live = call("session_open", **opened)
    assert Session.objects.get(pk=session["session_id"]).status == "active"
    clock.shift(1)
    call(f"session_{passing}", **({"session_id": live["session_id"]} if passing == "heartbeat" else opened))
    assert Session.objects.get(pk=session["session_id"]).status == "closed"
    assert Session.objects.get(pk=live["session_id"]).status == "active"
    assert Session.objects.get(pk=far["session_id"]).status == "active"
    closed = call(
        "event_get", project_root=project, agent_id="ann", stream="workspace", filters={"type": "session.closed"}
    )["events"]
    assert [(event["payload"]["session_id"], event["payload"]["reason"]) for event in closed] == [
        (session["session_id"], "stale")
    ]


def test_it_spares_the_session_that_comes_back_itself(session: dict[str, Any], clock: Traveller, call: Call) -> None:
    clock.shift(90_000)
    assert call("session_heartbeat", session_id=session["session_id"])["status"] == "active"


def test_an_agent_that_waited_to_leave_is_not_seen_after_it_left(
    committed: None, call: Call, ann: str, workspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = call("session_open", agent_id=ann, workspace_id=workspace)

    @contextmanager
    def late(*names: str) -> Iterator[None]:
        monkeypatch.setattr(sessions, "write", write)
        at_once([lambda: sessions.keep_present({ann}, set())])  # another process was quicker
        with write(*names):
            yield

    monkeypatch.setattr(sessions, "write", late)
    call("session_close", session_id=opened["session_id"])
    agent, closed = Agent.objects.get(pk=ann), Session.objects.get(pk=opened["session_id"])
    assert agent.connected_at is not None and closed.closed_at is not None
    assert agent.connected_at < closed.closed_at
