"""The pages of runs, and those that failed in *Needs a person*."""

from __future__ import annotations

import re

import pytest
from django.test import Client as Browser
from django.utils.html import strip_tags

from nexus.control.models import PoolAgent, Role, Turn, TurnStatus
from tests.control.playing import at_hand, lead, say, send, settle, take
from tests.pages import act, shown

__all__ = ["at_hand", "lead"]
HOSTILE = "<script>alert(1)</script>"


def failed(content: str = "Write the parser.", why: str = "the provider is away") -> Turn:
    """A run that failed after it changed a file."""
    send("lead", content)
    turn = take()
    say(turn, Role.ASSISTANT, "I write.", meta={"tool_calls": [{"id": "1", "name": "Edit", "kind": "edit"}]})
    settle(turn, TurnStatus.FAILED, why=why)
    return turn


def page_of(browser: Browser, turn: Turn) -> str:
    return " ".join(shown(browser.get(f"/admin/control/turn/{turn.pk}/change/")).split("<main")[-1].split())


def test_a_run_has_a_page(lead: PoolAgent, browser: Browser) -> None:
    page = page_of(browser, turn := failed())
    for part in ("Write the parser.", "I write.", "Called", "the provider is away", "failed", "needs you", "unknown"):
        assert part in page
    assert "do more than read" in page and f"pool_dismiss_run {turn.pk}" in page and "pool_cancel_run" not in page
    send("lead", "next")
    page = page_of(browser, next_turn := take())
    assert "running" in page and "It did nothing yet" in page and "pool_retry_run" not in page
    settle(next_turn, input_tokens=1_200, output_tokens=34)
    assert "1,200 in, 34 out" in page_of(browser, next_turn) and "needs you" not in page_of(browser, next_turn)
    assert browser.get("/admin/control/turn/turn_none/change/").status_code == 302


@pytest.mark.parametrize(
    ("source", "asked_by"),
    [
        ("rpc", "an operator"),
        ("dashboard", "an operator on the dashboard"),
        ("ci", "an operator through ci"),
    ],
)
def test_it_says_who_asked_for_a_run(lead: PoolAgent, browser: Browser, source: str, asked_by: str) -> None:
    send("lead", "Write the parser.", source=source)
    facts = strip_tags(page_of(browser, take()))
    assert f"Asked by {asked_by} Runner" in " ".join(facts.split())


def test_it_retries_with_the_prompt_that_a_person_changed(lead: PoolAgent, browser: Browser) -> None:
    turn = failed()
    form = f"/admin/act/?do=pool_retry_run&on={turn.pk}&next="
    assert form in page_of(browser, turn)
    assert "Write the parser.</textarea>" in shown(browser.get(form))
    retry = {"do": "pool_retry_run", "on": turn.pk, "asked": "1"}
    browser.post("/admin/act/", {**retry, "content": "Write less."})
    again = Turn.objects.get(retry_of=turn.pk)
    assert again.content == "Write less."
    assert again.pk in page_of(browser, turn) and f"/admin/control/turn/{turn.pk}/change/" in page_of(browser, again)
    refused = shown(browser.post("/admin/act/", {**retry, "content": "Write else."}, follow=True))
    assert "cancel that first" in refused


def test_home_offers_to_retry_or_to_dismiss(lead: PoolAgent, browser: Browser) -> None:
    first, second = failed(why=HOSTILE), failed()
    page = browser.get("/admin/attention/").content.decode()
    assert "A run of lead failed" in page and HOSTILE not in page and f"/admin/control/turn/{first.pk}/change/" in page
    act(browser, do=f"pool_retry_run {first.pk}")
    act(browser, do=f"pool_dismiss_run {second.pk}")
    assert "A run of lead failed" not in shown(browser.get("/admin/attention/"))
    assert take().retry_of == first.pk


def test_home_shows_runs_that_failed_for_one_reason_once(lead: PoolAgent, browser: Browser) -> None:
    first, second, other = failed(), failed(), failed(why="no space left")
    page = shown(browser.get("/admin/"))
    assert page.count('id="need-runs-') == 2 and "A run of lead failed, and 1 more, for the same reason" in page
    [both] = re.findall(rf'value="pool_dismiss_run ({first.pk}[^"]+)"', browser.get("/admin/").content.decode())
    assert "2 runs were" in act(browser, do=f"pool_dismiss_run {both}")
    assert [run.pk for run in Turn.objects.needing_person()] == [other.pk] and second.pk in both


def test_an_agent_whose_run_failed_is_not_just_idle(lead: PoolAgent, browser: Browser) -> None:
    turn = failed()
    for at in ("/admin/control/poolagent/", f"/admin/pool/{lead.pk}/"):
        page = shown(browser.get(at))
        assert "a run failed" in page and ">idle<" not in page
    act(browser, do=f"pool_dismiss_run {turn.pk}")
    assert ">idle<" in shown(browser.get("/admin/control/poolagent/"))


def test_the_list_narrows(lead: PoolAgent, browser: Browser) -> None:
    failed("First.")
    send("lead", "Second.")
    settle(take())
    page = shown(browser.get("/admin/control/turn/"))
    assert page.index("Second.") < page.index("First.")
    for query, there, gone in (
        ("which=needing_person", "First.", "Second."),
        ("outcome=done", "Second.", "First."),
        (f"q={Turn.objects.latest('pk').pk}", "Second.", "First."),
        ("q=nobody", "", "First."),
    ):
        page = shown(browser.get(f"/admin/control/turn/?{query}")).split("<main")[-1]
        assert there in page and gone not in page, query
    assert "Second." in shown(browser.get("/admin/control/turn/?outcome=nonsense&q=lead"))


def test_an_old_address_leads_to_the_row(lead: PoolAgent, browser: Browser) -> None:
    assert browser.get(f"/admin/runs/{failed().pk}/", follow=True).redirect_chain == [
        (f"/admin/control/turn/{Turn.objects.get().pk}/change/", 302)
    ]
