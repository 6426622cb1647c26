"""The admin's lists of rows: operations on one and on many, files, and what a viewer may."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.test import Client

from coordination.models import Event
from coordination.services import operators
from coordination.toolset import run
from handoffs.models import Handoff
from nexus.hooks.models import Webhook
from nexus.web.records import MOST_CHOSEN
from tests.conftest import OPERATOR
from tests.dashboard.test_empty import addresses
from tests.pages import LOCAL, Ids, do, shown

HANDOFFS = "/admin/handoffs/handoff/"


@async_to_sync
async def sent(answer: Any) -> str:
    return b"".join([piece async for piece in answer.streaming_content]).decode()


@pytest.fixture
def viewer(played_team: Ids) -> Client:
    """A browser in which a viewer is logged in, far from this machine."""
    operators.create(name="otto", viewer=True, operator="local")
    client = Client(headers=LOCAL, REMOTE_ADDR="192.0.2.7")
    client.force_login(User.objects.get(username="otto"))
    return client


def test_it_calls_an_operation_on_chosen_rows_and_says_what_came_of_each(played_team: Ids, browser: Client) -> None:
    chosen = list(Handoff.objects.filter(status="OPEN").values_list("pk", flat=True))
    asked = browser.post(HANDOFFS, {"action": "handoff_withdraw", "_selected_action": chosen}, follow=True)
    text = shown(asked)
    assert all(f'name="on" value="{pk}"' in text for pk in chosen)
    Handoff.objects.filter(pk=chosen[0]).update(status="COMPLETED")  # meanwhile
    done = browser.post(
        "/admin/act/", {"do": "handoff_withdraw", "on": chosen, "asked": "1", "next": HANDOFFS}, follow=True
    )
    assert done.redirect_chain[-1][0] == HANDOFFS
    assert "was not cancelled" in shown(done)
    assert set(Handoff.objects.filter(pk__in=chosen[1:]).values_list("status", flat=True)) == {"CANCELLED"}


def test_it_does_to_each_of_many_rows_what_it_still_admits(played_team: Ids, browser: Client) -> None:
    offer = {"project_root": played_team["root"], "from_agent_id": "planner", "visibility": "public", "payload": "x"}
    target = {"strategy": "role", "role": "nobody"}
    chosen = [do("handoff_create", **offer, target=target)["handoff_id"] for _ in range(MOST_CHOSEN)]
    asked = browser.post(HANDOFFS, {"action": "handoff_reassign", "_selected_action": chosen}, follow=True)
    assert shown(asked).count('name="on"') == len(chosen)
    changed, same = chosen[::2], chosen[1::2]
    for handoff_id in changed:
        assert run(OPERATOR, "handoff_withdraw", {"handoff_id": handoff_id})["ok"]
    form = {"do": "handoff_reassign", "on": chosen, "asked": "1", "agent_id": "builder-1", "next": HANDOFFS}
    page = shown(browser.post("/admin/act/", form, follow=True))
    assert f"{len(same)} handoffs were reassigned." in page
    assert page.count("was not reassigned") == 5 and f"Nor were {len(changed) - 5} more reassigned." in page
    to = {"strategy": "direct", "agent_id": "builder-1"}
    assert all(row.target == to and row.status == "OPEN" for row in Handoff.objects.filter(pk__in=same))
    assert all(row.target == target and row.status == "CANCELLED" for row in Handoff.objects.filter(pk__in=changed))
    happened = Event.objects.filter(type="handoff.reassigned").values_list("handoff_id", flat=True)
    assert sorted(map(str, happened)) == sorted(same)


def test_a_rows_page_has_the_operations_that_it_admits_now(played_team: Ids, browser: Client) -> None:
    page = f"{HANDOFFS}{played_team['open']}/change/"
    assert f'value="handoff_withdraw {played_team["open"]}"' in shown(browser.get(page))
    Handoff.objects.filter(pk=played_team["open"]).update(status="COMPLETED")
    assert "handoff_withdraw" not in shown(browser.get(page))


WEBHOOKS = "/admin/hooks/webhook/"


def test_add_calls_the_operation_that_creates(db: None, browser: Client) -> None:
    assert f'href="{WEBHOOKS}add/' in shown(browser.get(WEBHOOKS))
    form = {"url": "http://127.0.0.1:9/in", "types": "message.created"}
    refused = shown(browser.post(f"{WEBHOOKS}add/", form))
    assert 'id="id_url_error"' in refused and 'value="message.created"' in refused
    added = browser.post(f"{WEBHOOKS}add/", {**form, "allow_private": "on"})
    row = Webhook.objects.get()
    assert row.secret in shown(added) and added.headers["Cache-Control"].startswith("max-age=0")
    assert row.secret not in shown(browser.get(f"{WEBHOOKS}{row.pk}/change/"))


def test_a_viewer_adds_nothing(viewer: Client) -> None:
    assert "/add/" not in shown(viewer.get(WEBHOOKS))
    assert viewer.get(f"{WEBHOOKS}add/").status_code == 403
    assert viewer.post(f"{WEBHOOKS}add/", {"url": "https://example.com/new"}).status_code == 403


def test_what_a_list_shows_is_a_file(played_team: Ids, browser: Client) -> None:
    def lines(kind: str) -> list[str]:
        answer = browser.get(f"{HANDOFFS}?status__exact=OPEN&export={kind}")
        assert f".{kind}" in answer.headers["Content-Disposition"]
        return sent(answer).splitlines()

    rows = [json.loads(line) for line in lines("ndjson")]
    assert {row["status"] for row in rows} == {"OPEN"}
    assert len(rows) == Handoff.objects.filter(status="OPEN").count()
    named, *others = csv.reader(io.StringIO("\n".join(lines("csv"))))
    assert [dict(zip(named, other, strict=True))["work"] for other in others] == [row["work"] for row in rows]


def test_no_cell_of_a_file_is_a_formula(played_team: Ids, browser: Client) -> None:
    Handoff.objects.filter(pk=played_team["open"]).update(title='=HYPERLINK("x")')
    assert "'=HYPERLINK" in sent(browser.get(f"{HANDOFFS}?export=csv"))


def test_a_viewer_sees_every_page_and_no_action(played_team: Ids, viewer: Client) -> None:
    plain, about = addresses()
    row = f"{HANDOFFS}{played_team['open']}/change/"
    answers = {url: viewer.get(url) for url in (*plain, *about, row)}
    assert {url for url, got in answers.items() if got.status_code not in (200, 302, 404)} == set()
    assert {url for url, got in answers.items() if "/login/" in got.headers.get("Location", "")} == set()
    assert 'name="action"' not in shown(viewer.get(HANDOFFS))
    assert "handoff_withdraw" not in shown(viewer.get(row))


def test_nobody_sees_anything(played_team: Ids) -> None:
    nobody = Client(headers=LOCAL, REMOTE_ADDR="192.0.2.7")
    plain, about = addresses()
    plain.remove("/admin/login/")
    seen = {url: answer for url in (*plain, *about) if (answer := nobody.get(url)).status_code != 302}
    assert seen == {}
    assert all("/admin/login/" in nobody.get(url).headers["Location"] for url in plain[:3])


def test_a_viewer_does_nothing_by_any_way(played_team: Ids, viewer: Client) -> None:
    plain, about = addresses()
    plain.remove("/admin/login/")
    happened = Event.objects.count()
    for url in (*plain, *about):
        viewer.post(url, {"on": played_team["open"], "do": "handoff_withdraw", "asked": "1"})
    form = {"do": f"handoff_withdraw {played_team['open']}", "asked": "1", "next": HANDOFFS}
    assert "sees everything and does nothing" in shown(viewer.post("/admin/act/", form, follow=True))
    operation = "/api/v1/operations/handoff_withdraw"
    answer = viewer.post(operation, {"handoff_id": played_team["open"]}, content_type="application/json")
    assert answer.json()["error"]["code"] == "NOT_OWNER"
    new = {"username": "eve", "password1": "Xk29dfjkw", "password2": "Xk29dfjkw"}
    assert viewer.post("/admin/auth/user/add/", new).status_code == 403
    assert Event.objects.count() == happened and User.objects.filter(username="eve").count() == 0


def test_an_operator_makes_an_account_a_viewers_and_back(played_team: Ids, browser: Client) -> None:
    operators.create(name="mia", operator="local")
    mia = User.objects.get(username="mia")
    page, form = f"/admin/auth/user/{mia.pk}/change/", {"username": "mia", "is_active": "on", "is_staff": "on"}
    assert "May act" in shown(browser.get(page))
    browser.post(page, form)
    mia.refresh_from_db()
    assert not mia.is_superuser and mia.has_perm("handoffs.view_handoff")
    browser.post(page, {**form, "is_superuser": "on"})
    mia.refresh_from_db()
    assert mia.is_superuser and not mia.groups.exists()
