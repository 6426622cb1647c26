"""The admin's lists of webhooks and of addresses for notices."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from django.test import Client

from coordination.models import Agent
from coordination.toolset import run
from nexus.hooks.models import Webhook
from nexus.web.forms import SUGGESTED
from tests.conftest import OPERATOR
from tests.pages import Ids, queries

LIST = "/admin/hooks/webhook/"
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


def test_it_adds_a_webhook_of_one_agent_and_project(played_team: Ids, browser: Client) -> None:
    form = {"url": URL, "agent_id": "planner", "project_root": played_team["root"]}
    browser.post(f"{LIST}add/", {**form, "types": "message.created, handoff.created"})
    row = Webhook.objects.get(url=URL)
    assert (row.agent_id, row.workspace_id, row.types) == (
        "planner", played_team["workspace"], ["message.created", "handoff.created"],
    )  # fmt: skip
    assert URL in text(browser, f"{LIST}?workspace={played_team['workspace']}")
    assert URL not in text(browser, f"{LIST}?q=planned")


def test_an_error_names_the_field_that_mends_it(db: None, browser: Client) -> None:
    page = browser.post(f"{LIST}add/", {"url": "http://127.0.0.1:9/in"}).content.decode()
    assert "“Allow private”" in page and "allow_private if" not in page


def test_it_shows_what_fails_and_tries_it_again(db: None, browser: Client) -> None:
    webhook_id = add()
    assert "Try again" not in text(browser, f"{LIST}{webhook_id}/change/")
    fail(webhook_id)
    assert "the receiver answered 502" in text(browser, LIST)
    assert "Try again" in text(browser, f"{LIST}{webhook_id}/change/")
    browser.post("/admin/act/", {"do": f"webhook_redeliver {webhook_id}"})
    assert Webhook.objects.get().failures == 0


def test_it_removes_a_webhook_once_it_was_asked(db: None, browser: Client) -> None:
    webhook_id = add()
    browser.post("/admin/act/", {"do": f"webhook_remove {webhook_id}"})
    assert Webhook.objects.exists()
    browser.post("/admin/act/", {"do": f"webhook_remove {webhook_id}", "asked": "1"})
    assert not Webhook.objects.exists()


def test_it_asks_no_more_queries_of_more_webhooks(played_team: Ids, browser: Client) -> None:
    few = queries(lambda: browser.get(LIST))
    for _ in range(5):
        fail(add(project_root=played_team["root"]))
    assert queries(lambda: browser.get(LIST)) == few


def test_it_suggests_only_so_many_agents(db: None, browser: Client) -> None:
    Agent.objects.bulk_create(
        Agent(agent_id=f"agent-{number:04d}", created_at=NOON, updated_at=NOON) for number in range(SUGGESTED + 9)
    )
    page = browser.get(f"{LIST}add/").content.decode()
    assert page.count('<option value="agent-') == SUGGESTED


def test_it_takes_an_agent_by_its_name_alone(db: None, browser: Client) -> None:
    answer = browser.post(f"{LIST}add/", {"url": URL, "agent_id": "nobody"})
    assert "NOT_FOUND" in answer.content.decode() and not Webhook.objects.exists()


def test_the_old_addresses_lead_there(db: None, browser: Client) -> None:
    webhook_id = add()
    assert browser.get("/admin/webhooks/?q=a").headers["Location"] == f"{LIST}?q=a"
    assert browser.get(f"/admin/webhooks/{webhook_id}/").headers["Location"] == f"{LIST}{webhook_id}/change/"
