"""What agents owe: told to themselves, to operators, and once to those who wait for it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from coordination import debts
from handoffs.debts import notify_creditors
from handoffs.leases import expire_everywhere
from handoffs.models import DebtNotice
from inbox.models import Message
from inbox.monitoring import Picture
from nexus.core import apps
from nexus.core.clock import now
from nexus.core.operations import dispatch
from nexus.planning.toolset import PLANNING
from tests.conftest import LOCAL, Call
from tests.handoffs.conftest import TO_BOB, Clock, Offer, mail_of

IDLE = timedelta(seconds=900)


@pytest.fixture
def took(call: Call, offer: Offer, project: str, clock: Clock) -> Offer:
    """Bob takes a handoff of ana's for a day."""

    def took(**changes: Any) -> str:
        handoff = offer(**changes)
        call("handoff_claim", project_root=project, handoff_id=handoff, agent_id="bob", lease_seconds=86_400)
        return handoff

    return took


@pytest.fixture
def pulled(call: Call, team: None, project: str, clock: Clock) -> str:
    """A message of ana's that bob pulled; its id."""
    letter = {"project_root": project, "from_agent_id": "ana", "subject": "a question", "body": "?", "target": TO_BOB}
    message_id: str = call("message_create", **letter)["message_id"]
    call("inbox_pull", agent_id="bob")
    return message_id


@pytest.fixture
def in_progress(team: None, project: str, clock: Clock) -> None:
    """A task of bob's, in progress."""
    for name, given in (
        ("task_add", {"title": "dig", "context": "here", "owner": "bob"}),
        ("task_update", {"id": 1, "status": "in_progress"}),
    ):
        answer = dispatch.run(PLANNING, LOCAL, name, {"project_root": project, **given})
        assert "error" not in answer, answer


def told_of(call: Call) -> list[str]:
    return [message["subject"] for message in mail_of(call, "ana")]


def test_it_lists_what_one_holds_and_what_else_one_owes(
    call: Call, took: Offer, pulled: str, in_progress: None, clock: Clock, project: str, tmp_path: Any
) -> None:
    handoff = took(title="Fix the login")
    clock.shift(100)

    mine = call("handoff_mine", agent_id="bob", project_root=project)

    (held,) = mine["handoffs"]
    assert (held["handoff_id"], held["title"], held["status"]) == (handoff, "Fix the login", "CLAIMED")
    assert held["lease_seconds_left"] == 86_300
    assert [(debt["kind"], debt["what"], debt["to"]) for debt in mine["owes"]] == [
        ("message", "a question", "ana"),
        ("task", "dig", None),
    ]
    assert call("handoff_mine", agent_id="bob", project_root=str(tmp_path)) == {"handoffs": [], "owes": []}
    assert call("handoff_mine", agent_id="cleo") == {"handoffs": [], "owes": []}


def test_it_answers_at_the_end_of_a_session_too(call: Call, took: Offer, workspace: str) -> None:
    session = call("session_open", agent_id="bob", workspace_id=workspace)["session_id"]
    handoff = took()

    (debt,) = call("session_close", session_id=session)["owes"]

    assert (debt["kind"], debt["id"], debt["to"]) == ("handoff", handoff, "ana")


@pytest.mark.parametrize("verifier", ["creator", {"agent_id": "cleo"}])
def test_it_owes_a_verdict_to_who_did_the_work(
    call: Call, took: Offer, project: str, clock: Clock, verifier: Any
) -> None:
    asked, other = ("ana", "cleo") if verifier == "creator" else ("cleo", "ana")
    handoff = took(title="Fix the login", verifier=verifier)
    assert debts.owed_by(asked) == []
    call("handoff_complete", project_root=project, handoff_id=handoff, agent_id="bob", result="done")

    (debt,) = call("handoff_mine", agent_id=asked)["owes"]

    assert (debt["kind"], debt["id"], debt["what"], debt["to"]) == ("verdict", handoff, "Fix the login", "bob")
    assert debts.owed_by(other) == debts.owed_by("bob") == []
    clock.shift(IDLE)
    notify_creditors()
    assert f"{asked} owes you the verdict {handoff}: Fix the login" in [
        message["subject"] for message in mail_of(call, "bob")
    ]
    call("handoff_accept", project_root=project, handoff_id=handoff, agent_id=asked)
    assert debts.owed_by(asked) == []


def test_it_owes_no_verdict_on_its_own_work_or_as_one_of_a_role(call: Call, took: Offer, project: str) -> None:
    for verifier in ({"agent_id": "bob"}, {"role": "reviewer"}, "operator"):
        handoff = took(verifier=verifier)
        call("handoff_complete", project_root=project, handoff_id=handoff, agent_id="bob", result="done")
    assert [*debts.everything()] == []


def test_it_owes_nothing_of_what_it_brought_or_lost(
    call: Call, took: Offer, pulled: str, project: str, clock: Clock
) -> None:
    first, _ = took(), took()
    call("handoff_complete", project_root=project, handoff_id=first, agent_id="bob")
    call("inbox_ack", agent_id="bob", message_ids=[pulled])
    clock.shift(timedelta(seconds=86_401))

    assert debts.owed_by("bob") == []


