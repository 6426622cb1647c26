"""The header's menu of workspaces: pages follow the choice, which is in the URL and remembered."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from coordination.switcher import COOKIE
from tests.browser import scene
from tests.pages import Ids, do

FOLLOWING = [
    "",
    *(f"{page}/" for page in "board timeline graph coordination/agent files/reservation plan attention".split()),
    *("coordination/event/", "inbox/message/"),
]


@pytest.fixture
def other(team: Ids, tmp_path: Path) -> str:
    """A second workspace, where only planner is."""
    (tmp_path / "shop").mkdir()
    workspace = do("workspace_resolve", project_root=str(tmp_path / "shop"))["workspace_id"]
    do("session_open", agent_id="planner", workspace_id=workspace)
    target = {"strategy": "direct", "agent_id": "planner"}
    place = {"project_root": str(tmp_path / "shop"), "visibility": "public"}
    do("handoff_create", **place, from_agent_id="planner", target=target, title="Open the shop")
    return str(workspace)


def roster(text: str) -> list[str]:
    """The agents of the page's table."""
    table = text.partition("<table")[2].partition("</table>")[0]
    return list(dict.fromkeys(re.findall('href="/admin/agents/([^/"]+)/"', table)))


def sent(text: str) -> int:
    """The messages of the last hour that Home counts."""
    found = re.search(r"(\d+) in the last hour", text)
    assert found
    return int(found[1])


def test_a_page_follows_the_workspace_that_was_chosen_on_another(browser: Client, other: str) -> None:
    browser.get(f"/admin/board/?workspace={other}")
    for path in FOLLOWING:
        came = browser.get(f"/admin/{path}")
        assert (came.status_code, came["Location"]) == (302, f"/admin/{path}?workspace={other}")
        page = browser.get(came["Location"])
        assert page.status_code == 200
        assert 'aria-label="Workspace: shop"' in page.text


def test_all_workspaces_are_a_choice_too(browser: Client, other: str) -> None:
    browser.get(f"/admin/board/?workspace={other}")
    assert 'aria-label="Workspace: All workspaces"' in browser.get("/admin/board/?workspace=").text
    assert browser.get("/admin/").status_code == 200


def test_a_page_of_the_hub_shows_the_choice_and_leads_to_the_home_of_another(
    browser: Client, team: Ids, other: str
) -> None:
    browser.get(f"/admin/board/?workspace={other}")
    page = browser.get("/admin/settings/")
    assert page.status_code == 200
    assert 'aria-label="Workspace: shop not here"' in page.text
    assert f'href="/admin/?workspace={team["workspace"]}"' in page.text


def test_a_link_to_one_thing_is_not_narrowed(browser: Client, team: Ids, other: str) -> None:
    browser.get(f"/admin/board/?workspace={other}")
    text = browser.get(f"/admin/inbox/message/{team['reply']}/change/").text
    assert "Re: Plan for the parser" in text and 'aria-label="Workspace: shop not here"' in text


def test_a_page_that_refreshes_itself_in_another_tab_chooses_nothing(browser: Client, team: Ids, other: str) -> None:
    browser.get(f"/admin/board/?workspace={other}")
    browser.get(f"/admin/board/?workspace={team['workspace']}", headers={"X-Requested-With": "fetch"})
    assert browser.get("/admin/board/")["Location"] == f"/admin/board/?workspace={other}"


def test_a_workspace_that_is_not_there_is_no_choice(browser: Client, team: Ids) -> None:
    for cookie in ["gone", "\x00", "x" * 4000, "é"]:
        browser.cookies[COOKIE] = cookie
        assert browser.get("/admin/board/").status_code == 200
        assert browser.get("/admin/settings/").status_code == 200


def test_home_shows_the_agents_work_and_events_of_the_workspace(browser: Client, team: Ids, other: str) -> None:
    page = browser.get(f"/admin/?workspace={other}")
    everywhere = browser.get("/admin/?workspace=")
    assert roster(page.text) == ["planner"]
    assert len(roster(everywhere.text)) == len(scene.TEAM)
    assert "Open the shop" in page.text
    assert sent(page.text) == 1 < sent(everywhere.text)
    assert f'href="/admin/board/?workspace={other}"' in page.text


def test_agents_shows_those_that_were_in_the_workspace(browser: Client, team: Ids, other: str) -> None:
    page = browser.get(f"/admin/coordination/agent/?workspace={other}")
    assert roster(page.text) == ["planner"]
    assert len(roster(browser.get("/admin/coordination/agent/?workspace=").text)) == len(scene.TEAM)


def test_what_needs_a_person_follows_the_workspace(browser: Client, team: Ids, other: str) -> None:
    for path in ("", "attention/"):
        everywhere, here = (
            set(re.findall(r'class="nx-kind" id="([a-z-]+)"', browser.get(f"/admin/{path}?workspace={chosen}").text))
            for chosen in ("", other)
        )
        assert here < everywhere


def test_a_page_reads_the_chosen_workspace_once(browser: Client, other: str) -> None:
    with CaptureQueriesContext(connection) as read:
        browser.get(f"/admin/attention/?workspace={other}")
    by_id = [
        query["sql"] for query in read.captured_queries if re.search(r'"workspaces"."workspace_id" = ', query["sql"])
    ]
    assert len(by_id) == 1
