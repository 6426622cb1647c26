"""Receipts: each stage of a message with its evidence, and none that nothing proves."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from django.test import Client

from inbox.receipts import Stages
from nexus.hooks import look, notice
from nexus.hooks.harness import Call as HookCall
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
    assert stages["noticed"]["awaits"] == "nothing: it was pulled without a notice"
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
    sent = [post(str(number)) for number in range(notice.SHOWN + 1)]
    hook = HookCall("claude-code", "session_start", project, "bob")
    look.seen(hook)  # which tells the agent nothing
    assert reached(call, sent[0]) == ["stored"]
    text, _ = look.waiting(hook, ())
    assert sent[0] in text and sent[-1] not in text
    assert [reached(call, each) for each in (sent[0], sent[-1])] == [["stored", "noticed"], ["stored"]]
    first = receipt(call, sent[0])["noticed"]
    assert first["evidence"] == ["hook of claude-code, session_start"]
    look.waiting(hook._replace(client="codex"), ())
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
    shown = browser.get(f"/admin/mail/?m={sent}").content.decode()
    assert "Handed over" in shown and "inbox_ack by bob" in shown
