"""The list of events: sentences, types to choose from, and pages."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordination.log.sentences import lines
from coordination.models import Event
from coordination.toolset import run
from nexus.core.apps import event_types
from nexus.core.operations.caller import Caller
from tests.browser import scene
from tests.conftest import examples, streamed
from tests.pages import Ids, do, queries, shown

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def page(browser: Client, query: str = "") -> str:
    """The page of events, as text with its tags."""
    answer = browser.get(f"/admin/coordination/event/{query}")
    assert answer.status_code == 200
    return answer.content.decode()


def told(text: str) -> list[str]:
    """The sentences of a list, or of an agent's page, newest first, without tags."""
    cells = r'<span class="nx-told[^"]*">(.*?)</span>\s*<a\s+class="nx-small|<td[^>]*field-sentence[^>]*>(.*?)</td>'
    found = (row or cell for row, cell in re.findall(cells, text, re.DOTALL))
    return [html.unescape(" ".join(re.sub(r"<[^>]*>", "", each).split())) for each in found]


def listed(text: str) -> list[int]:
    """The ids of a list, in its order."""
    return [int(number) for number in re.findall(r"field-number.*?event/(\d+)/change/", text, re.DOTALL)]


def log(type: str, **columns: Any) -> Event:
    return Event.objects.create(**{"stream": "workspace", "type": type, "created_at": MOMENT, **columns})


def test_it_tells_who_did_what_with_links(team: Ids, browser: Client) -> None:
    text = page(browser, "?type=artifact.created")
    assert told(text) == ["the hub stored coverage.json", "the hub stored decisions.md"]
    assert f"/admin/coordination/artifact/{team['artifact']}/change/" in text
    text = page(browser, "?type=message.*")
    assert "planner wrote Keep the minutes to archivist" in told(text)
    assert "reviewer wrote Is there a translator?" in told(text)
    assert 'href="/admin/agents/planner/"' in text


def test_it_tells_of_handoffs_by_their_titles(team: Ids, browser: Client) -> None:
    text = page(browser, "?type=handoff.*")
    assert "planner handed write reader.py to whoever has python" in told(text)
    assert "builder-2 finished list the files" in told(text)
    assert f'href="/admin/handoffs/handoff/{team["open"]}/change/"' in text


def test_it_reads_a_type_that_no_app_declares_in_words(team: Ids, browser: Client) -> None:
    log("toy.was_lent", actor_agent_id="planner")
    assert told(page(browser, "?type=toy.was_lent")) == ["planner: toy was lent"]


def test_it_reads_an_event_without_what_its_sentence_tells(team: Ids, browser: Client) -> None:
    log("setting.changed", payload={"operator": "olga"})
    assert told(page(browser, "?type=setting.changed"))[0] == "operator olga: setting changed"


def test_it_has_a_sentence_for_all_that_a_team_does(team: Ids) -> None:
    scene.trouble(do, Path(team["root"]))
    unsaid = [line.event.type for line in lines(list(Event.objects.all())) if line.parts[-1].text.startswith(": ")]
    assert unsaid == []


def test_it_tells_what_an_agent_did_last_in_sentences(team: Ids, browser: Client) -> None:
    text = shown(browser.get("/admin/agents/planner/"))
    assert "planner handed port it to whoever has rust" in re.sub("<[^>]+>", "", text)
    assert "handoff.created" not in text


def test_it_hides_heartbeats_unless_they_are_asked_for(team: Ids, browser: Client) -> None:
    log("session.heartbeat", actor_agent_id="planner", payload={"session_id": "ses_1", "agent_id": "planner"})
    beats = ["planner is alive in a session"]
    assert beats[0] not in told(page(browser))
    assert beats[0] not in told(page(browser, "?type=session.*"))
    assert beats[0] in told(page(browser, "?alive=on"))
    assert told(page(browser, "?type=session.heartbeat")) == beats


def test_it_tells_once_what_an_operator_does_as_an_agent(team: Ids, browser: Client) -> None:
    log("setting.changed", payload={"operator": "ada", "name": "mail", "value": 1})
    offer = {"project_root": team["root"], "from_agent_id": "planner", "visibility": "public", "payload": "sweep"}
    target = {"strategy": "direct", "agent_id": "archivist"}
    act = run(Caller("test", operator="olga"), "handoff_create", {**offer, "target": target})
    notice, created, before = told(page(browser))[:3]
    assert act["ok"] and notice.endswith(", by operator olga")
    assert created == "planner handed sweep to archivist, by operator olga"
    assert before == "operator ada set mail to 1"  # it was there before, and is no part of it
    assert "olga used" not in browser.get("/admin/").content.decode()
    assert told(page(browser, "?type=operator.acted"))[0] == "operator olga used handoff_create as planner"


def test_it_tells_everywhere_which_operator_acted_as_an_agent(team: Ids, browser: Client) -> None:
    offer = {"project_root": team["root"], "from_agent_id": "planner", "visibility": "public", "payload": "sweep"}
    target = {"strategy": "direct", "agent_id": "archivist"}
    act = run(Caller("test", operator="olga"), "handoff_create", {**offer, "target": target})
    do("handoff_create", **{**offer, "payload": "dust"}, target=target)  # her own doing, after the operator's
    for place in (
        "coordination/event/?type=handoff.created",
        "agents/planner/",
        f"handoffs/handoff/{act['data']['handoff_id']}/change/",
    ):
        words = " ".join(re.sub(r"<[^>]*>", "", browser.get(f"/admin/{place}").content.decode()).split())
        assert "planner handed sweep to archivist, by operator olga" in words, place
        assert "handed dust to archivist, by" not in words, place


