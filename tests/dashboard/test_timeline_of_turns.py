"""The timeline of the pool: its agents' turns, and how long agents waited for people."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime, timedelta
from html import unescape
from typing import Any

import pytest
import time_machine
from django.test import Client as Browser

from nexus.control.agents import questions, timeline, waking
from nexus.control.agents.questions import AnswerKind
from nexus.control.agents.timeline import At, course
from nexus.control.models import Entry, PoolAgent, Question, Role, Turn, TurnStatus
from nexus.core.clock import now
from tests.control.playing import at_hand, fill, lead, pool, say, send, settle, take
from tests.dashboard.test_timeline import MINUTE, clock, noon, text_of, told
from tests.pages import do, shown
from tests.store import plans

__all__ = ["at_hand", "clock", "lead", "noon"]
HOUR = timedelta(hours=1)
CELL = timedelta(seconds=18)  # of an hour that is drawn


@pytest.fixture
def worked(clock: time_machine.Traveller, lead: PoolAgent, noon: datetime) -> list[Turn]:
    """Lead took a turn from 12:02 to 12:10 and asked a person in it from 12:04 to 12:06; one of 12:20 was interrupted
    at 12:25, one of 12:30 still runs; another waits."""

    def at(minute: int) -> None:
        clock.move_to(noon + minute * MINUTE)

    for content in ("Fix the login", "Rename it", "Test it", "Wait for it"):
        send("lead", content)
    at(2)
    first = take()
    at(4)
    asked = questions.ask(agent_id="lead", kind="permission", title="To run make", turn=first)
    at(6)
    questions.answer_question(question_id=asked.pk, verdict=AnswerKind.ALLOW, operator="olga")
    at(10)
    say(first, Role.ASSISTANT, "The cookie was too old.")
    settle(first, answer="The cookie was too old.", input_tokens=70, output_tokens=20)
    at(20)
    second = take()
    at(25)
    settle(second, TurnStatus.INTERRUPTED, why="the server ended")
    at(30)
    third = take()
    at(40)
    return [first, second, third]


def test_it_draws_turns_and_waits_for_people_on_the_lanes_of_their_agents(
    worked: list[Turn], browser: Browser, noon: datetime
) -> None:
    page = text_of(browser, "/admin/timeline/")
    assert f"Fix the login: a turn by lead, from {told(noon, 2)} to {told(noon, 10)}" in page
    assert f"To run make: waits for a person by lead, from {told(noon, 4)} to {told(noon, 6)}" in page
    assert f"Rename it: a turn that was interrupted by lead, from {told(noon, 20)} to {told(noon, 25)}" in page
    assert f"Test it: a turn by lead, from {told(noon, 30)} still" in page
    assert "Wait for it" not in page
    assert 'class="asking"' in page and 'class="interrupted"' in page
    assert '<td data-label="Was">a turn that was interrupted</td>' in page


def test_it_tells_what_a_chosen_turn_was(worked: list[Turn], browser: Browser) -> None:
    first, second, third = worked
    shown_ = text_of(browser, f"/admin/timeline/?span={first.pk}")
    assert "for 8 min" in shown_ and "The cookie was too old." in shown_ and "70 + 20 tokens" in shown_
    assert f"/admin/pool/+turn/{first.pk}/" in shown_
    assert "the server ended" in text_of(browser, f"/admin/timeline/?span={second.pk}")
    assert "for 10 min" in text_of(browser, f"/admin/timeline/?span={third.pk}")
    page = browser.get("/admin/timeline/").content.decode()
    asking = re.findall(r'<a class="asking"[^>]*href="\?([^"]*)"', page)
    assert "for 2 min" in text_of(browser, f"/admin/timeline/?{asking[0].replace('&amp;', '&')}")
    for gone in ("turn_x", "x", Turn.objects.get(status=TurnStatus.QUEUED).pk):
        assert "does not have it any more" in text_of(browser, f"/admin/timeline/?span={gone}")


def test_a_turn_leads_to_its_place_in_the_transcript(worked: list[Turn], browser: Browser) -> None:
    first, _, third = worked
    address = f"/admin/pool/{first.agent_id}/"
    assert browser.get(f"/admin/pool/+turn/{first.pk}/")["Location"] == f"{address}#e-0"
    fill(PoolAgent.objects.get(), 300)
    to = browser.get(f"/admin/pool/+turn/{first.pk}/")["Location"]
    assert to.endswith("#e-0") and '<li id="e-0"' in shown(browser.get(to.partition("#")[0]))
    to = browser.get(f"/admin/pool/+turn/{third.pk}/")["Location"]
    assert to.endswith("#e-3") and '<li id="e-3"' in shown(browser.get(to.partition("#")[0]))
    Entry.objects.all().delete()
    assert browser.get(f"/admin/pool/+turn/{first.pk}/")["Location"] == address
    assert browser.get("/admin/pool/+turn/turn_x/").status_code == 404


def test_it_narrows_to_a_window_an_agent_and_to_no_workspace(
    worked: list[Turn], browser: Browser, noon: datetime, tmp_path: Any
) -> None:
    since, until = noon + 5 * MINUTE, noon + 7 * MINUTE
    page = text_of(browser, f"/admin/timeline/?since={since:%Y-%m-%dT%H:%M:%SZ}&until={until:%Y-%m-%dT%H:%M:%SZ}")
    assert "Fix the login: a turn" in page and "To run make" in page and "Rename it" not in page
    assert "Fix the login" not in text_of(browser, "/admin/timeline/?agent=ana")
    assert "Fix the login: a turn" in text_of(browser, "/admin/timeline/?agent=lead")
    do("agent_register", agent_id="ana")
    place = {"project_root": str(tmp_path)}
    do("message_create", **place, from_agent_id="ana", subject="x", body="x", target={"strategy": "broadcast"})
    from coordination.models import Workspace

    workspace = Workspace.objects.get()
    assert "Fix the login" not in text_of(browser, f"/admin/timeline/?workspace={workspace.pk}")


def test_a_question_whose_time_ran_out_ends_then_whether_that_is_recorded_or_not(
    clock: time_machine.Traveller, lead: PoolAgent, noon: datetime
) -> None:
    asked = questions.ask(agent_id="lead", kind="question", title="Which?")
    Question.objects.update(expires_at=noon + 5 * MINUTE)
    clock.move_to(noon + 30 * MINUTE)
    for recorded in (False, True):
        if recorded:
            questions.expire(asked.pk)
        (stretch,) = course(noon, now(), cell=CELL).stretches
        assert (stretch.doing, stretch.start, stretch.end) == (At.ASKING, noon, noon + 5 * MINUTE)
    assert course(noon + 6 * MINUTE, now(), cell=CELL).stretches == []


def many(agents: list[PoolAgent], each: int, noon: datetime) -> None:
    """So many turns of each agent within the hour, one after another, some of them long, and one that goes on."""
    turns = []
    for agent in agents:
        for number in range(each):
            start = noon + HOUR * number / each
            end = None if number == each - 1 else start + HOUR / each * (0.9 if number % 10 == 0 else 0.001)
            turns.append(
                Turn(turn_id=f"turn_{agent.pk}_{number}", agent=agent, request_id=str(number), content="x",
                     source="rpc", queued_at=start, started_at=start, ended_at=end,
                     status=TurnStatus.RUNNING if end is None else TurnStatus.FAILED if number % 2 else TurnStatus.DONE)
            )  # fmt: skip
    Turn.objects.bulk_create(turns)


@pytest.mark.parametrize("told_", [3, 40, 10_000])
def test_of_more_than_a_picture_takes_it_tells_the_longest_and_counts_the_others(
    clock: time_machine.Traveller, lead: PoolAgent, noon: datetime, monkeypatch: pytest.MonkeyPatch, told_: int
) -> None:
    monkeypatch.setattr(timeline, "EACH", told_)
    many([lead], 100, noon)
    clock.move_to(noon + HOUR)
    found = course(noon, now(), cell=CELL)
    assert len(found.stretches) + sum(each.many for each in found.counted) == 100
    assert len([each for each in found.stretches if each.end]) <= told_
    kinds = Counter(each.doing for each in found.stretches)
    for each in found.counted:
        kinds[each.doing] += each.many
    assert kinds == {At.TURN: 51, At.FAILED: 49}
    begins = [(noon + HOUR * number / 100).timestamp() for number in range(100)]
    near = (-0.001, 0.001)  # a database knows times to the millisecond
    cells = {int((begin + off) // CELL.total_seconds()) for begin in begins for off in near}
    assert {each.cell for each in found.counted} <= cells
    assert course(noon, now(), cell=CELL, agent_id="nobody") == timeline.Course([], [])


def test_ten_thousand_turns_of_sixty_agents_are_one_readable_picture(
    clock: time_machine.Traveller, lead: PoolAgent, browser: Browser, noon: datetime
) -> None:
    agents = [
        PoolAgent(pool_agent_id=f"pool_{n:03d}", agent_id=f"agent{n:03d}", depth=1, preset="worker", cwd=lead.cwd,
                  runner="rehearsal", is_temporary=False, created_by="olga", created_at=noon, last_action_at=noon)
        for n in range(60)
    ]  # fmt: skip
    PoolAgent.objects.bulk_create(agents)
    many(agents, 167, noon)
    clock.move_to(noon + HOUR)
    page = browser.get("/admin/timeline/").content.decode()
    assert page.count("data-row") == 61
    assert page.count("<rect") < 1_700 and "more than one picture can show" in page
    counted = sum(int(many) for many in re.findall(r"<title>(\d+) spans? here", page))
    assert counted + len(re.findall(r'<a class="(?:turn|failed)" id="span-', page)) == 60 * 167


@pytest.mark.usefixtures("counted_alone")
@pytest.mark.sqlite  # whose plans say so; the indexes are the same
def test_it_reads_no_turn_of_before_the_window(lead: PoolAgent) -> None:
    looks = [look for look in plans(lambda: course(now() - HOUR, now(), cell=CELL)) if "pool_turns" in look]
    for look, index in zip(looks, ("pool_turns_open", "pool_turns_when (ended_at>"), strict=True):
        assert index in look


def test_the_page_of_a_handoff_leads_to_the_runs_that_it_woke(
    clock: time_machine.Traveller, lead: PoolAgent, browser: Browser, noon: datetime
) -> None:
    pool("pool_create_agent", agent_id="smith", preset="trusted", cwd=lead.cwd, wake_on=["handoff"])
    do("agent_register", agent_id="ana")
    offer = {"project_root": lead.cwd, "from_agent_id": "ana", "visibility": "public"}
    here, other = (
        do("handoff_create", **offer, title=title, target={"strategy": "direct", "agent_id": agent_id})["handoff_id"]
        for title, agent_id in (("Fix the login", "smith"), ("Write the docs", "ana"))
    )

    def runs(handoff_id: str) -> list[str]:
        page = text_of(browser, f"/admin/handoffs/handoff/{handoff_id}/change/")
        (address,) = re.findall(r'"(/admin/control/turn/\?wakes[^"]*)"', page)
        return re.findall("turn/(turn_[^/]*)/change/", text_of(browser, unescape(address)))

    assert runs(here) == []
    assert waking.wake(PoolAgent.objects.get(agent_id="smith").pk, {"handoff"})
    assert runs(here) == [take().pk] and runs(other) == []
