"""The timeline: who did what when, as a browser on this machine asks for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import time_machine
from django.test import Client

from coordination.models import Workspace
from nexus.core.clock import iso
from nexus.core.operations import dispatch
from nexus.core.operations.caller import Caller
from nexus.dashboard.views.timeline_layout import NARROWEST
from nexus.planning.toolset import PLANNING
from tests.pages import do

MINUTE = timedelta(minutes=1)
CELL = timedelta(days=30) * NARROWEST / 100
ONE_CELL = pytest.mark.parametrize("noon", ["one cell"], indirect=True)
PYTHON = {"strategy": "capability", "capability": "python"}


@pytest.fixture
def noon(request: pytest.FixtureRequest) -> datetime:
    """A moment that we call noon: the present, because that is what the ids of messages are made from.

    `ONE_CELL` takes the next moment from which a quarter of an hour is within one cell of a month's clock.
    """
    present = datetime.now(UTC).replace(microsecond=0)
    left = CELL - timedelta(seconds=present.timestamp() % CELL.total_seconds())
    return present + left if hasattr(request, "param") and left < 15 * MINUTE else present


@pytest.fixture
def clock(noon: datetime) -> Iterator[time_machine.Traveller]:
    """Noon, standing still until the test moves it."""
    with time_machine.travel(noon, tick=False) as clock:
        yield clock


@pytest.fixture
def worked(db: None, tmp_path: Path, clock: time_machine.Traveller, noon: datetime) -> str:
    """Ana wrote to bob and handed work over, which he did from 12:02 to 12:05; the handoff."""
    place = {"project_root": str(tmp_path)}
    for agent_id in ("ana", "bob"):
        do("agent_register", agent_id=agent_id, capabilities=["python"])
    do("message_create", **place, from_agent_id="ana", subject="Look out", body="Work comes.",
       target={"strategy": "direct", "agent_id": "bob"})  # fmt: skip
    handoff: str = do("handoff_create", **place, from_agent_id="ana", target=PYTHON, visibility="public",
                      title="Fix the login", payload="It is broken.")["handoff_id"]  # fmt: skip
    clock.move_to(noon + 2 * MINUTE)
    do("handoff_claim", **place, handoff_id=handoff, agent_id="bob")
    clock.move_to(noon + 5 * MINUTE)
    do("handoff_complete", **place, handoff_id=handoff, agent_id="bob", result="The cookie was too old.")
    clock.move_to(noon + 10 * MINUTE)
    return handoff


def told(noon: datetime, minute: int) -> str:
    return f"{noon + minute * MINUTE:%Y-%m-%d %H:%M:%S} UTC"


def text_of(browser: Client, url: str) -> str:
    answer = browser.get(url)
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", answer.content.decode())


def test_it_draws_claims_waits_and_sends(worked: str, browser: Client, noon: datetime) -> None:
    page = text_of(browser, "/admin/timeline/")
    assert f"Fix the login: claimed by bob, from {told(noon, 2)} to {told(noon, 5)}" in page
    assert f"Fix the login: waits, from {told(noon, 0)} to {told(noon, 2)}" in page
    assert "ana → bob: 1 message" in page
    assert 'href="/admin/agents/bob/" tabindex="-1"' in page


@ONE_CELL
def test_it_says_what_a_block_holds(
    worked: str, browser: Client, tmp_path: Path, clock: time_machine.Traveller
) -> None:
    place = {"project_root": str(tmp_path)}
    other = do("handoff_create", **place, from_agent_id="ana", target=PYTHON, visibility="public")["handoff_id"]
    do("handoff_claim", **place, handoff_id=other, agent_id="bob")
    clock.shift(MINUTE)
    do("handoff_start", **place, handoff_id=other, agent_id="bob")
    clock.shift(MINUTE)
    page = text_of(browser, "/admin/timeline/?window=30d")
    assert "3 spans here of bob (2 × claimed, 1 × in progress): zoom in" in page


@pytest.mark.parametrize(
    ("later", "window"), [(timedelta(), "1h"), (timedelta(hours=3), "6h"), (timedelta(days=12), "30d")]
)
def test_it_opens_on_what_happened_last(
    worked: str, browser: Client, clock: time_machine.Traveller, later: timedelta, window: str
) -> None:
    clock.shift(later)
    page = text_of(browser, "/admin/timeline/")
    assert "Fix the login: claimed by bob" in page
    assert re.search(rf'href="\?[^"]*window={window}[^"]*" aria-current="page"', page)


def test_it_opens_on_what_happened_long_ago(
    worked: str, browser: Client, noon: datetime, clock: time_machine.Traveller
) -> None:
    clock.shift(timedelta(days=200))
    page = text_of(browser, "/admin/timeline/")
    assert f"Fix the login: claimed by bob, from {told(noon, 2)} to {told(noon, 5)}" in page
    assert 'aria-current="page">30 days' not in page


def test_it_tells_what_a_chosen_span_was(worked: str, browser: Client) -> None:
    page = browser.get("/admin/timeline/").content.decode()
    (claim,) = re.findall(r'href="([^"]*span=[^"]*)"', re.findall(r'<a\s+class="claimed".*?</a>', page, re.DOTALL)[0])
    shown = text_of(browser, f"/admin/timeline/{claim.replace('&amp;', '&')}")
    assert "for 3 min" in shown and "when it was completed" in shown and "The cookie was too old." in shown
    assert f"/admin/handoffs/handoff/{worked}/change/" in shown


def test_it_tells_what_an_arrow_was(worked: str, browser: Client) -> None:
    page = browser.get("/admin/timeline/").content.decode()
    (arrow, *_) = re.findall(r'href="(\?[^"]*sender=ana[^"]*)"', page)
    assert "Look out" in text_of(browser, f"/admin/timeline/{arrow.replace('&amp;', '&')}")


def test_it_keeps_to_a_window_that_the_address_gives(worked: str, browser: Client, noon: datetime) -> None:
    at = urlencode({"since": iso(noon + 6 * MINUTE), "until": iso(noon + 7 * MINUTE)})
    assert "Nothing was handed over, sent, planned or done in a turn in this time." in text_of(
        browser, f"/admin/timeline/?{at}"
    )
    during = urlencode({"since": iso(noon + 3 * MINUTE), "until": iso(noon + 4 * MINUTE)})
    assert "Fix the login: claimed by bob" in text_of(browser, f"/admin/timeline/?{during}")


def test_it_narrows_to_an_agent_in_every_window(worked: str, browser: Client, tmp_path: Path) -> None:
    do("agent_register", agent_id="cleo", capabilities=["python"])
    offer = {"project_root": str(tmp_path), "from_agent_id": "ana", "target": PYTHON, "visibility": "public"}
    other = do("handoff_create", **offer, title="Write the docs")["handoff_id"]
    do("handoff_claim", project_root=str(tmp_path), handoff_id=other, agent_id="cleo")
    page = text_of(browser, "/admin/timeline/?agent=bob")
    assert "Fix the login: claimed by bob" in page and "Fix the login: waits" in page
    assert "ana → bob: 1 message" in page
    assert "Write the docs" not in page and "cleo" not in page
    windows = re.findall(r'<a href="(\?[^"]*window=\w+)"', page) + re.findall(r'id="way-\w+" href="([^"]*)"', page)
    assert len(windows) == 10 and all("agent=bob" in way for way in windows)
    assert "/admin/timeline/?agent=bob&amp;window=1d" in text_of(browser, "/admin/agents/bob/")


@ONE_CELL
def test_it_marks_the_steps_of_plans_on_the_lanes_of_who_did_them(
    db: None, browser: Client, tmp_path: Path, clock: time_machine.Traveller, noon: datetime
) -> None:
    def plans(agent_id: str, verb: str, **arguments: Any) -> None:
        caller = Caller(transport="test", agent_id=agent_id, connection="test:planning")
        assert dispatch.run(PLANNING, caller, verb, {"project_root": str(tmp_path), **arguments})["ok"]

    for agent_id in ("ana", "bob"):
        do("agent_register", agent_id=agent_id)
    plans("ana", "task_add", title="Read the log", context="Why.")
    clock.move_to(noon + 2 * MINUTE)
    plans("bob", "task_update", id=1, status="in_progress")
    clock.move_to(noon + 9 * MINUTE)
    plans("bob", "task_update", id=1, status="completed")
    clock.move_to(noon + 10 * MINUTE)
    page = text_of(browser, "/admin/timeline/")
    assert "<title>bob finished the task Read the log</title>" in page
    assert "<title>bob changed the task Read the log to in_progress</title>" in page
    steps = re.findall(r'class="step" id="step-\d+" href="([^"]*)"', page)
    assert len(steps) == 2 and steps == re.findall(r'href="([^"]*step=\d+)"', page)
    shown = text_of(browser, f"/admin/timeline/{steps[1].replace('&amp;', '&')}")
    assert "finished the task" in shown[shown.index('id="inspect"') :]
    assert 'class="step" id=' not in text_of(browser, "/admin/timeline/?agent=ana")
    both = text_of(browser, "/admin/timeline/?window=30d&agent=bob")
    assert "<title>bob finished the task Read the log, and 1 more before</title>" in both


def test_it_takes_whatever_an_address_says(worked: str, browser: Client) -> None:
    for query in [
        "agent=nobody",
        "step=0",
        "step=999999999999",
        "step=x",
        "since=yesterday&until=now",
        "since=2026-03-01T12:00:00Z",
        "since=2026-03-02T12:00:00Z&until=2026-03-01T12:00:00Z",
        "since=0001-01-01T00:00:00%2B14:00&until=9999-12-31T23:59:59-14:00",
        "window=year",
        "span=nothing.1",
        "span=.",
        "sender=ana&recipient=bob&sent_since=x&sent_until=y",
        "workspace=none",
    ]:
        text_of(browser, f"/admin/timeline/?{query}")


def test_it_leads_nearer_and_farther_earlier_and_later(worked: str, browser: Client) -> None:
    page = browser.get("/admin/timeline/").content.decode()
    for _ in range(12):
        ways = dict(re.findall(r'id="way-(\w+)"\s+href="([^"]*)"', page))
        assert set(ways) == {"earlier", "later", "nearer", "farther"}
        page = browser.get(f"/admin/timeline/{ways['earlier'].replace('&amp;', '&')}").content.decode()
        nearer = dict(re.findall(r'id="way-(\w+)"\s+href="([^"]*)"', page))["nearer"]
        page = browser.get(f"/admin/timeline/{nearer.replace('&amp;', '&')}").content.decode()


def test_it_says_before_for_what_retention_took_the_beginning_of(worked: str, browser: Client, noon: datetime) -> None:
    from coordination.models import Event, RetentionPass

    completed = Event.objects.get(handoff_id=worked, type="handoff.completed").pk
    gate = RetentionPass.objects.create()
    Event.objects.filter(pk__lt=completed).delete()
    gate.delete()
    page = text_of(browser, "/admin/timeline/")
    assert f"Fix the login: claimed by bob, from before to {told(noon, 5)}" in page
    assert "before that nothing is known" in page


def test_it_tells_how_many_it_leaves_out(worked: str, browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from handoffs import timeline as handoffs_timeline
    from nexus.dashboard.views import timeline, timeline_layout

    monkeypatch.setattr(timeline, "MOST_ROWS", 1)
    assert "not drawn: 1 less busy agent" in text_of(browser, "/admin/timeline/")
    monkeypatch.setattr(timeline, "MOST_ROWS", 60)
    monkeypatch.setattr(timeline_layout.arrows, "__kwdefaults__", {"most": 0})
    assert "not drawn: 2 of the sends" in text_of(browser, "/admin/timeline/")
    monkeypatch.setattr(handoffs_timeline, "STEPS", 2)
    page = text_of(browser, "/admin/timeline/")
    assert "more than one picture can show" in page and "Fix the login: claimed by bob" in page


def test_it_draws_a_crowd_that_waits_as_how_many_there_are(
    worked: str, browser: Client, tmp_path: Path, clock: time_machine.Traveller, noon: datetime
) -> None:
    for _ in range(9):
        do("handoff_create", project_root=str(tmp_path), from_agent_id="ana", target=PYTHON, visibility="public")
    clock.move_to(noon + 30 * MINUTE)
    assert "9.0 waited, on average" in text_of(browser, "/admin/timeline/")


def test_it_tells_on_the_handoffs_page_how_long_each_part_lasted(worked: str, browser: Client) -> None:
    page = text_of(browser, f"/admin/handoffs/handoff/{worked}/change/")
    assert re.search(r"waiting</span> 2 min", page) and re.search(r"claimed</span>[^<]*(<[^>]*>)*[^<]*3 min", page)


def test_it_looks_at_so_many_sends_however_many_one_message_reached(
    worked: str, browser: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from inbox import monitoring

    place = {"project_root": str(tmp_path)}
    everybody = ["ana", *(f"agent-{number}" for number in range(5))]
    for agent_id in everybody:
        do("agent_register", agent_id=agent_id)
        do("session_open", workspace_id=Workspace.objects.get().pk, agent_id=agent_id)
    do("message_create", **place, from_agent_id="bob", subject="All of you", body="Look.")
    assert sum(f"bob → {agent_id}: 1 message" in text_of(browser, "/admin/timeline/") for agent_id in everybody) == 6
    monkeypatch.setattr(monitoring, "SENDS", 4)
    page = text_of(browser, "/admin/timeline/")
    assert sum(f"bob → {agent_id}: 1 message" in page for agent_id in everybody) == 4
    assert "only the newest messages" in page
