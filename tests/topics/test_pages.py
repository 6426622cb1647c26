"""The pages of topics."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext

from coordination.models import Event
from nexus.topics.models import Peer, Topic, TopicMessage
from tests.pages import LOCAL, queries, shown
from tests.topics.conftest import Client

pytestmark = pytest.mark.sqlite  # pages are the same on both; what they read is tested beside them

HOSTILE = "<script>alert(1)</script> [x](javascript:alert(2)) \u202etxt {{ 7*7 }}"


@pytest.fixture
def topic(ann: Client, bob: Client) -> str:
    """A topic in which ann asked, bob answered, and bob has read everything."""
    topic_id: str = ann.call("topic_create", name="cache-key", metadata={"ticket": 7})["topic_id"]
    ann.join(topic_id, "ann")
    bob.join(topic_id, "bob")
    (asked,) = ann.say(topic_id, "Which **key**?", message_type="question")
    bob.look(topic_id)
    bob.say(topic_id, "The digest.", message_type="answer", reply_to=asked["message_id"])
    return topic_id


@pytest.fixture
def long(topic: str) -> Iterator[Callable[[int], str]]:
    """Makes the topic so long."""

    def grow(to: int) -> str:
        moment = datetime.now(UTC)
        TopicMessage.objects.bulk_create(
            TopicMessage(message_id=f"tms_{seq:08d}", topic_id=topic, seq=seq, sender="ann", message_type="message",
                         content_markdown=f"word{seq} text", created_at=moment)
            for seq in range(3, to + 1)
        )  # fmt: skip
        Topic.objects.filter(pk=topic).update(last_seq=to, last_message_at=moment)
        return topic

    yield grow


def message_of(seq: int) -> str:
    return TopicMessage.objects.get(seq=seq).message_id


def numbers(page: str) -> list[int]:
    """The numbers of the messages that a page shows, in order."""
    return [int(number) for number in re.findall(r'<li id="m-(\d+)"', page)]


def say(browser: Browser, topic: str, text: str, **more: Any) -> Any:
    form = {"content_markdown": text, "message_type": "message", "client_message_id": "one", **more}
    return browser.post(f"/admin/topics/{topic}/", form)


# The list

LIST = "/admin/topics/topic/"


def test_it_lists_topics_by_latest_activity_with_who_has_not_read_what(
    topic: str, ann: Client, browser: Browser
) -> None:
    quiet = ann.call("topic_create", name="quiet")["topic_id"]
    ann.say(topic, "And the salt?")
    page = shown(browser.get(LIST))
    assert page.index("cache-key") < page.index(">quiet<")
    assert re.search(r"bob</bdi> 1 unread", page)
    assert re.search(r"ann</bdi> 1 unread", page)  # bob's answer
    assert f"/admin/topics/{quiet}/" in page and "nobody yet" in page


def test_it_counts_no_message_of_its_own_as_unread(ann: Client, browser: Browser) -> None:
    topic = ann.call("topic_create", name="monologue")["topic_id"]
    ann.join(topic, "ann")
    ann.say(topic, "one", "two", "three")
    assert not re.search(r"\d unread", shown(browser.get(LIST)))
    assert "up to date" in shown(browser.get(f"/admin/topics/{topic}/"))


def test_it_filters_topics_by_state_and_name_and_finds_what_was_said(topic: str, ann: Client, browser: Browser) -> None:
    ann.call("topic_close", topic_id=ann.call("topic_create", name="release-1")["topic_id"])
    assert "release-1" not in shown(browser.get(f"{LIST}?status=open"))
    assert "cache-key" not in shown(browser.get(f"{LIST}?status=closed"))
    page = shown(browser.get(f"{LIST}?q=cache"))
    assert "cache-key" in page and "release-1" not in page
    page = shown(browser.get(f"{LIST}?q=dige"))
    assert f"/admin/topics/{topic}/" in page and "release-1" not in page


def test_it_shows_topics_a_page_at_a_time(db: None, browser: Browser) -> None:
    moment = datetime.now(UTC)
    Topic.objects.bulk_create(Topic(topic_id=f"t{n:03d}", name=f"name{n:03d}", created_at=moment) for n in range(120))
    seen = []
    for number in (1, 2, 3):
        page = shown(browser.get(f"{LIST}?p={number}"))
        seen += re.findall(r">name(\d{3})<", page)
    assert seen == [f"{n:03d}" for n in reversed(range(120))]


def test_it_says_who_opens_topics_where_there_are_none(db: None, browser: Browser) -> None:
    assert "No topics yet" in shown(browser.get(LIST))
    assert "Nothing fits" in shown(browser.get(f"{LIST}?q=x"))


def test_it_asks_no_more_queries_of_more_topics(topic: str, ann: Client, browser: Browser) -> None:
    few = queries(lambda: browser.get(LIST))
    for number in range(5):
        more = ann.call("topic_create", name=f"t{number}")["topic_id"]
        ann.join(more, "ann")
        ann.say(more, "x")
    assert queries(lambda: browser.get(LIST)) == few


# A topic


def test_it_shows_a_topic_with_its_replies_linked_both_ways(topic: str, browser: Browser) -> None:
    page = shown(browser.get(f"/admin/topics/{topic}/"))
    assert numbers(page) == [1, 2] and "<strong>key</strong>" in page
    assert re.search(r'↳ to <a href="#m-1"\s*>#1', page) and re.search(r'Answered by <a href="#m-2"\s*>#2', page)
    assert '"ticket": 7' in page and topic in page
    assert re.search(r"ann</bdi>.*?1 behind.*?", page) and "up to date" in page
    assert re.search(r'has read\s+to <a\s+href="[^"]*\?at=2#m-2"', page)


def test_it_shows_which_agent_holds_a_name(browser: Browser, ann: Client) -> None:
    topic = ann.call("topic_create", name="t")["topic_id"]
    Client(agent_id="planner").join(topic, "red-squirrel")
    page = shown(browser.get(f"/admin/topics/{topic}/"))
    assert "red-squirrel" in page and "/admin/agents/planner/" in page and "has read nothing" in page


def test_it_shows_a_long_topic_a_page_at_a_time(long: Callable[[int], str], browser: Browser) -> None:
    topic = long(240)
    page = shown(browser.get(f"/admin/topics/{topic}/"))
    assert numbers(page) == list(range(221, 241))
    seen = numbers(page)
    while before := re.search(r"\?before=(\d+)", page):
        page = shown(browser.get(f"/admin/topics/{topic}/?before={before[1]}"))
        seen = numbers(page) + seen
    assert seen == list(range(1, 241))
    while onward := re.search(r'\?at=(\d+)"\s*>Later messages', page):
        page = shown(browser.get(f"/admin/topics/{topic}/?at={onward[1]}"))
    assert numbers(page)[-1] == 240


def test_it_shows_the_message_that_an_address_names_in_its_place(long: Callable[[int], str], browser: Browser) -> None:
    topic = long(240)
    answer = browser.get(f"/admin/topics/+message/{message_of(100)}/")
    assert answer.headers["Location"] == f"/admin/topics/{topic}/?at=100#m-100"
    page = shown(browser.get(f"/admin/topics/{topic}/?at=100"))
    assert numbers(page) == list(range(95, 145)) and "data-tail=" not in page
    assert numbers(shown(browser.get(f"/admin/topics/{topic}/?at=239"))) == list(range(191, 241))


def test_it_finds_within_a_topic_alone(topic: str, ann: Client, browser: Browser) -> None:
    other = ann.call("topic_create", name="other")["topic_id"]
    ann.join(other, "ann")
    ann.say(other, "digest in the other room")
    page = shown(browser.get(f"/admin/topics/{topic}/?q=digest"))
    assert "<mark>digest</mark>" in page and "the other room" not in page and f"{topic}/?at=2#m-2" in page
    assert "Nothing contains all of these words" in shown(browser.get(f"/admin/topics/{topic}/?q=nowhere"))


def test_it_shows_the_beginning_of_a_large_message_until_the_whole_is_asked_for(
    topic: str, ann: Client, browser: Browser
) -> None:
    ann.say(topic, "wort " * 2_000 + "THE-END")
    page = shown(browser.get(f"/admin/topics/{topic}/"))
    assert "THE-END" not in page and "Show all 10007 characters" in page
    assert "THE-END" in shown(browser.get(f"/admin/topics/{topic}/?at=3&whole=3"))


def test_it_gives_the_live_page_what_is_newer_and_no_more_than_a_page(
    long: Callable[[int], str], browser: Browser
) -> None:
    topic = long(120)
    page = shown(browser.get(f"/admin/topics/{topic}/tail/?after=20"))
    assert numbers(page) == list(range(21, 71)) and 'data-upto="70" data-more="1"' in page
    page = shown(browser.get(f"/admin/topics/{topic}/tail/?after=119"))
    assert numbers(page) == [120] and "data-more" not in page
    assert 'data-upto="120"' in shown(browser.get(f"/admin/topics/{topic}/tail/?after=120"))


def test_it_costs_as_many_queries_however_long_a_topic_is(long: Callable[[int], str], browser: Browser) -> None:
    topic = long(120)
    few = queries(lambda: browser.get(f"/admin/topics/{topic}/"))
    moment = datetime.now(UTC)
    Peer.objects.bulk_create(Peer(topic_id=topic, agent_name=f"p{n}", created_at=moment) for n in range(50))
    assert queries(lambda: browser.get(f"/admin/topics/{topic}/")) == few


@pytest.mark.usefixtures("counted_alone")
@pytest.mark.sqlite  # whose plans say so; the indexes are the same
def test_it_looks_replies_up_and_reads_no_topic_from_its_start(topic: str, browser: Browser) -> None:
    with CaptureQueriesContext(connection) as asked:
        browser.get(f"/admin/topics/{topic}/")
        browser.get(f"/admin/topics/{topic}/tail/?after=1")
    plans = []
    for column in ("message_id", "reply_to"):
        for query in asked.captured_queries:
            if f'"{column}" IN (' in query["sql"]:
                with connection.cursor() as cursor:
                    plan = cursor.execute(f"EXPLAIN QUERY PLAN {query['sql']}").fetchall()
                plans.append(any(f"{column}=?" in row[3] for row in plan))
    assert plans == [True] * 4


def test_it_shows_hostile_words_as_the_text_they_are(ann: Client, browser: Browser) -> None:
    topic = ann.call("topic_create", name="<b>\"name'", metadata={"<q>": HOSTILE})["topic_id"]
    ann.join(topic, "<img src=x>")
    ann.say(topic, HOSTILE, message_type="<u>", metadata={"x": HOSTILE})
    acts = (f"topic_delete&on={topic}", f"topic_message_delete&on={message_of(1)}")
    pages = (f"topics/{path}" for path in ("topic/", f"{topic}/", f"{topic}/?q=script"))
    for path in (*pages, *(f"act/?do={act}" for act in acts)):
        page = browser.get(f"/admin/{path}").content.decode()
        for tag in ("<script>alert", "<b>", "<q>", "<img src=x", "<u>", 'href="javascript:', "\u202e"):
            assert tag not in page, (path, tag)
    assert "⟨U+202E⟩" in shown(browser.get(f"/admin/topics/{topic}/"))


@pytest.mark.parametrize("topic_id", ["a/b?c#d", ".", "..", "tpc x", "+message", "_2E_2E", "tpc_2F", "+new"])
def test_it_opens_a_topic_whatever_its_id(db: None, browser: Browser, topic_id: str) -> None:
    Topic.objects.create(topic_id=topic_id, name="imported", created_at=datetime.now(UTC))
    link = re.search(r'<a class="nx-link" href="([^"]+)"', browser.get(LIST).content.decode())
    assert link and "imported" in shown(browser.get(link[1]))


def test_it_has_no_page_of_what_is_gone(topic: str, browser: Browser) -> None:
    for path in ("gone/", "gone/tail/", "gone/export/", "+message/gone/"):
        assert browser.get(f"/admin/topics/{path}").status_code == 404
        assert browser.post(f"/admin/topics/{path}").status_code == 404


@pytest.mark.parametrize("query", ["at=0", "at=999", "at=x", "before=1", "before=-3", "answer=99", "whole=9", "q=%22*"])
def test_it_shows_a_topic_whatever_its_address_asks(topic: str, browser: Browser, query: str) -> None:
    assert browser.get(f"/admin/topics/{topic}/?{query}").status_code == 200


# Opening and joining


def wrong(answer: Any) -> dict[str, str]:
    """What a page says is wrong, by field."""
    return dict(re.findall(r'id="(?:\w+-|id_)(\w+)_error" role="alert">(.*?)</p>', shown(answer)))


def test_it_opens_a_topic_and_sends_one_there(db: None, browser: Browser) -> None:
    answer = browser.post(f"{LIST}add/", {"name": "release 2", "metadata": '{"ticket": 7}'})
    topic = Topic.objects.get()
    assert (topic.name, topic.metadata, topic.status) == ("release 2", {"ticket": 7}, "open")
    assert answer.headers["Location"] == f"/admin/topics/{topic.pk}/"
    page = shown(browser.get(answer.headers["Location"]))
    assert "Topic added." in page and "Nothing was said here yet." in page
    acted = Event.objects.get(type="operator.acted").payload
    assert (acted["operator"], acted["operation"]) == ("local", "topic_create")
    assert f'href="{LIST}add/' in browser.get(LIST).text


def test_it_takes_a_form_that_is_sent_twice_for_one_topic(db: None, browser: Browser) -> None:
    sent = [browser.post(f"{LIST}add/", {"name": "once", "metadata": '{"a": 1}'}) for _ in range(2)]
    assert len({answer.headers["Location"] for answer in sent}) == 1 and Topic.objects.count() == 1


@pytest.mark.parametrize(
    ("field", "form"),
    [
        ("name", {"name": ""}),
        ("metadata", {"metadata": "{"}),
        ("metadata", {"metadata": json.dumps({"a": "x" * 70_000})}),
    ],
)
def test_it_says_at_its_field_why_no_topic_was_opened(
    db: None, browser: Browser, field: str, form: dict[str, str]
) -> None:
    answer = browser.post(f"{LIST}add/", {"name": "kept name", "metadata": "", **form})
    assert answer.status_code == 200 and list(wrong(answer)) == [field]
    assert "kept name" in shown(answer) or field == "name"
    assert not Topic.objects.exists() and not Event.objects.exists()


# Saying something


def test_it_posts_as_the_operator_who_joins_with_the_first_message(topic: str, bob: Client, browser: Browser) -> None:
    assert "who joins with the first message" in shown(browser.get(f"/admin/topics/{topic}/"))
    answer = say(browser, topic, "Use *both*.", seen="2")
    assert answer.headers["Location"] == f"/admin/topics/{topic}/#m-3"
    (got,) = bob.look(topic)["received"]
    assert (got["sender"], got["content_markdown"], got["seq"]) == ("operator", "Use *both*.", 3)
    peer = Peer.objects.get(agent_name="operator")
    assert (peer.agent_id, peer.last_seq) == ("operator", 2)
    acted = Event.objects.get(type="operator.acted")
    assert acted.payload["operator"] == "local" and acted.payload["operation"] == "topic_post"
    assert bob.code("topic_join", topic_id=topic, agent_name="operator") == "AGENT_NAME_IN_USE"


def test_it_answers_a_message(topic: str, browser: Browser) -> None:
    page = shown(browser.get(f"/admin/topics/{topic}/?answer=1"))
    assert re.search(r"In answer to <bdi id=\"answered\"\s*>#1 ann", page)
    assert re.search(r'<option value="answer" selected', page)
    say(browser, topic, "Both.", message_type="answer", reply_to=message_of(1))
    row = TopicMessage.objects.get(seq=3)
    assert (row.message_type, row.reply_to) == ("answer", message_of(1))


def test_it_takes_a_form_that_is_sent_twice_for_one_message(topic: str, browser: Browser) -> None:
    for _ in range(2):
        assert say(browser, topic, "once").headers["Location"].endswith("#m-3")
    assert TopicMessage.objects.count() == 3


def test_it_takes_a_form_that_is_sent_again_with_another_text_for_another_message(topic: str, browser: Browser) -> None:
    say(browser, topic, "first")
    assert say(browser, topic, "second thoughts").headers["Location"].endswith("#m-4")
    assert TopicMessage.objects.get(seq=4).content_markdown == "second thoughts"


def test_it_takes_another_name_where_a_peer_is_called_operator(topic: str, browser: Browser) -> None:
    Client().join(topic, "operator")
    say(browser, topic, "hello", client_message_id="a")
    say(browser, topic, "again", client_message_id="b")
    assert set(TopicMessage.objects.filter(seq__gt=2).values_list("sender", flat=True)) == {"operator-2"}


@pytest.mark.parametrize(
    "form",
    [
        {"text": " "},
        {"text": "x" * 70_000},
        {"reply_to": "tms_gone"},
        {"message_type": "shout"},
        {"seen": "99"},
        {"client_message_id": ""},
    ],
)
def test_it_keeps_what_was_typed_when_a_message_is_refused(topic: str, browser: Browser, form: dict[str, str]) -> None:
    answer = say(browser, topic, **{"text": "kept words", **form})
    assert answer.status_code == 200 and form.get("text", "kept words")[:50] in answer.content.decode()
    assert wrong(answer) or "INVALID_ARGUMENT" in shown(answer)
    assert "text" not in form or list(wrong(answer)) == ["content_markdown"]
    assert TopicMessage.objects.count() == 2 and not Peer.objects.filter(agent_name="operator").exists()


def test_it_keeps_what_was_typed_when_the_topic_was_closed_meanwhile(topic: str, ann: Client, browser: Browser) -> None:
    ann.call("topic_close", topic_id=topic)
    page = shown(say(browser, topic, "too late"))
    assert "too late</textarea>" in page and "TOPIC_CLOSED" in page
    assert 'id="say"' not in shown(browser.get(f"/admin/topics/{topic}/"))


# Closing, renaming, files, deleting


def acted(browser: Browser, do: str, on: str, **form: str) -> str:
    """The page after an action on a topic or a message."""
    return shown(browser.post("/admin/act/", {"do": do, "on": on, "asked": "1", "next": LIST, **form}, follow=True))


def test_it_closes_a_topic_with_a_reason_and_twice_says_so(topic: str, browser: Browser) -> None:
    assert "“cache-key” was closed." in acted(browser, "topic_close", topic, reason="Merged")
    assert "<bdi>Merged</bdi>" in shown(browser.get(f"/admin/topics/{topic}/"))
    assert "The topic was closed before" in acted(browser, "topic_close", topic, reason="Other")
    assert "<bdi>Merged</bdi>" in shown(browser.get(f"/admin/topics/{topic}/"))


def test_it_renames_a_topic_in_its_messages_too(topic: str, ann: Client, browser: Browser) -> None:
    ann.say(topic, "cache-key it is")
    assert "was renamed" in acted(browser, "topic_rename", topic, name="cache-1", rewrite_messages="on")
    assert "cache-1 it is" in shown(browser.get(f"/admin/topics/{topic}/"))


@pytest.mark.parametrize("name", ["", "  ", "x" * 300, "a\nb"])
def test_it_keeps_the_name_where_the_new_one_is_none(topic: str, browser: Browser, name: str) -> None:
    assert 'role="alert"' in acted(browser, "topic_rename", topic, name=name)
    assert Topic.objects.get().name == "cache-key"


def test_it_closes_many_topics_at_once(topic: str, ann: Client, browser: Browser) -> None:
    other = ann.call("topic_create", name="other")["topic_id"]
    asked = browser.post(LIST, {"action": "topic_close", "_selected_action": [topic, other]}, follow=True)
    assert "Close: 2 topics" in shown(asked)
    browser.post("/admin/act/", {"do": "topic_close", "on": [topic, other], "asked": "1"})
    assert set(Topic.objects.values_list("status", flat=True)) == {"closed"}


@pytest.mark.parametrize("query", ["", "?format=json"])
async def test_it_gives_a_topic_as_a_file(committed: None, query: str) -> None:
    def file() -> tuple[str, Any]:
        one = Client()
        topic = one.call("topic_create", name="Ein/Name: ü")["topic_id"]
        one.join(topic, "ann")
        one.say(topic, "# body")
        return topic, Browser(headers=LOCAL).get(f"/admin/topics/{topic}/export/{query}")

    topic, answer = await sync_to_async(file)()
    text = b"".join([piece async for piece in answer.streaming_content]).decode()
    assert "# body" in text
    assert re.search(r"filename\*=UTF-8''Ein-Name-%C3%BC\.(md|json)$", answer.headers["Content-Disposition"])
    if query:
        assert json.loads(text)["topic_id"] == topic


def test_it_says_what_goes_with_a_topic_before_it_deletes_it(topic: str, browser: Browser) -> None:
    page = shown(browser.get(f"/admin/act/?do=topic_delete&on={topic}"))
    assert "2 messages go with it, and 2 names with their cursors" in page
    assert "Present now" in page and Topic.objects.exists()
    assert "“cache-key” was deleted." in acted(browser, "topic_delete", topic)
    assert not Topic.objects.exists() and not TopicMessage.objects.exists()
    assert "TOPIC_NOT_FOUND" in acted(browser, "topic_delete", topic)


def test_it_says_which_answers_go_with_a_message_before_it_deletes_it(
    topic: str, ann: Client, browser: Browser
) -> None:
    ann.say(topic, "Thanks.", reply_to=message_of(2))
    page = shown(browser.get(f"/admin/act/?do=topic_message_delete&on={message_of(1)}"))
    assert "2 other messages" in page and "The digest." in page
    assert "it goes alone" in shown(browser.get(f"/admin/act/?do=topic_message_delete&on={message_of(3)}"))
    assert "was deleted" in acted(browser, "topic_message_delete", message_of(1))
    assert not TopicMessage.objects.exists()


def test_it_shows_an_answer_whose_question_is_gone(topic: str, browser: Browser) -> None:
    TopicMessage.objects.filter(seq=1).delete()
    assert "to a message that is not here any more" in shown(browser.get(f"/admin/topics/{topic}/"))


# From elsewhere


def test_it_finds_topics_and_what_is_said_in_them_with_control_k(topic: str, browser: Browser) -> None:
    page = shown(browser.get("/admin/search/?s=cache&extended=1"))
    assert f"/admin/topics/{topic}/" in page and "Topic, open, 2 messages" in page
    page = shown(browser.get("/admin/search/?s=digest&extended=1"))
    assert f"/admin/topics/+message/{message_of(2)}/" in page and "Said by bob" in page
    page = shown(browser.get("/admin/find/?q=digest"))
    assert "Said in topics" in page and f"/admin/topics/+message/{message_of(2)}/" in page


def test_it_leads_from_an_event_to_what_was_said(topic: str, browser: Browser) -> None:
    link = f"/admin/topics/+message/{message_of(2)}/"
    event = Event.objects.filter(type="topic.message").latest("event_id")
    page = shown(browser.get("/admin/coordination/event/?type=topic.message"))
    assert link in page and "/admin/inbox/message/?m=" not in page
    page = shown(browser.get(f"/admin/coordination/event/{event.pk}/change/"))
    assert link in page and f"/admin/topics/{topic}/" in page
    assert f"/admin/topics/{topic}/" in shown(browser.get("/admin/coordination/event/?type=topic.created"))