@pytest.mark.usefixtures("counted_alone")
@pytest.mark.sqlite  # whose plans say so; the indexes are the same
def test_it_looks_for_operators_acts_among_themselves(team: Ids, browser: Client) -> None:
    with CaptureQueriesContext(connection) as asked:
        page(browser)
    [look] = [each["sql"] for each in asked.captured_queries if each["sql"].count("operator.acted") > 1]
    with connection.cursor() as cursor:
        plan = [row[3] for row in cursor.execute(f"EXPLAIN QUERY PLAN {look}").fetchall()]
    assert any("INDEX events_of_acts (event_id>?)" in step for step in plan), plan


def test_it_tells_an_operators_act_that_nothing_else_tells(team: Ids, browser: Client) -> None:
    log("artifact.created", actor_agent_id="planner", payload={"artifact_id": "art_1", "name": "a.md"})
    log("operator.acted", payload={"operator": "olga", "operation": "inbox_extend", "events": 0})
    assert told(page(browser))[:2] == ["operator olga used inbox_extend", "planner stored a.md"]


def test_it_exports_the_heartbeats_that_it_shows(team: Ids, browser: Client) -> None:
    log("session.heartbeat", actor_agent_id="planner")
    shown, hidden = (
        streamed(browser.get(f"/admin/coordination/event/?export=ndjson{query}")) for query in ("&alive=on", "")
    )
    assert "session.heartbeat" in shown
    assert "session.heartbeat" not in hidden


def test_it_offers_types_and_their_prefixes(team: Ids, browser: Client) -> None:
    text = page(browser, "?type=toy.unknown")
    for type in ("handoff.*", "handoff.created", "handoff.cancelled", "toy.unknown"):
        assert re.search(rf'<option value="{re.escape(type)}"', text), type


def test_it_shows_the_types_of_a_prefix(team: Ids, browser: Client) -> None:
    ids = listed(page(browser, "?type=handoff.*"))
    assert set(ids) == set(Event.objects.filter(type__startswith="handoff.").values_list("pk", flat=True))


def test_it_shows_what_happened_to_one_agent_or_handoff(team: Ids, browser: Client) -> None:
    for parameter, column, value in (
        ("agent", "actor_agent_id", "planner"),
        ("handoff", "handoff_id", team["claimed"]),
    ):
        ids = set(Event.objects.filter(**{column: value}).values_list("pk", flat=True))
        assert ids and set(listed(page(browser, f"?{parameter}={value}&alive=on"))) == ids


def test_it_finds_events_by_words_and_by_their_ids(team: Ids, browser: Client) -> None:
    assert told(page(browser, "?q=decisions&type=artifact.created")) == ["the hub stored decisions.md"]
    first = Event.objects.earliest("pk").pk
    assert listed(page(browser, f"?q={first}")) == [first]


def older(text: str) -> str:
    """The address of the page of older rows; empty on the last one."""
    found = re.search(r'href="(\?[^"]*)">Older', text)
    return html.unescape(found[1]) if found else ""


def test_it_pages_through_the_log_without_a_gap_or_a_repeat(team: Ids, browser: Client) -> None:
    for number in range(60):
        log(f"toy.number_{number % 7}")
    seen: list[int] = []
    query = "?alive=on"
    while query:
        text = page(browser, query)
        seen += listed(text)
        query = older(text)
        assert "OFFSET" not in query and (">Newest</a>" in text) == (len(seen) > 50)
    assert seen == list(Event.objects.order_by("-event_id").values_list("event_id", flat=True))


def test_a_list_of_a_rare_agent_looks_through_so_many_events_and_leads_on(
    team: Ids, browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordination.admin.LOOKED_AT", 10)
    first = log("toy.rare", actor_agent_id="hermit").event_id
    for _ in range(25):
        log("toy.common")
    query, pages = "?agent=hermit", 0
    while first not in listed(text := page(browser, query)):
        query, pages = older(text), pages + 1
        assert query, f"page {pages} leads nowhere"
    assert pages == 2, "25 others, ten ids a page"


def test_it_asks_a_handful_of_queries_for_all_kinds(team: Ids, browser: Client) -> None:
    assert queries(lambda: page(browser)) <= 14  # six of them for the sidebar


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = [
    "agent_id",
    "name",
    "topic",
    "reason",
    "operator",
    "changed",
    "message_id",
    "handoff_id",
    "session_id",
    "title",
]


@pytest.mark.django_db
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60), deadline=None)
@given(type=st.sampled_from(sorted(event_types())) | st.text(min_size=1, max_size=20),
       actor=st.none() | st.text(min_size=1, max_size=20),
       payload=JSON | st.dictionaries(st.sampled_from(NAMES), JSON, max_size=6))  # fmt: skip
def test_it_makes_a_sentence_of_any_event(type: str, actor: str | None, payload: Any) -> None:
    event = Event(event_id=1, stream="workspace", type=type, actor_agent_id=actor, payload=payload, created_at=MOMENT)
    (line,) = lines([event])
    assert "".join(part.text for part in line.parts)
