"""Traces: what belongs together is found by one id, in messages, handoffs and events."""

from __future__ import annotations

from typing import Any

import pytest

from coordination.log import selectors
from tests.conftest import Call
from tests.store import plans

BOB, ANA = ({"strategy": "direct", "agent_id": name} for name in ("bob", "ana"))


@pytest.fixture
def post(call: Call, team: None, project: str) -> Call:
    def post(**given: Any) -> dict[str, Any]:
        letter = {"project_root": project, "from_agent_id": "ana", "subject": "s", "body": "b", "target": BOB}
        return dict(call("message_create", **{**letter, **given}))

    return post


def traced(call: Call, project: str, trace: str, stream: str = "workspace", agent: str = "bob") -> list[dict[str, Any]]:
    page = call("event_get", project_root=project, agent_id=agent, stream=stream, filters={"trace_id": trace})
    return list(page["events"])


def test_an_answer_has_the_trace_of_what_it_answers(post: Call, call: Call, project: str) -> None:
    first = post(trace_id="t-1")
    assert first["trace_id"] == "t-1"
    (pulled,) = call("inbox_pull", agent_id="bob")["messages"]
    assert pulled["trace_id"] == "t-1"
    answer = post(from_agent_id="bob", target=ANA, parent_message_id=first["message_id"])
    other = post(from_agent_id="bob", target=ANA, parent_message_id=first["message_id"], trace_id="t-2")
    assert (answer["trace_id"], other["trace_id"]) == ("t-1", "t-2")
    assert "trace_id" not in post()
    assert "trace_id" not in call("inbox_peek", agent_id="bob")["messages"][-1]
    events = traced(call, project, "t-1")
    assert [event["payload"]["message_id"] for event in events] == [first["message_id"], answer["message_id"]]
    assert {event["trace_id"] for event in events} == {event["payload"]["trace_id"] for event in events} == {"t-1"}


def test_it_goes_through_a_handoff_and_its_notices(post: Call, call: Call, project: str) -> None:
    given = {"project_root": project, "from_agent_id": "ana", "target": BOB, "visibility": "public"}
    made = call("handoff_create", **given, title="traced", trace_id="t-1")["handoff_id"]
    (notice,) = call("inbox_pull", agent_id="bob")["messages"]
    assert notice["trace_id"] == "t-1"
    assert post(from_agent_id="bob", target=ANA, parent_message_id=notice["message_id"])["trace_id"] == "t-1"
    for step in ("handoff_claim", "handoff_complete"):
        call(step, project_root=project, handoff_id=made, agent_id="bob")
    steps = [event["type"] for event in traced(call, project, "t-1", "handoff")]
    assert steps == ["handoff.created", "handoff.claimed", "handoff.completed"]


def test_it_is_found_however_long_the_log_is(
    post: Call, call: Call, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selectors, "FILTERED_AT_ONCE", 3)
    for _ in range(9):
        post()
    post(trace_id="late")
    assert len(traced(call, project, "late")) == 1


@pytest.mark.sqlite  # whose plans say so; the indexes are the same
def test_an_index_leads_to_it(post: Call, call: Call, project: str) -> None:
    post(trace_id="t-1")
    assert any("events_of_trace" in plan for plan in plans(lambda: traced(call, project, "t-1")))


def test_one_that_is_no_trace_is_refused(post: Call, refused: Call, project: str) -> None:
    letter = {"project_root": project, "from_agent_id": "ana", "subject": "s", "body": "b", "target": BOB}
    work = {"project_root": project, "from_agent_id": "ana", "target": BOB, "visibility": "public"}
    for wrong in ("x" * 256, "", " ", 7, ["t"]):
        for operation, given in (("message_create", letter), ("handoff_create", work)):
            assert refused(operation, **given, trace_id=wrong)["code"] == "VALIDATION_ERROR"
    assert post(trace_id="x" * 255)["trace_id"] == "x" * 255


def test_a_retry_with_another_trace_is_none(post: Call, refused: Call, project: str) -> None:
    first = post(trace_id="t-1", client_id="c")
    again = post(trace_id="t-1", client_id="c")
    assert (again["message_id"], again["trace_id"]) == (first["message_id"], "t-1") and again["duplicate"]
    letter = {"project_root": project, "from_agent_id": "ana", "subject": "s", "body": "b", "target": BOB}
    assert refused("message_create", **letter, trace_id="t-2", client_id="c")["code"] == "VALIDATION_ERROR"


def test_others_see_no_more_by_it(post: Call, call: Call, project: str) -> None:
    post(trace_id="t-1")
    assert traced(call, project, "t-1", agent="cy") == []


def test_pages_and_rest_find_by_it(post: Call, client: Any, admin_user: Any) -> None:
    odd = 't <b>"&?='
    sent = post(trace_id=odd)
    post(subject="untraced")
    client.force_login(admin_user)
    rows = client.get("/api/v1/events", {"trace_id": odd}, headers={"host": "localhost"}).json()["data"]["results"]
    assert [row["payload"]["message_id"] for row in rows] == [sent["message_id"]]
    page = client.get("/admin/coordination/event/", {"trace": odd}).content.decode()
    assert (
        f"/admin/coordination/event/{rows[0]['event_id']}/change/" in page
        and "untraced" not in page
        and "<b>" not in page
    )
    letter = client.get(f"/admin/inbox/message/{sent['message_id']}/change/").content.decode()
    assert "?trace=t+%3Cb%3E%22%26%3F%3D" in letter
