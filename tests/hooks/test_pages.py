"""The pages of webhooks."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from django.test import Client

from coordination.models import Agent, Event
from coordination.toolset import run
from nexus.hooks.models import Webhook
from nexus.web.forms import SUGGESTED
from tests.conftest import OPERATOR
from tests.pages import Ids, queries

URL = "https://example.com/hook"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def add(**more: Any) -> str:
    envelope = run(OPERATOR, "webhook_add", {"url": URL, **more})
    assert envelope["ok"], envelope
    return str(envelope["data"]["webhook_id"])


def fail(webhook_id: str) -> None:
    """Its latest event was tried twice."""
    Webhook.objects.filter(pk=webhook_id).update(failures=2, last_error="the receiver answered 502", given_up=3)


def text(browser: Client, path: str) -> str:
    return re.sub(r"\s+", " ", browser.get(path).content.decode())


def test_it_shows_the_secret_of_a_new_webhook_once(played_team: Ids, browser: Client) -> None:
    form = {"url": URL, "agent_id": "planner", "project_root": played_team["root"]}
    form["types"] = "message.created, handoff.created"
    shown = browser.post("/admin/webhooks/", form)
    row = Webhook.objects.get(url=URL)
    assert row.secret in shown.content.decode() and shown.headers["Cache-Control"].startswith("max-age=0")
    assert (row.agent_id, row.workspace_id, row.types) == (
        "planner", played_team["workspace"], ["message.created", "handoff.created"],
    )  # fmt: skip
    page = text(browser, "/admin/webhooks/")
    assert URL in page and row.secret not in page


def test_it_keeps_what_was_typed_when_an_address_is_refused_and_names_the_box_to_tick(
    db: None,
    browser: Client,
) -> None:
    answer = browser.post("/admin/webhooks/", {"url": "http://127.0.0.1:9/in", "types": "message.created"})
    page = answer.content.decode()
    assert "http://127.0.0.1:9/in" in page and 'value="message.created"' in page
    assert "“The address may be private”" in page and "allow_private if" not in page
    browser.post("/admin/webhooks/", {"url": "http://127.0.0.1:9/in", "allow_private": "on"})
    assert Webhook.objects.get().allow_private


def test_it_shows_what_fails_and_tries_it_again(db: None, browser: Client) -> None:
    webhook_id = add()
    assert "Try again" not in text(browser, "/admin/webhooks/")
    fail(webhook_id)
    page = text(browser, "/admin/webhooks/")
    assert "the receiver answered 502" in page and "3 events given up" in page and "Try again" in page
    answer = browser.post(f"/admin/webhooks/{webhook_id}/", {"what": "redeliver"})
    assert answer.headers["Location"] == f"/admin/webhooks/#{webhook_id}"
    assert Webhook.objects.get().failures == 0


def test_it_removes_a_webhook_and_does_nothing_for_an_act_that_it_does_not_know(db: None, browser: Client) -> None:
    webhook_id = add()
    for what in ("", "typo", "REMOVE"):
        assert browser.post(f"/admin/webhooks/{webhook_id}/", {"what": what}).status_code == 400
    assert Event.objects.latest("event_id").type == "webhook.added"
    browser.post(f"/admin/webhooks/{webhook_id}/", {"what": "remove"})
    assert not Webhook.objects.exists()


def test_it_asks_no_more_queries_of_more_webhooks(played_team: Ids, browser: Client) -> None:
    few = queries(lambda: browser.get("/admin/webhooks/"))
    for _ in range(5):
        fail(add(project_root=played_team["root"]))
    assert queries(lambda: browser.get("/admin/webhooks/")) == few


def test_it_suggests_only_so_many_agents(db: None, browser: Client) -> None:
    Agent.objects.bulk_create(
        Agent(agent_id=f"agent-{number:04d}", created_at=NOON, updated_at=NOON) for number in range(SUGGESTED + 9)
    )
    page = browser.get("/admin/webhooks/").content.decode()
    assert page.count('<option value="agent-') == SUGGESTED


def test_it_takes_an_agent_by_its_name_alone(db: None, browser: Client) -> None:
    answer = browser.post("/admin/webhooks/", {"url": URL, "agent_id": "nobody"})
    assert "NOT_FOUND" in answer.content.decode() and not Webhook.objects.exists()
