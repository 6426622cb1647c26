"""Receipts: each stage of a message with its evidence, and none that nothing proves."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from coordination.models import Event, Workspace
from inbox import attention, receipts
from inbox.attention import KINDS
from inbox.models import Message
from inbox.monitoring import Picture
from inbox.receipts import Stages
from nexus.core.clock import now
from nexus.hooks import store_queries, texts
from nexus.hooks.harness import HookCall
from tests.conftest import Call, does
from tests.inbox.conftest import Clock, Post
from tests.nexus_site.test_cli import nexus

ALL = [stage.value for stage in Stages]


def receipt(call: Call, message_id: str) -> dict[str, Any]:
    (found,) = call("message_receipts", message_id=message_id)["receipts"]
    assert [stage["stage"] for stage in found["stages"]] == ALL
    return {stage["stage"]: stage for stage in found["stages"]}


def reached(call: Call, message_id: str) -> list[str]:
    return [name for name, stage in receipt(call, message_id).items() if stage["reached"]]


def test_each_stage_has_its_time_and_evidence(call: Call, post: Post, project: str, clock: Clock) -> None:
    sent = post("one")
    stages = receipt(call, sent)
    assert [stage["reached"] for stage in stages.values()] == [True, False, False, False, False]
    assert stages["handed_over"] == {
        "stage": "handed_over",
        "reached": False,
        "since": stages["stored"]["at"],
        "awaits": "inbox_pull by bob",
    }
    workspace = call("workspace_resolve", project_root=project)["workspace_id"]
    session = call("session_open", agent_id="bob", workspace_id=workspace)["session_id"]
    call("inbox_pull", agent_id="bob", session_id=session)
    assert reached(call, sent) == ["stored", "handed_over"]  # nobody saw a notice of it
    stages = receipt(call, sent)
    assert stages["noticed"]["awaits"] == "nothing more, because it was pulled without a notice"
    assert stages["handed_over"]["evidence"] == [session]
    assert stages["acknowledged"]["since"] == stages["handed_over"]["at"]
    call("inbox_ack", agent_id="bob", message_ids=sent, session_id=session)
    stages = receipt(call, sent)
    assert (stages["acknowledged"]["evidence"], stages["acted_on"]["reached"]) == ([session], False)


def test_a_reply_and_what_names_the_message_are_acts(call: Call, post: Post, project: str) -> None:
    sent = post("one")
    to_ana = {"strategy": "direct", "agent_id": "ana"}
    said: dict[str, Any] = {"project_root": project, "subject": "s", "body": "b", "target": to_ana}
    call("message_create", **said, from_agent_id="cleo", parent_message_id=sent)  # who is no recipient
    call("message_create", **said, from_agent_id="bob")
    assert reached(call, sent) == ["stored"]
    offer = {
        "project_root": project,
        "from_agent_id": "bob",
        "target": to_ana,
        "title": "Fix it",
        "visibility": "public",
    }
    handoff = call("handoff_create", **offer, payload=f"as {sent} says")["handoff_id"]
    reply = call("message_create", **said, from_agent_id="bob", parent_message_id=sent)["message_id"]
    acts = receipt(call, sent)["acted_on"]["evidence"]
    assert acts == [f"handoff {handoff}", f"reply {reply}"]


def test_a_hook_notices_what_it_names_and_only_once(call: Call, post: Post, project: str) -> None:
    sent = [post(str(number)) for number in range(texts.SHOWN + 1)]
    hook = HookCall("claude-code", "session_start", project, "bob")
    store_queries.seen(hook)  # which tells the agent nothing
    assert reached(call, sent[0]) == ["stored"]
    text, _ = store_queries.waiting(hook, ())
    assert sent[0] in text and sent[-1] not in text
    assert [reached(call, each) for each in (sent[0], sent[-1])] == [["stored", "noticed"], ["stored"]]
    first = receipt(call, sent[0])["noticed"]
    assert first["evidence"] == ["hook of claude-code, session_start"]
    store_queries.waiting(hook._replace(client="codex"), ())
    assert receipt(call, sent[0])["noticed"] == first


def test_an_operator_who_settles_a_dead_letter_is_its_evidence(call: Call, post: Post, clock: Clock) -> None:
    sent = post("one")
    for _ in range(6):
        call("inbox_pull", agent_id="bob")
        clock.shift(timedelta(seconds=301))
    stages = receipt(call, sent)
    assert stages["acknowledged"]["awaits"] == "an operator: it is a dead letter"
    assert "handed out 5 times" in stages["handed_over"]["evidence"]
    (letter,) = does("dead_letter_list")["data"]["dead_letters"]
    does("dead_letter_acknowledge", delivery_id=letter["delivery_id"])
    assert receipt(call, sent)["acknowledged"]["evidence"] == ["operator olga"]
    does("dead_letter_park", delivery_id=letter["delivery_id"])
    assert "acknowledged" not in reached(call, sent)


def test_there_is_none_of_what_was_never_sent(refused: Call) -> None:
    assert refused("message_receipts", message_id="msg_x")["code"] == "NOT_FOUND"


def test_rest_the_command_and_the_page_show_it(call: Call, post: Post, browser: Client) -> None:
    sent = post("one")
    call("inbox_pull", agent_id="bob")
    operation = call("message_receipts", message_id=sent)
    assert browser.get(f"/api/v1/messages/{sent}/receipts").json()["data"] == operation
    assert json.loads(nexus("mail", "status", sent, "--json").out) == operation
    table = nexus("mail", "status", sent).out
    assert "handed over" in table and "inbox_ack by bob" in table
    shown = browser.get(f"/admin/inbox/message/{sent}/change/").content.decode()
    assert "Handed over" in shown and "inbox_ack by bob" in shown


@pytest.fixture
def expect(call: Call, team: None, project: str) -> Call:
    """Send bob and cleo a message of which ana expects something within a minute; the answer."""

    def expect(stage: str, **given: Any) -> dict[str, Any]:
        to_python = {"strategy": "capability", "capability": "python"}
        letter = {"project_root": project, "from_agent_id": "ana", "subject": "s", "body": "b", "target": to_python}
        return dict(call("message_create", **{**letter, "expect": stage, "within_seconds": 60, **given}))

    return expect


def told(call: Call) -> list[str]:
    """What ana was told, oldest first."""
    return [row["body"] for row in call("inbox_peek", agent_id="ana")["messages"]]


def needed(workspace: Workspace | None = None) -> list[str]:
    picture = Picture(now(), workspace)
    return [item.detail for item in next(kind for kind in KINDS if kind.name == "overdue").find(picture, 10).needs]


def test_its_sender_is_told_once_who_is_behind(call: Call, expect: Call, clock: Clock) -> None:
    sent = expect("acknowledged")["message_id"]
    assert call("message_receipts", message_id=sent)["expected"] == {
        "stage": "acknowledged",
        "by": "2026-03-01T12:01:00.000000Z",
    }
    call("inbox_ack", agent_id="bob", message_ids=sent)
    clock.shift(timedelta(seconds=60))
    receipts.notify_senders()
    assert told(call) == needed() == []
    clock.shift(timedelta(seconds=1))
    assert needed() == ["ana expects it of cleo"]
    receipts.notify_senders()
    receipts.notify_senders()
    (body,) = told(call)
    assert sent in body and "cleo" in body and "bob" not in body
    event = Event.objects.get(type="message.overdue")
    assert (event.payload["expected"], event.payload["recipients"]) == ("acknowledged", ["cleo"])
    call("inbox_ack", agent_id="cleo", message_ids=sent)
    assert needed() == []
    receipts.notify_senders()
    assert call("message_receipts", message_id=sent)["expected"] == {"stage": "acknowledged"}
    assert len(told(call)) == 1


def test_nobody_is_told_where_all_came_so_far(call: Call, expect: Call, project: str, clock: Clock) -> None:
    sent = expect("acted_on")["message_id"]
    to_ana = {"strategy": "direct", "agent_id": "ana"}
    for recipient in ("bob", "cleo"):
        answer = {"project_root": project, "from_agent_id": recipient, "subject": "s", "body": recipient}
        call("message_create", **answer, target=to_ana, parent_message_id=sent)
    clock.shift(timedelta(seconds=61))
    receipts.notify_senders()
    assert told(call) == ["bob", "cleo"]


def test_what_is_expected_for_long_holds_up_nothing_newer(
    call: Call, expect: Call, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "DUE_AT_ONCE", 1)
    for number in range(3):
        expect("handed_over", subject=str(number))
    clock.shift(timedelta(seconds=61))
    for _ in range(4):
        receipts.notify_senders()
    assert len(told(call)) == 3
    clock.shift(receipts.GIVEN_UP + timedelta(seconds=1))
    receipts.notify_senders()
    assert not Message.objects.exclude(expect_by=None).exists()


def test_what_is_overdue_elsewhere_hides_nothing_of_a_workspace(
    call: Call, expect: Call, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "MOST_OVERDUE", 1)
    here = Message.objects.get(pk=expect("handed_over")["message_id"]).workspace
    clock.shift(timedelta(seconds=1))
    (elsewhere := tmp_path / "elsewhere").mkdir()
    expect("handed_over", project_root=str(elsewhere))
    clock.shift(timedelta(seconds=61))

    assert needed(here) == ["ana expects it of bob, cleo"]


@pytest.mark.parametrize(
    "given", [{"expect": "read"}, {"expect": "stored"}, {"within_seconds": 0}, {"within_seconds": 604_801}]
)
def test_it_takes_a_stage_and_a_time_within_a_week(refused: Call, team: None, project: str, given: Any) -> None:
    letter = {"project_root": project, "from_agent_id": "ana", "subject": "s", "body": "b"}
    both = {"expect": "noticed", "within_seconds": 60}
    assert refused("message_create", **letter, **{**both, **given})["code"] == "VALIDATION_ERROR"
    for one in ("expect", "within_seconds"):
        assert refused("message_create", **letter, **{one: both[one]})["code"] == "VALIDATION_ERROR"
