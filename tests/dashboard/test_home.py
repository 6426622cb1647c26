"""Home: who works on what, what is stuck, what needs a person, and doing something about it right there."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.test import Client
from django.utils.html import strip_tags

from coordination.models import Event
from coordination.toolset import run
from handoffs.models import Handoff
from inbox.models import Delivery
from nexus.core.apps import actions, nexus_apps
from nexus.core.operations.registry import TOOLSETS
from nexus.hooks import setup_record
from nexus.hooks.harness import setup_file
from nexus.hooks.models import Webhook
from nexus.hooks.setup_record import Record, Written
from tests.conftest import OPERATOR
from tests.handoffs.conftest import Clock, clock
from tests.pages import act, do, queries, shown

__all__ = ["clock"]


@pytest.fixture
def place(clock: Clock, db: None, project: str) -> dict[str, str]:
    """A project where ana asks and bob and cleo work."""
    for agent_id in ("ana", "bob", "cleo"):
        do("agent_register", agent_id=agent_id, role="coder", capabilities=["python"])
    return {"project_root": project}


@pytest.fixture
def offer(place: dict[str, str]) -> Callable[..., str]:
    """A handoff of ana's, for python unless told otherwise; its id."""

    def offer(title: str = "Fix the login", **more: Any) -> str:
        target = {"strategy": "capability", "capability": "python"}
        arguments = {"from_agent_id": "ana", "target": target, "visibility": "public", "title": title, **more}
        handoff_id: str = do("handoff_create", **place, **arguments)["handoff_id"]
        return handoff_id

    return offer


def letter(clock: Clock, place: dict[str, str], subject: str = "Where?") -> str:
    """The delivery_id of a dead letter of bob's."""
    to_bob = {"strategy": "direct", "agent_id": "bob"}
    sent = do("message_create", **place, from_agent_id="ana", subject=subject, body="b", target=to_bob)["message_id"]
    for _ in range(6):
        do("inbox_pull", agent_id="bob")
        clock.shift(timedelta(minutes=6))
    return Delivery.objects.get(message_id=sent).pk


