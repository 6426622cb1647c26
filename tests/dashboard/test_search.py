"""The search: everything, a few of each kind, what was found marked; and any text is a query."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import Max
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

import nexus.dashboard.views.search
from coordination.ids import new_id
from coordination.models import Agent, Artifact, Workspace
from handoffs.models import Handoff
from nexus.control.models import Entry, PoolAgent, Question, Turn
from nexus.control.toolset import CONTROL
from nexus.core.clock import now
from nexus.core.operations.caller import Caller
from nexus.core.operations.dispatch import run
from nexus.planning.models import Cycle, Task
from nexus.reservations.models import Reservation
from nexus.topics.models import Topic
from nexus.web.templatetags.nexus import highlight
from tests.pages import Ids, do, queries
from tests.store import steps


def page(browser: Client, query: str) -> str:
    answer = browser.get("/admin/find/", {"q": query})
    assert answer.status_code == 200
    return answer.content.decode()


def groups(text: str) -> list[str]:
    """The kinds of which something was found."""
    return re.findall(r'<section class="nx-card nx-flush" aria-label="([^"]*)"', text)


def test_it_finds_every_kind(team: Ids, browser: Client) -> None:
    assert groups(page(browser, "planner")) == ["Agents", "Handoffs", "Messages", "Events"]
    assert {"Workspaces", "Tasks", "Messages"} <= set(groups(page(browser, "parser")))
    assert groups(page(browser, "cache-key"))[0] == "Topics"
    assert "Said in topics" in groups(page(browser, "digest"))
    assert "Closed cycles" in groups(page(browser, "First steps"))
    assert "Files" in groups(page(browser, "docs/"))
    assert "Issues" in groups(page(browser, "fewer rules"))
    assert "Issues" in groups(page(browser, "which gramm"))
    assert "one pass" in page(browser, "fewer rules")  # beside them in the decision
    assert "Artifacts" in groups(page(browser, "decisions.md"))


def test_it_finds_what_agents_ask_people(team: Ids, browser: Client) -> None:
    asked = {"kind": "permission", "title": "Run make?", "detail": "It builds the <b>colophon</b>."}
    arguments = {"agent_id": "planner", "timeout_seconds": 0, **asked}
    question_id = run(CONTROL, Caller("test"), "ask_operator", arguments)["data"]["question_id"]
    text = page(browser, "colophon")
    assert groups(text)[0] == "Questions" and f"/admin/questions/{question_id}/" in text
    assert "question of planner, asked" in text and "<b>colophon" not in text


def test_it_finds_runs_by_what_their_transcripts_say(team: Ids, browser: Client) -> None:
    turn = Turn.objects.get(pk=team["run"])
    Entry.objects.create(agent=turn.agent, turn=turn, position=90, role="tool", content="<b>rhubarb</b>", tokens=1,
                         created_at=now())  # fmt: skip
    for words in ("Look around", "rhubarb"):
        text = page(browser, words)
        assert (
            groups(text) == ["Runs"] and f"/admin/control/turn/{turn.pk}/change/" in text and "<b>rhubarb" not in text
        )


def test_it_finds_handoffs_by_their_titles(team: Ids, browser: Client) -> None:
    text = page(browser, "write gram")
    assert groups(text)[0] == "Handoffs"
    assert f'href="/admin/handoffs/handoff/{team["claimed"]}/change/"' in text
    assert "<mark>write</mark> <mark>gram</mark>mar.py" in text


def test_it_finds_handoffs_by_what_they_hold_and_what_came_of_them(team: Ids, browser: Client) -> None:
    text = page(browser, "reader files")
    assert f'href="/admin/handoffs/handoff/{team["open"]}/change/"' in text
    assert "task: write <mark>reader</mark>.py, <mark>files</mark>: <mark>reader</mark>.py" in text
    assert "<mark>12</mark> <mark>files</mark>" in page(browser, "12 files")


def test_it_tells_events_as_sentences(team: Ids, browser: Client) -> None:
    text = page(browser, "decisions")
    assert "the hub stored <mark>decisions</mark>.md" in text
    assert "&quot;" not in text[text.index('aria-label="Events"') :].split("</section>")[0]


def test_it_leads_to_more_of_a_kind(team: Ids, browser: Client) -> None:
    for number in range(8):
        do("message_create", project_root=team["root"], from_agent_id="planner", subject=f"Zebra {number}", body="x")
    text = page(browser, "zebra")
    assert text.count("<mark>Zebra</mark>") == 6
    more = re.search(r'href="([^"]*)" aria-label="More in Messages"', text)
    assert more
    assert browser.get(html.unescape(more[1])).content.decode().count("field-title") == 8


def test_it_says_what_it_looks_in_and_that_nothing_was_found(db: None, browser: Client) -> None:
    assert "artifacts" in page(browser, "")
    assert "Nothing contains all of these words." in page(browser, "nothing-has-this")


def test_it_shows_hostile_finds_as_text(team: Ids, browser: Client) -> None:
    do(
        "message_create",
        project_root=team["root"],
        from_agent_id="planner",
        subject="<mark>evil</mark>\u202e",
        body="x",
    )
    text = page(browser, "evil")
    assert "&lt;mark&gt;<mark>evil</mark>&lt;/mark&gt;⟨U+202E⟩" in text


SEARCHES = [
    *(
        "/admin/find/?q=",
        "/admin/search/?s=",
        "/admin/inbox/message/?q=",
        "/admin/coordination/event/?q=",
        "/admin/coordination/agent/?q=",
    ),
    *(
        "/admin/topics/topic/?q=",
        "/admin/planning/cycle/?q=",
        "/admin/handoffs/handoff/?q=",
        "/admin/inbox/message/?q=",
    ),
    *("/admin/coordination/artifact/?q=", "/admin/coordination/workspace/?q=", "/admin/planning/task/?q="),
]


HOSTILE = ['"', "%25 _ * ' OR 1=1 --", "AND NOT (", "%00", "a" * 70_000 + " é ü" * 500]


def test_it_takes_any_text_for_a_query(team: Ids, browser: Client) -> None:
    for path in SEARCHES:
        assert [browser.get(path + query).status_code for query in HOSTILE] == [200] * len(HOSTILE)


def test_it_asks_a_bounded_number_of_queries(team: Ids, browser: Client) -> None:
    assert queries(lambda: page(browser, "planner")) <= 45


def test_it_reads_the_newest_of_a_kind_alone(team: Ids, browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("SQLite counts its steps")
    monkeypatch.setattr(nexus.dashboard.views.search, "READ", 40)
    project = Workspace.objects.get(root_realpath=team["root"])
    grow(project, 100)
    few = steps(lambda: browser.get("/admin/search/", {"s": "ordinary"}))
    grow(project, 1_000)
    assert steps(lambda: browser.get("/admin/search/", {"s": "ordinary"})) < 1.5 * few
    assert groups(page(browser, "planner"))[0] == "Agents", "whose id it is, however old"
    assert "the newest 40 are searched" in " ".join(page(browser, "").split())


def grow(project: Workspace, number: int) -> None:
    """So many more of each kind that are found by comparing their text."""
    at, rows = now(), range(number)
    stamps = {"created_at": at, "updated_at": at}
    last = Handoff.objects.aggregate(last=Max("created_event_id"))["last"] + 1
    rest: dict[str, Any] = {"target": "{}", "from_agent_id": "x", "visibility": "public", "status": "CANCELLED"}
    cycle: dict[str, Any] = {"completed_at": "", "branch": "", "task_count": 0, "document": "{}", "words": "common"}
    file: dict[str, Any] = {
        "artifact_type": "text",
        "content": "",
        "size_bytes": 0,
        "content_type": "text/plain",
        "created_at": at,
    }
    asked: dict[str, Any] = {"kind": "question", "title": "Common?", "status": "answered", "ended_at": at}
    pool: dict[str, Any] = {
        "depth": 0,
        "preset": "trusted",
        "is_temporary": False,
        "agent_id": "x",
        "runner": "y",
        "cwd": "/",
        "created_by": "ops",
        "ended_at": at,
    }
    Agent.objects.bulk_create(Agent(agent_id=new_id("agent"), created_at=now(), updated_at=at) for _ in rows)
    Workspace.objects.bulk_create(
        Workspace(workspace_id=new_id("w"), root_realpath=new_id("/"), created_at=now(), last_seen_at=at) for _ in rows
    )
    held: dict[str, Any] = {"agent_id": "x", "exclusive": True, "item": 0, "seconds": 600, "created_at": at}
    Reservation.objects.bulk_create(
        Reservation(
            reservation_id=new_id("rsv"),
            workspace=project,
            pattern="common",
            expires_at=at + timedelta(hours=1),
            **held,
        )
        for _ in rows
    )
    Handoff.objects.bulk_create(
        Handoff(handoff_id=new_id("hnd"), workspace=project, title="Common", created_event_id=each, **rest, **stamps)
        for each in range(last, last + number)
    )
    Topic.objects.bulk_create(Topic(topic_id=new_id("top"), name=new_id("common"), created_at=now()) for _ in rows)
    Task.objects.bulk_create(
        Task(task_key=new_id("tsk"), workspace=project, number=1, position=1, closed_at=at, **stamps) for _ in rows
    )
    Cycle.objects.bulk_create(Cycle(workspace=project, position=each, digest=new_id("d"), **cycle) for each in rows)
    Artifact.objects.bulk_create(Artifact(artifact_id=new_id("art"), workspace=project, **file) for _ in rows)
    lead = PoolAgent.objects.get(agent_id="lead")
    ran: dict[str, Any] = {"source": "rpc", "status": "done", "queued_at": at, "started_at": at, "ended_at": at}
    runs = [Turn(turn_id=new_id("turn"), agent=lead, request_id=new_id("r"), content="Common", **ran) for _ in rows]
    first = lead.entries.count()
    said: dict[str, Any] = {"role": "user", "content": "Common", "tokens": 1, "created_at": at}
    Turn.objects.bulk_create(runs)
    Entry.objects.bulk_create(Entry(agent=lead, turn=run, position=first + n, **said) for n, run in enumerate(runs))
    Question.objects.bulk_create(
        Question(question_id=new_id("qst"), agent_id="x", asked_at=at, expires_at=at, **asked) for _ in rows
    )
    PoolAgent.objects.bulk_create(
        PoolAgent(pool_agent_id=new_id("pool"), created_at=at, last_action_at=at, **pool) for _ in rows
    )


@given(text=st.text(), words=st.text())
def test_it_marks_words_and_changes_nothing_else(text: str, words: str) -> None:
    marked = highlight(text, words)
    assert html.unescape(re.sub(r"</?mark>", "", marked)) == html.unescape(html.escape(text))