class TestTheOnesWhoWait:
    def test_it_tells_them_once_when_the_agent_does_nothing(
        self, call: Call, took: Offer, pulled: str, clock: Clock
    ) -> None:
        handoff = took(title="Fix the login")
        clock.shift(IDLE - timedelta(seconds=1))
        notify_creditors()
        assert told_of(call) == []
        clock.shift(1)

        notify_creditors()
        notify_creditors()

        assert told_of(call) == [f"bob owes you the handoff {handoff}: Fix the login"], "mail comes again by itself"

    def test_it_takes_heartbeats_for_no_act(self, call: Call, took: Offer, clock: Clock, workspace: str) -> None:
        session = call("session_open", agent_id="bob", workspace_id=workspace)["session_id"]
        took()
        clock.shift(IDLE)
        call("session_heartbeat", session_id=session)

        notify_creditors()

        assert len(told_of(call)) == 1

    def test_it_lets_an_agent_work_that_does_something(
        self, call: Call, took: Offer, clock: Clock, project: str
    ) -> None:
        handoff = took()
        clock.shift(IDLE)
        call("handoff_start", project_root=project, handoff_id=handoff, agent_id="bob")
        clock.shift(10)

        notify_creditors()

        assert told_of(call) == []

    def test_it_tells_anew_of_what_is_owed_anew(self, call: Call, took: Offer, clock: Clock, project: str) -> None:
        handoff = took()
        clock.shift(IDLE)
        notify_creditors()
        clock.shift(timedelta(days=1))
        call("handoff_claim", project_root=project, handoff_id=handoff, agent_id="cleo")
        notify_creditors()
        assert not DebtNotice.objects.exists()
        call("handoff_reject", project_root=project, handoff_id=handoff, agent_id="cleo")
        took()
        clock.shift(IDLE)
        notify_creditors()

        assert sum(subject.startswith("bob owes") for subject in told_of(call)) == 2

    def test_it_takes_a_notice_in_its_name_for_no_act(
        self, call: Call, took: Offer, offer: Offer, clock: Clock, project: str
    ) -> None:
        """What it owes next is told of when it is due, and operators see all of it meanwhile."""
        took()
        clock.shift(100)
        took()
        offer(from_agent_id="bob", deadline_seconds=790)
        clock.shift(IDLE - timedelta(seconds=100))
        expire_everywhere()  # bob is told of it
        notify_creditors()
        clock.shift(100)
        assert len(debts.overdue(IDLE)) == 2

        notify_creditors()

        assert len(told_of(call)) == 2
        assert len(debts.overdue(IDLE)) == 2


def test_it_shows_operators_which_handoffs_nobody_works_on(call: Call, took: Offer, clock: Clock) -> None:
    handoff_id = took(title="Fix the login")

    def needs() -> list[tuple[str, str, str]]:
        found = {kind.name: these for kind, these in apps.needs(Picture(now()), 3)}
        return [(need.subject, need.title, need.detail) for need in found["idle"].needs] if "idle" in found else []

    clock.shift(IDLE - timedelta(seconds=1))
    assert needs() == []
    clock.shift(1)
    assert needs() == [(handoff_id, "Fix the login", "bob has it and does nothing")]
    clock.shift(1800)
    assert needs() == [(handoff_id, "Fix the login", "bob has it and is away")]
    browser = Client(headers={"host": "127.0.0.1:8420"})
    release = {"do": f"handoff_release {handoff_id}", "asked": "1", "next": "/admin/"}
    assert "“Fix the login” was released." in browser.post("/admin/act/", release, follow=True).text
    assert needs() == []


def test_a_blocked_handoff_of_an_idle_agent_is_listed_once(call: Call, took: Offer, project: str, clock: Clock) -> None:
    handoff_id = took()
    call("handoff_block", project_root=project, handoff_id=handoff_id, agent_id="bob", reason="no key")
    clock.shift(IDLE)
    found = {kind.name: [need.subject for need in these.needs] for kind, these in apps.needs(Picture(now()), 3)}
    assert found["blocked"] == [handoff_id] and "idle" not in found


def test_it_shows_operators_the_oldest_of_what_is_owed_and_the_whole_on_the_agents_page(
    call: Call, took: Offer, pulled: str, in_progress: None, clock: Clock
) -> None:
    for title in ("Fix the login", "Write the docs"):
        clock.shift(1)
        took(title=title)
    clock.shift(IDLE)
    found = {kind.name: these for kind, these in apps.needs(Picture(now()), 3)}
    [need] = found["debts"].needs
    assert need.detail.startswith("message a question to ana; ") and "handoff" not in need.detail
    assert [need.title for need in found["idle"].needs] == ["Fix the login", "Write the docs"]
    page = Client(headers={"host": "127.0.0.1:8420"}).get("/admin/agents/bob/").text
    owes = page.partition("Must still do")[2].partition("Inbox")[0]
    assert [what in owes for what in ("a question", "dig", "Fix the login", "Write the docs")] == [True] * 4
    assert f"/admin/inbox/message/{pulled}/change/" in owes


def test_an_operator_writes_to_who_owes_right_there(call: Call, pulled: str, in_progress: None, clock: Clock) -> None:
    clock.shift(IDLE)
    browser = Client(headers={"host": "127.0.0.1:8420"})
    assert 'value="message_create bob"' in browser.get("/admin/attention/").text
    form = browser.post("/admin/act/", {"do": "message_create bob", "next": "/admin/"}, follow=True).text
    assert "Your message" in form
    sent = {"do": "message_create", "on": "bob", "asked": "1", "body": "Is it stuck?", "next": "/admin/"}
    assert "“bob” was written to." in browser.post("/admin/act/", sent, follow=True).text
    message = Message.objects.latest("message_id")
    assert (message.from_agent_id, message.subject, message.body) == ("operator", "From the operator", "Is it stuck?")
    assert [row.recipient_id for row in message.deliveries.all()] == ["bob"]