def rows(page: str) -> list[str]:
    """The agents of the roster, in order, with what stands in their rows."""
    table = re.search('<table class="nx-table nx-stack nx-roster".*?</table>', page)
    assert table
    found = re.findall("<tr>.*?</tr>", table[0])[1:]
    return [re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", row)).strip() for row in found]


# The roster


def test_it_shows_who_works_on_what_those_first_who_do(
    offer: Callable[..., str], place: dict[str, str], browser: Client
) -> None:
    handoff_id = offer()
    do("handoff_claim", **place, handoff_id=handoff_id, agent_id="cleo")
    page = shown(browser.get("/admin/"))
    assert [row.split()[0] for row in rows(page)] == ["cleo", "ana", "bob"]
    assert (
        "claimed Fix the login lease" in rows(page)[0]
        and f'href="/admin/handoffs/handoff/{handoff_id}/change/"' in page
    )


def test_it_puts_an_agent_first_whose_lease_ran_out(
    offer: Callable[..., str], place: dict[str, str], browser: Client, clock: Clock
) -> None:
    for agent_id in ("bob", "cleo"):
        do("handoff_claim", **place, handoff_id=offer(), agent_id=agent_id)
        clock.shift(200)
    clock.shift(150)
    assert rows(shown(browser.get("/admin/")))[0].startswith("bob coder")
    assert "lease ran out" in rows(shown(browser.get("/admin/")))[0]


def test_it_counts_any_act_as_being_there(place: dict[str, str], browser: Client, clock: Clock) -> None:
    clock.shift(timedelta(hours=2))
    do("message_create", **place, from_agent_id="bob", subject="s", body="b")
    page = rows(shown(browser.get("/admin/")))
    assert page[0].startswith("bob coder –") and "offline" in page[1] and "offline" in page[2]


def test_it_finds_agents_and_work_by_words(offer: Callable[..., str], place: dict[str, str], browser: Client) -> None:
    do("handoff_claim", **place, handoff_id=offer("Write the parser"), agent_id="cleo")
    assert [row.split()[0] for row in rows(shown(browser.get("/admin/?q=PARSER")))] == ["cleo"]
    assert "No agent fits" in shown(browser.get("/admin/?q=zzz"))


def test_it_shows_some_of_many_agents_at_no_more_queries(
    offer: Callable[..., str], place: dict[str, str], browser: Client
) -> None:
    def more(first: int, last: int) -> None:
        for number in range(first, last):
            do("agent_register", agent_id=f"agent-{number}", role="coder", capabilities=["python"])
            do("handoff_claim", **place, handoff_id=offer(), agent_id=f"agent-{number}")
            offer("Lost", target={"strategy": "role", "role": f"role {number}"})

    more(0, 5)
    few = queries(lambda: browser.get("/admin/"))
    more(5, 45)
    assert queries(lambda: browser.get("/admin/")) == few
    page = shown(browser.get("/admin/"))
    assert len(rows(page)) == 40 and "All 48 agents" in page


# What needs a person


def test_every_kind_names_a_page_and_actions_that_there_are(db: None) -> None:
    kinds = [kind for app in nexus_apps() for kind in app.attention_kinds()]
    assert len({kind.name for kind in kinds}) == len({kind.rank for kind in kinds}) == len(kinds)
    assert {name for kind in kinds for name in kind.actions} <= actions().keys()
    pages = {page.name for app in nexus_apps() for page in app.pages()}
    records = {f"{model._meta.app_label}_{model._meta.model_name}_change" for model in admin.site._registry}
    assert {kind.page for kind in kinds} - {""} <= pages | records
    for action in actions().values():
        assert action.operation in TOOLSETS[action.toolset].operations
        assert not action.undo or action.undo in actions()


def test_the_operator_is_no_agent(browser: Client, place: dict[str, str]) -> None:
    do("agent_register", agent_id="operator", role="operator")
    page = shown(browser.get("/admin/"))
    assert [row.split()[0] for row in rows(page)] == ["ana", "bob", "cleo"]
    assert "<strong>3</strong> free" in " ".join(page.split())


def test_it_begins_with_what_costs_most_to_wait_and_folds_the_rest(
    clock: Clock, place: dict[str, str], offer: Callable[..., str], browser: Client
) -> None:
    to = {"strategy": "direct", "agent_id": "operator"}
    offer("Nobody's", target={"strategy": "role", "role": "cook"})
    offer("Bob's", target={"strategy": "direct", "agent_id": "bob"})
    run(OPERATOR, "agent_register", {"agent_id": "operator"})
    do("message_create", **place, from_agent_id="ana", subject="Which?", body="b", target=to)
    clock.shift(timedelta(hours=5))
    urgent, folded = shown(browser.get("/admin/")).split('<details id="later">')
    kinds = re.findall(r'<h3 class="nx-kind" id="([\w-]+)"', urgent)
    assert kinds == ["answers", "orphans"] and 'id="untaken"' in folded.split("</details>")[0]
    everything = shown(browser.get("/admin/attention/"))
    assert everything.index('id="answers"') < everything.index('id="orphans"') < everything.index('id="untaken"')


def test_after_setup_it_says_what_to_tell_the_client(db: None, browser: Client, settings: Any, tmp_path: Path) -> None:
    assert "Make the first agent" in shown(browser.get("/admin/"))
    file = setup_file(settings.NEXUS.home, tmp_path)
    record = Record(str(tmp_path), {str(tmp_path / ".mcp.json"): Written(None, "{}", [("server", "claude-code")], [])})
    file.parent.mkdir(parents=True, exist_ok=True)
    setup_record.save(settings.NEXUS.home, record)
    try:
        page = shown(browser.get("/admin/"))
    finally:
        file.unlink()
    text = " ".join(strip_tags(page).split())
    assert "Make the first agent" not in text and f"Claude Code in {tmp_path} “You are claude" in text
    assert "on Nexus. Do your first turn.”" in text


def test_it_acts_on_a_need_right_there_and_takes_it_back(clock: Clock, place: dict[str, str], browser: Client) -> None:
    dead = letter(clock, place)
    assert f'value="dead_letter_requeue {dead}"' in shown(browser.get("/admin/"))
    page = act(browser, do=f"dead_letter_requeue {dead}")
    assert "“Where? (to bob)” was requeued." in page and Delivery.objects.get(pk=dead).status == "unread"
    [undo] = re.findall('<form class="nx nx-undo".*?</form>', page)
    assert f'value="{dead}"' in undo and 'value="dead_letter_park"' in undo
    assert "was parked again" in act(browser, do="dead_letter_park", on=[dead])
    assert Delivery.objects.get(pk=dead).status == "parked"


def test_it_does_nothing_twice(clock: Clock, place: dict[str, str], browser: Client) -> None:
    dead = letter(clock, place)
    act(browser, do=f"dead_letter_requeue {dead}")
    page = act(browser, do=f"dead_letter_requeue {dead}")
    assert "was not requeued: Cannot requeue mail that is unread. (INVALID_TRANSITION)" in page
    assert Event.objects.filter(type="message.requeued").count() == 1


def test_it_settles_many_at_once_and_tells_which_it_did_not(
    clock: Clock, place: dict[str, str], browser: Client
) -> None:
    letters = [letter(clock, place, f"Where {number}?") for number in range(3)]
    do_not = letters[1]
    Delivery.objects.filter(pk=do_not).update(status="unread")
    page = act(browser, do="dead_letter_acknowledge", on=[*letters, *letters, "dlv_gone"])
    assert "2 dead letters were acknowledged." in page
    assert "“Where 1? (to bob)” was not acknowledged: Cannot acknowledge mail that is unread." in page
    assert "“dlv_gone” was not acknowledged: No such delivery" in page
    assert [Delivery.objects.get(pk=pk).status for pk in letters] == ["read", "unread", "read"]


def test_it_asks_for_what_an_action_needs(clock: Clock, place: dict[str, str], browser: Client) -> None:
    dead = letter(clock, place)
    asked = act(browser, do=f"dead_letter_forward {dead}")
    assert "To which agent" in asked and "Where? (to bob)" in asked and '<option value="cleo">' in asked
    for wrong in ({}, {"agent_id": "nobody"}, {"agent_id": "bob"}):
        page = act(browser, do="dead_letter_forward", on=[dead], asked="1", **wrong)
        assert "To which agent" in page and 'role="alert"' in page
    page = act(browser, do="dead_letter_forward", on=[dead], asked="1", agent_id="cleo")
    assert "“Where? (to bob)” was forwarded." in page


def test_it_acts_on_nothing_that_was_not_chosen_and_on_not_too_much(db: None, browser: Client) -> None:
    assert "Nothing was requeued. Choose what it is about first." in act(browser, do="dead_letter_requeue")
    many = [f"dlv_{number}" for number in range(201)]
    assert "Choose 200 at most." in act(browser, do="dead_letter_requeue", on=many)
    assert browser.post("/admin/act/", {"do": "database_reset", "on": "x"}).status_code == 404


def test_it_tells_of_many_refusals_in_few_words(db: None, browser: Client) -> None:
    page = act(browser, do="dead_letter_requeue", on=[f"dlv_{number}" for number in range(100)])
    assert page.count("was not requeued: No such delivery") == 5 and "Nor were 95 more requeued." in page


def test_it_asks_on_a_page_to_which_one_can_return(offer: Callable[..., str], browser: Client) -> None:
    form = {"do": "handoff_reassign", "on": [offer("One"), offer("Two")], "next": "/admin/#need"}
    came = browser.post("/admin/act/", form)
    assert came.status_code == 302
    page = shown(browser.get(came["Location"]))
    assert "To which agent" in page and "One" in page and "Two" in page and 'value="/admin/#need"' in page
    assert {handoff.claimed_by for handoff in Handoff.objects.all()} == {None}


def test_it_asks_at_once_where_an_address_would_be_too_long(db: None, browser: Client) -> None:
    answer = browser.post("/admin/act/", {"do": "handoff_reassign", "on": [f"{'x' * 80}{i}" for i in range(200)]})
    assert answer.status_code == 200 and "To which agent" in shown(answer)


def test_a_link_to_an_action_only_shows_its_form(
    offer: Callable[..., str], place: dict[str, str], browser: Client
) -> None:
    handoff_id = offer()
    do("handoff_claim", **place, handoff_id=handoff_id, agent_id="bob")
    for asked in ({}, {"asked": "1"}):
        page = browser.get("/admin/act/", {"do": "handoff_release", "on": handoff_id, **asked})
        assert 'name="asked"' in page.text
    assert Handoff.objects.get(pk=handoff_id).status == "CLAIMED"


def test_it_leads_back_to_no_other_host(db: None, browser: Client) -> None:
    for back in ["//evil.example/admin/", "https://evil.example/admin/", "javascript:alert(1)", ""]:
        answer = browser.post("/admin/act/", {"do": "dead_letter_requeue", "next": back})
        assert answer.headers["Location"] == "/admin/attention/"


def test_it_marks_the_answers_of_agents_as_read(place: dict[str, str], browser: Client) -> None:
    do("agent_register", agent_id="operator", role="operator")
    to_me = {"strategy": "direct", "agent_id": "operator"}
    sent = do("message_create", **place, from_agent_id="bob", subject="May I?", body="b", target=to_me)["message_id"]
    page = shown(browser.get("/admin/"))
    assert (
        "Agents wrote to you" in page
        and "bob wrote to you: May I?" in page
        and f"/admin/inbox/message/{sent}/change/" in page
    )
    assert "“May I?” was marked as read." in act(browser, do=f"inbox_ack {sent}")
    assert "wrote to you: May I?" not in shown(browser.get("/admin/"))
    assert "May I?" in shown(browser.get(f"/admin/inbox/message/{sent}/change/", follow=True))


def test_it_tries_a_webhook_again_that_fails(clock: Clock, db: None, browser: Client) -> None:
    added = run(OPERATOR, "webhook_add", {"url": "https://example.com/nexus"})["data"]["webhook_id"]
    Webhook.objects.update(failures=2, last_error="refused")
    page = shown(browser.get("/admin/"))
    assert "https://example.com/nexus fails" in page and "refused" in page
    assert "was told to try again" in act(browser, do=f"webhook_redeliver {added}")
    assert "https://example.com/nexus fails" not in shown(browser.get("/admin/"))


# Handoffs, on Home, the board and their pages


def test_it_offers_on_a_handoffs_page_what_its_state_allows(
    offer: Callable[..., str], place: dict[str, str], browser: Client
) -> None:
    def offered(handoff_id: str) -> list[str]:
        page = shown(browser.get(f"/admin/handoffs/handoff/{handoff_id}/change/"))
        return re.findall('value="(handoff_[a-z_]+) ', page)

    handoff_id = offer()
    assert offered(handoff_id) == ["handoff_reassign", "handoff_withdraw"]
    do("handoff_claim", **place, handoff_id=handoff_id, agent_id="bob")
    assert offered(handoff_id) == ["handoff_prolong", "handoff_release", "handoff_reassign"]
    checked = offer(verifier="operator")
    do("handoff_claim", **place, handoff_id=checked, agent_id="bob")
    do("handoff_complete", **place, handoff_id=checked, agent_id="bob", result="done")
    assert offered(checked) == ["handoff_approve", "handoff_send_back"]
    do("handoff_reject", **place, handoff_id=handoff_id, agent_id="bob")
    assert offered(handoff_id) == ["handoff_reoffer"]


def test_it_releases_on_home_what_is_blocked(offer: Callable[..., str], place: dict[str, str], browser: Client) -> None:
    handoff_id = offer()
    do("handoff_claim", **place, handoff_id=handoff_id, agent_id="bob")
    do("handoff_block", **place, handoff_id=handoff_id, agent_id="bob", reason="Where is the password?")
    page = shown(browser.get("/admin/"))
    assert "bob cannot go on: Where is the password?" in page and f'value="handoff_release {handoff_id}"' in page
    assert 'name="asked"' in act(browser, do=f"handoff_release {handoff_id}")
    page = act(browser, do=f"handoff_release {handoff_id}", asked="1")
    assert "“Fix the login” was released." in page and ">Undo</button>" not in page
    assert Handoff.objects.get(pk=handoff_id).status == "OPEN"


def test_it_shows_columns_of_the_board_for_what_there_is(
    offer: Callable[..., str], place: dict[str, str], browser: Client, clock: Clock
) -> None:
    def columns() -> list[str]:
        return re.findall('<h2 id="column-[^"]*">([^<]*)</h2>', browser.get("/admin/board/").content.decode())

    assert columns() == ["Open", "Claimed", "Finished"]
    handoff_id = offer(deadline_seconds=3600)
    do("handoff_claim", **place, handoff_id=handoff_id, agent_id="bob")
    do("handoff_block", **place, handoff_id=handoff_id, agent_id="bob", reason="no password")
    do("handoff_cancel", **place, handoff_id=offer(), agent_id="ana")
    assert columns() == ["Open", "Claimed", "Blocked", "Finished"]
    page = shown(browser.get("/admin/board/"))
    assert "no password" in page and "held by" in page and ">cancelled<" in page and "due <time" in page
    clock.shift(301)
    assert "lease ran out" in shown(browser.get("/admin/board/"))


def test_it_links_a_handoff_with_the_one_that_it_was_offered_again_as(
    offer: Callable[..., str], place: dict[str, str], browser: Client
) -> None:
    old = offer()
    do("handoff_cancel", **place, handoff_id=old, agent_id="ana")
    act(browser, do="handoff_reoffer", on=[old], asked="1")
    new = Handoff.objects.exclude(pk=old).get().pk
    page = shown(browser.get(f"/admin/handoffs/handoff/{old}/change/"))
    assert f'href="/admin/handoffs/handoff/{new}/change/"' in page and "Offer again" not in page, (
        "it is offered again once"
    )
    assert f'href="/admin/handoffs/handoff/{old}/change/"' in shown(
        browser.get(f"/admin/handoffs/handoff/{new}/change/")
    )


def test_a_handoff_is_read_as_markdown_with_its_line_breaks(offer: Callable[..., str], browser: Client) -> None:
    text = "Fix *it*:\nthe <script>alert(1)</script> login"
    page = browser.get(f"/admin/handoffs/handoff/{offer(payload=text)}/change/").content.decode()
    assert "<p>Fix <em>it</em>:<br>\nthe &lt;script&gt;" in page and "<script>alert" not in page
    page = browser.get(f"/admin/handoffs/handoff/{offer(payload={'a': '<b>'})}/change/").content.decode()
    assert "{\n  &quot;a&quot;: &quot;&lt;b&gt;&quot;\n}</pre>" in page
