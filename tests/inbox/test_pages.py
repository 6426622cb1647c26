"""The page of mail: rows that tell what they are about, the first message open, and a place that is kept."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from coordination.ids import new_id
from coordination.models import Channel
from inbox import monitoring
from inbox.models import Delivery, Message
from nexus.core.clock import now
from tests.pages import Ids, do
from tests.store import plans, steps

pytestmark = pytest.mark.sqlite  # pages are the same on both; what they read is tested beside them


def page(browser: Client, query: str = "") -> str:
    return browser.get(f"/admin/inbox/message/{query}").content.decode()


def row(text: str, message_id: str) -> str:
    """A message's row in the list."""
    rows: list[str] = re.findall("<tr.*?</tr>", text, re.DOTALL)
    return next(row for row in rows if f"/{message_id}/change/" in row)


def write(played_team: Ids, subject: str, body: str = "x") -> str:
    to = {"strategy": "direct", "agent_id": "reviewer"}
    made = do(
        "message_create",
        project_root=played_team["root"],
        from_agent_id="planner",
        subject=subject,
        body=body,
        target=to,
    )
    return str(made["message_id"])


def test_it_tells_in_each_row_how_a_message_begins_and_where(played_team: Ids, browser: Client) -> None:
    message = write(played_team, "Look", "<b>The first line</b> tells.\n\n" + "and so on " * 100)
    shown = row(page(browser), message)
    assert "&lt;b&gt;The first line&lt;/b&gt; tells." in shown
    assert len(shown) < 6000
    assert '<bdi class="nx-name">parser</bdi>' in shown


def test_it_marks_what_somebody_has_yet_to_read(played_team: Ids, browser: Client) -> None:
    message = write(played_team, "Read me")
    assert 'data-tone="unread"' in row(page(browser), message)
    do("inbox_pull", agent_id="reviewer")
    do("inbox_ack", agent_id="reviewer", message_ids=[message])
    assert 'data-tone="read"' in row(page(browser), message)


def test_a_messages_page_leads_to_an_answer(played_team: Ids, browser: Client) -> None:
    newest = write(played_team, "The newest")
    text = browser.get(f"/admin/inbox/message/{newest}/change/").content.decode()
    assert f'id="reply" href="/admin/speak/?reply={newest}"' in text


def test_mail_is_found_by_words_and_by_its_id(played_team: Ids, browser: Client) -> None:
    one, other = write(played_team, "One", "a peculiar word"), write(played_team, "Another")
    for query in ("peculiar", one):
        text = page(browser, f"?q={query}")
        assert f"/{one}/change/" in text and f"/{other}/change/" not in text


def test_an_agents_mail_is_what_it_sent_and_what_it_received(played_team: Ids, browser: Client) -> None:
    sent = Message.objects.filter(from_agent_id="reviewer").values_list("pk", flat=True)
    received = Delivery.objects.filter(recipient_id="reviewer").values_list("message_id", flat=True)
    for query in ("", f"&workspace={played_team['workspace']}"):
        text = page(browser, f"?agent=reviewer{query}")
        assert set(re.findall(r"message/(msg_\w+)/change/", text)) == {*sent, *received}


def test_it_answers_with_the_text_in_focus(played_team: Ids, browser: Client) -> None:
    area = re.search(
        r"<textarea[^>]*name=\"body\"[^>]*>",
        browser.get(f"/admin/speak/?reply={played_team['reply']}").content.decode(),
    )
    assert area
    assert "autofocus" in area[0]


@pytest.mark.usefixtures("counted_alone")
@pytest.mark.sqlite  # whose plans say so; the indexes are the same
@pytest.mark.parametrize("narrowed", ["workspace", "channel", "read"])
def test_it_reads_no_more_of_the_mail_than_it_shows(played_team: Ids, browser: Client, narrowed: str) -> None:
    place, channel = Message.objects.get(pk=write(played_team, "One of many")).workspace, "chn_1"
    Channel.objects.create(channel_id=channel, workspace=place, name="c", created_at=place.created_at)
    query = {
        "agent": "agent=planner",
        "workspace": f"workspace={place.pk}",
        "channel": f"workspace={place.pk}&channel={channel}",
    }
    with CaptureQueriesContext(connection) as asked:
        page(browser, f"?{query.get(narrowed, 'status=read')}")
    (listing,) = [query["sql"] for query in asked.captured_queries if '"begins"' in query["sql"]]
    with connection.cursor() as cursor:
        plan = " / ".join(row[3] for row in cursor.execute(f"EXPLAIN QUERY PLAN {listing}").fetchall())
    assert "TEMP B-TREE" not in plan and "LIST SUBQUERY" not in plan, plan


@pytest.mark.sqlite  # whose steps are counted
def test_the_mail_of_a_busy_agent_costs_what_its_page_does(played_team: Ids) -> None:
    place = Message.objects.get(pk=write(played_team, "First")).workspace

    def busy(count: int) -> None:
        sent = [
            Message(
                message_id=new_id("msg"), workspace=place, from_agent_id="x", subject="s", body="b", created_at=now()
            )
            for _ in range(count)
        ]
        Message.objects.bulk_create(sent)
        Delivery.objects.bulk_create(
            Delivery(delivery_id=new_id("dlv"), message=each, recipient_id="planner", created_at=now()) for each in sent
        )

    def look(before: str = "") -> list[str]:
        rows = monitoring.newest_of(Message.objects.all(), "planner", before, 50)
        return list(rows.order_by("-pk").values_list("pk", flat=True)[:50])

    busy(100)
    few = steps(look)
    busy(1_000)
    assert steps(look) < 1.5 * few
    newest = look()
    assert newest == list(Message.objects.order_by("-pk").values_list("pk", flat=True)[:50])
    assert look(newest[-1])[0] == Message.objects.order_by("-pk")[50].pk


def test_the_deliveries_of_an_agent_are_found_along_their_index(played_team: Ids, browser: Client) -> None:
    write(played_team, "One")
    looked = plans(lambda: browser.get("/admin/inbox/delivery/?q=planner"))
    plans_of_it = [plan for plan in looked if "deliveries_to (recipient_agent_id=?)" in plan]
    assert plans_of_it and not any("TEMP B-TREE" in plan for plan in plans_of_it), looked


def test_deliveries_are_found_by_their_message_or_their_recipient(played_team: Ids, browser: Client) -> None:
    one, other = write(played_team, "One"), write(played_team, "Another")
    recipient = Delivery.objects.get(message_id=one).recipient_id
    for words, found in ((one, {one}), (recipient, {one, other}), ("nobody", set())):
        shown = browser.get("/admin/inbox/delivery/", {"q": words}).content.decode()
        assert {each for each in (one, other) if f"/{each}/change/" in shown} == found
