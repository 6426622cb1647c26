"""Comments of people on a plan, and what its agent says became of each."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from coordination.comments import MOST_SHOWN
from nexus.core.clock import now
from nexus.core.operations import dispatch
from nexus.planning.models import Issue, Plan, PlanComment
from nexus.planning.services import comments
from nexus.planning.toolset import PLANNING
from tests.conftest import LOCAL, OPERATOR, Call, at_once
from tests.handoffs.conftest import mail_of
from tests.pages import shown
from tests.planning.conftest import Project


def operates(nexus: Project, name: str, **arguments: Any) -> Any:
    return dispatch.run(PLANNING, OPERATOR, name, {"project_root": str(nexus.root), **arguments})


def does(nexus: Project, name: str, **arguments: Any) -> Any:
    answer = operates(nexus, name, **arguments)
    assert answer["ok"], answer
    return answer["data"]


@pytest.fixture
def planned(nexus: Project, team: None) -> Project:
    """A plan that ana holds, with two issues."""
    nexus.call("plan_start", topic="Parser", issues=["Which\nhash?", "Who?"], research_summary="", agent="ana")
    nexus.call("plan_decide", issue_id=1, summary="sha256", agent="bob")
    return nexus


def test_all_drafts_become_one_message_whose_comments_are_answered(planned: Project, call: Call) -> None:
    on_issue = does(planned, "plan_comment_add", issue_id=1, text="Why not sha512?")
    on_all = does(planned, "plan_comment_add", text="Too long.")
    gone = does(planned, "plan_comment_add", text="Never mind.")["comment_id"]
    assert dispatch.run(PLANNING, OPERATOR, "plan_comment_remove", {"comment_id": gone})["ok"]
    assert planned.call("plan_comments", agent="ana")["comments"] == [], "drafts are the operators'"
    before = len(mail_of(call, "ana"))

    assert does(planned, "plan_comments_send") == {"sent": 2, "to": "ana"}

    (message,) = mail_of(call, "ana")[before:]
    assert message["subject"] == "2 comments on your plan: Parser"
    quote = "| Which\n| hash?\n| Decided: sha256"
    assert f"1. {on_issue['comment_id']}, about issue 1\n{quote}\nolga: Why not sha512?" in message["body"]
    assert f"2. {on_all['comment_id']}, about all of it\nolga: Too long." in message["body"]
    said = {"comment_id": on_issue["comment_id"], "outcome": "declined", "words": "It is slower."}
    other = dispatch.run(PLANNING, LOCAL, "plan_comment_answer", {**said, "agent_id": "bob"})
    assert other["error"]["code"] == "NOT_OWNER"
    assert dispatch.run(PLANNING, LOCAL, "plan_comment_answer", {**said, "agent_id": "ana"})["ok"]
    rows = planned.call("plan_comments")["comments"]
    assert [(row["outcome"], row["words"]) for row in rows] == [("declined", "It is slower."), (None, "")]
    assert operates(planned, "plan_comments_send")["error"]["code"] == "INVALID_TRANSITION"
    sent = {"comment_id": on_all["comment_id"]}
    assert dispatch.run(PLANNING, OPERATOR, "plan_comment_remove", sent)["error"]["code"] == "INVALID_TRANSITION"


def test_it_goes_to_whom_an_operator_names_if_nobody_holds_the_plan(nexus: Project, team: None) -> None:
    nexus.plan("Which?")  # by a connection without a name
    does(nexus, "plan_comment_add", issue_id=1, text="Why?")
    assert "No registered agent holds this plan" in operates(nexus, "plan_comments_send")["error"]["message"]
    assert operates(nexus, "plan_comments_send", agent_id="nobody")["error"]["code"] == "NOT_FOUND"
    assert does(nexus, "plan_comments_send", agent_id="cleo") == {"sent": 1, "to": "cleo"}
    nexus.call("plan_decide", issue_id=1, summary="This.", agent="bob")
    does(nexus, "plan_comment_add", text="Fine.")
    assert does(nexus, "plan_comments_send")["to"] == "bob", "who decided last"


def test_comments_stay_when_their_issue_goes(planned: Project) -> None:
    does(planned, "plan_comment_add", issue_id=2, text="Me.")
    planned.call("plan_update", action="remove", issue_id=2)
    assert does(planned, "plan_comments")["comments"][0]["quote"] == "Who?\nTo be decided."
    assert operates(planned, "plan_comment_add", issue_id=2, text="Me.")["error"]["message"] == "Issue 2 not found"
    planned.call("task_close")
    assert does(planned, "plan_comments")["comments"] == [] and PlanComment.objects.count() == 1
    assert operates(planned, "plan_comment_add", text="Late.")["error"]["message"] == "No active plan session"


def test_a_plan_whose_file_is_gone_leaves_its_comments_to_no_other(planned: Project) -> None:
    does(planned, "plan_comment_add", text="Too long.")
    (planned.root / ".nexus/state/plan.json").unlink()
    planned.call("plan_start", topic="Lexer", issues=["Which?"], research_summary="")
    assert does(planned, "plan_comments")["comments"] == []


def test_drafts_are_no_more_than_what_a_message_holds(planned: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comments, "LARGEST_MESSAGE", 2_000)
    does(planned, "plan_comment_add", text="Too long.")
    assert operates(planned, "plan_comment_add", text="x" * 2_000)["error"]["code"] == "CONTENT_TOO_LARGE"
    assert [row["text"] for row in does(planned, "plan_comments")["comments"]] == ["Too long."]


@pytest.mark.parametrize("name", ["plan_comment_add", "plan_comments_send"])
def test_agents_write_and_send_none(planned: Project, name: str) -> None:
    more = {"text": "x"} if name == "plan_comment_add" else {}
    assert planned.refused(name, **more)[0] == "NOT_OWNER"


@pytest.mark.usefixtures("committed", "team")
def test_two_that_send_at_once_send_once(nexus: Project, call: Call) -> None:
    nexus.call("plan_start", topic="Parser", issues=["Which?"], research_summary="", agent="ana")
    does(nexus, "plan_comment_add", text="Why?")
    sent = at_once([partial(operates, nexus, "plan_comments_send")] * 3)
    assert sorted(answer["ok"] for answer in sent) == [False, False, True]
    assert len(mail_of(call, "ana")) == 1


def test_a_page_keeps_the_words_of_a_comment_that_is_refused(planned: Project, browser: Client) -> None:
    add, issue = reverse("admin:plan_comment", args=[Plan.objects.get().pk]), Issue.objects.get(number=2)
    (planned.root / ".nexus/state/plan.json").write_text("{")
    for about in ({}, {"issue": str(issue.pk)}):
        page = shown(browser.post(add, {"text": "Why not sha512?", **about}))
        assert "Why not sha512?" in page and "plan.json" in page
    assert not PlanComment.objects.exists()
    assert browser.post(add, {"text": "Why?", "issue": "99"}).status_code == 404


def test_an_issues_page_takes_comments_and_shows_the_answers(planned: Project, browser: Client) -> None:
    workspace, issue = Plan.objects.get().pk, Issue.objects.get(number=1)
    page, add = reverse("admin:plan_issue", args=[issue.pk]), reverse("admin:plan_comment", args=[workspace])
    assert "Why not?" in shown(browser.post(add, {"text": "Why not?", "issue": str(issue.pk)}, follow=True))
    browser.post(add, {"text": "All."})
    assert "Send 2 comments on this plan" in shown(browser.get(page))
    whole = PlanComment.objects.get(issue_number=None)
    browser.post("/admin/act/", {"do": f"plan_comment_remove {whole.pk}"})
    send = {"do": f"plan_comments_send {workspace}", "next": page}
    assert "To which agent" in shown(browser.post("/admin/act/", send, follow=True))
    text = shown(browser.post("/admin/act/", {**send, "asked": "1", "agent_id": ""}, follow=True))
    assert "“Parser” was sent the comments" in text
    said = {"comment_id": PlanComment.objects.get().pk, "agent_id": "ana", "outcome": "done", "words": "Said why."}
    assert dispatch.run(PLANNING, LOCAL, "plan_comment_answer", said)["ok"]
    text = shown(browser.get(page))
    assert "done" in text and "Said why." in text


def test_of_many_comments_the_newest_are_shown(planned: Project, browser: Client) -> None:
    plan, older = Plan.objects.get(), 3
    PlanComment.objects.bulk_create(
        PlanComment(comment_id=f"comment_{number:04d}", workspace_id=plan.workspace_id, plan_number=plan.number,
                    issue_number=1, text=f"Text {number}.", author="olga", written_at=now(), sent_at=now())
        for number in range(MOST_SHOWN + older)
    )  # fmt: skip
    data = does(planned, "plan_comments")
    assert [row["text"] for row in data["comments"]] == [f"Text {n}." for n in range(older, MOST_SHOWN + older)]
    assert data["comments_left_off"] == older
    issue = Issue.objects.get(plan=plan, number=1)
    whole = f"{reverse('admin:plan')}?workspace={plan.workspace_id}"
    for address in (whole, reverse("admin:plan_issue", args=[issue.pk])):
        page = shown(browser.get(address))
        assert page.count('class="nx-comment"') == MOST_SHOWN
        assert "3 older comments are not shown." in page
    PlanComment.objects.filter(pk__lte=f"comment_{older - 1:04d}").delete()
    assert "comments_left_off" not in does(planned, "plan_comments")
    PlanComment.objects.filter(pk=f"comment_{older:04d}").update(sent_at=None)
    assert len(planned.call("plan_comments", agent="ana")["comments"]) == MOST_SHOWN - 1, "no draft counts for agents"
