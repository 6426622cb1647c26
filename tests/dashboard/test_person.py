"""What a person reads and can do on the pages, beside the work itself."""

from __future__ import annotations

import html
import json
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import User
from django.test import Client

from handoffs.models import Handoff
from nexus.core.apps import nexus_apps
from nexus.planning.models import Task
from tests.pages import Ids, act, do, shown


def snippet(page: str, client: str) -> dict[str, Any]:
    """The JSON that a key page shows for a client."""
    found = re.search(rf'id="snippet-{client}"[^>]*>(.*?)</pre>', page)
    assert found, client
    document: dict[str, Any] = json.loads(found[1])
    return document


# The key page


def test_it_starts_a_local_client_by_the_whole_path_and_on_this_very_store(
    db: None, browser: Client, settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "bin" / "nexus"
    monkeypatch.setattr(sys, "argv", [str(program), "serve"])
    settings.NEXUS_SOURCES = {
        **settings.NEXUS_SOURCES,
        "home": "environment",
        "db_path": "default",
        "database_url": "default",
    }
    page = shown(browser.post("/admin/coordination/agent/add/", {"agent_id": "scout"}))
    server = snippet(page, "claude-desktop")["mcpServers"]["nexus"]
    assert server["command"] == str(program)
    assert server["args"] == ["runmcp", "--home", str(settings.NEXUS.home)]


def test_it_waits_for_the_first_call_beside_the_key(db: None, browser: Client) -> None:
    page = shown(browser.post("/admin/coordination/agent/add/", {"agent_id": "scout"}))
    source = re.search(r'data-source="([^"]+)"', page)
    assert re.search("nxs_[0-9a-f]{48}", page) and source and 'data-region id="row"' in page
    assert "<time" not in last_act(browser, source[1])
    do("agent_register", agent_id="scout")
    assert "<time" in last_act(browser, source[1])


def last_act(browser: Client, page: str) -> str:
    """What the live part of an agent's page says of its last act."""
    live = shown(browser.get(page)).partition('data-region id="row"')[2]
    return live.partition("Last act")[2].partition("Latest events")[0]


# Presence


@pytest.fixture
def talkative(team: Ids) -> Any:
    """An hour later: the planner has just written, and no session of it has a heartbeat."""
    with time_machine.travel(datetime.now(UTC) + timedelta(hours=1)):
        do("message_create", project_root=team["root"], from_agent_id="planner", subject="s", body="b",
           target={"strategy": "direct", "agent_id": "reviewer"})  # fmt: skip
        yield


def test_it_says_whom_broadcasts_do_not_reach_although_present(talkative: None, browser: Client) -> None:
    for path in ["/admin/coordination/agent/?q=planner", "/admin/agents/planner/", "/admin/graph/?agent=planner"]:
        page = shown(browser.get(path))
        assert 'data-tone="present">present<' in page and "broadcasts do not reach it" in page


def test_it_says_so_on_the_map(talkative: None, browser: Client) -> None:
    page = shown(browser.get("/admin/graph/"))
    assert re.search(r"<title>\s*planner: present, \d+ messages, \d+ unread(, \d+ handoffs offered)?; broadcasts", page)
    assert not re.search(r"<title>\s*builder-1: \w+, \d+ messages; broadcasts", page)


def test_it_says_nothing_of_broadcasts_where_they_arrive(team: Ids, browser: Client) -> None:
    assert "broadcasts do not reach it" not in shown(browser.get("/admin/agents/planner/"))


# Names, words, bounds


def test_it_never_capitalises_an_id(team: Ids, browser: Client) -> None:
    for path in (f"handoffs/handoff/{team['open']}", f"coordination/workspace/{team['workspace']}"):
        page = shown(browser.get(f"/admin/{path}/change/"))
        name = "parser" if "workspace" in path else Handoff.objects.get(pk=team["open"]).title
        assert re.search(f">{name}</(a|span)>", page)
        assert f">{name.capitalize()}<" not in page


def test_it_leaves_ids_as_they_are_in_control_k(team: Ids, browser: Client) -> None:
    do("message_create", project_root=team["root"], from_agent_id="builder-1", subject="s", body="zebra",
       target={"strategy": "direct", "agent_id": "planner"})  # fmt: skip
    page = shown(browser.get("/admin/search/?s=zebra&extended=1"))
    assert "Message" in page and "Builder-1" not in page
    page = shown(browser.get("/admin/search/?s=builder-1&extended=1"))
    assert "Event, file.reserved" in page and "Builder-1" not in page
    assert "builder-1 reserved src/reader.py" in page


def test_it_spells_the_plural_of_delivery(team: Ids, browser: Client) -> None:
    page = shown(browser.get("/admin/inbox/delivery/"))
    assert ">Deliveries</a>" in page and "Deliverys" not in page and "deliverys" not in page


def test_it_shows_no_bound_of_the_machine_among_the_settings(team: Ids, browser: Client) -> None:
    page = shown(browser.get("/admin/settings/?q=_"))
    assert "2147483647" not in page and "0 or more." in page and "to 86400." in page


def test_it_names_the_way_in_the_words_of_the_pages(team: Ids, browser: Client) -> None:
    page = shown(browser.post("/admin/coordination/agent/add/", {"agent_id": "planner"}))
    assert "There is an agent 'planner' already: Profile on the agent's page changes it" in page
    assert "agent_update" not in page and "agent_key_issue" not in page
    handoff = {"what": "handoff", "workspace": team["workspace"], "strategy": "role", "role": "nobody", "payload": "x"}
    page = shown(browser.post("/admin/speak/", handoff, follow=True))
    assert "Cancel on the handoff's page retracts it" in page and "handoff_cancel retracts" not in page


def test_it_says_how_to_make_the_first_agent(db: None, browser: Client) -> None:
    assert "Make the first agent" in shown(browser.get("/admin/"))
    do("agent_register", agent_id="scout")
    assert "Make the first agent" not in shown(browser.get("/admin/"))


def test_it_says_how_a_project_becomes_known(db: None, browser: Client, project: str) -> None:
    assert "No project is known yet" in shown(browser.get("/admin/speak/"))
    do("workspace_resolve", project_root=project)
    assert "No project is known yet" not in shown(browser.get("/admin/speak/"))


def test_it_offers_nothing_that_a_deleted_agent_cannot_have(team: Ids, browser: Client) -> None:
    assert "Profile…" in shown(browser.get("/admin/agents/builder-2/"))
    browser.post("/admin/act/", {"do": "agent_delete builder-2", "asked": "1"})
    page = shown(browser.get("/admin/agents/builder-2/"))
    assert "It is no longer in the team" in page and "with its id to bring it back" in page
    assert 'name="do"' not in page and "over stdio" not in page


# A handoff's outcome


def test_it_tells_by_whom_and_why_a_handoff_was_cancelled(team: Ids, browser: Client) -> None:
    on = f"/admin/handoffs/handoff/{team['open']}/change/"
    act(browser, do=f"handoff_withdraw {team['open']}", asked="1", reason="not needed any more")
    page = shown(browser.get(on))
    assert "None yet" not in page and "Reason: <bdi>not needed any more</bdi>" in page
    assert re.search(r"Cancelled by operator <bdi[^>]*>local</bdi> – <time", page)


def test_it_says_in_words_who_checks_a_handoff(team: Ids, browser: Client) -> None:
    offer = {"project_root": team["root"], "from_agent_id": "planner", "visibility": "public", "payload": "x"}
    target = {"strategy": "capability", "capability": "python"}
    checked = do("handoff_create", **offer, target=target, verifier={"role": "reviewer"})["handoff_id"]
    page = shown(browser.get(f"/admin/handoffs/handoff/{checked}/change/"))
    assert "an agent in the role reviewer" in page and "role:reviewer" not in page


def test_it_shows_what_a_handoff_depends_on_and_is_measured_by(team: Ids, browser: Client) -> None:
    offer: dict[str, Any] = {
        "project_root": team["root"],
        "from_agent_id": "planner",
        "visibility": "public",
        "payload": "x",
    }
    offer["target"] = {"strategy": "direct", "agent_id": "planner"}
    done, other = (do("handoff_create", **offer, title=title)["handoff_id"] for title in ("Parse <b>it", "Wait"))
    for step in ("handoff_claim", "handoff_complete"):
        do(step, project_root=team["root"], handoff_id=done, agent_id="planner")
    more = {"depends_on": [done, other], "acceptance_criteria": ["Tests pass.", "No <script>."], "trace_id": "t&1"}
    made = do("handoff_create", **offer, **more)["handoff_id"]
    page = browser.get(f"/admin/handoffs/handoff/{made}/change/").content.decode()
    rows = re.findall(r'/handoff/(\w+)/change/"[^>]*>\s*<bdi[^>]*>([^/]*)</bdi>\s*</a>\s*<span[^>]*>(\w+)', page)
    assert rows == [(done, "Parse &lt;b&gt;it", "completed"), (other, "Wait", "open")]
    assert ">Tests pass.</bdi>" in page and ">No &lt;script&gt;.</bdi>" in page
    assert "?trace=t%261" in page
    assert "Depends on" not in shown(browser.get(f"/admin/handoffs/handoff/{done}/change/"))


def test_it_tells_which_agent_cancelled_a_handoff(team: Ids, browser: Client) -> None:
    do("handoff_cancel", project_root=team["root"], handoff_id=team["orphan"], agent_id="planner")
    page = shown(browser.get(f"/admin/handoffs/handoff/{team['orphan']}/change/"))
    assert re.search(r"Cancelled by <bdi[^>]*>planner</bdi>", page) and "No reason was given" in page


# Records


def test_it_says_that_there_is_nothing_yet_or_that_nothing_fits(team: Ids, browser: Client) -> None:
    Task.objects.all().delete()
    assert "No tasks yet." in shown(browser.get("/admin/planning/task/"))
    narrowed = ("coordination/session/?q=zzz", "handoffs/handoff/?status__exact=EXPIRED", "coordination/session/?p=99")
    for path in narrowed:
        page = shown(browser.get(f"/admin/{path}"))
        assert re.search(r'Nothing fits\. <a href="\?">Show all (sessions|handoffs)</a>', page), path
        assert " yet." not in page and "yielded" not in page


# Operators and logins


def test_it_offers_no_permission_but_to_enter_and_to_act(team: Ids, browser: Client) -> None:
    ada = User.objects.create_superuser("ada", password="correct horse")
    page = shown(browser.get(f"/admin/auth/user/{ada.pk}/change/"))
    assert all(f'name="{right}"' in page for right in ("is_active", "is_staff", "is_superuser"))
    assert "user_permissions" not in page and 'name="groups"' not in page
    assert "groups__" not in shown(browser.get("/admin/auth/user/"))  # the filter


def test_it_calls_operators_what_the_sidebar_calls_them(team: Ids, browser: Client) -> None:
    ada = User.objects.create_superuser("ada", password="correct horse")
    for path in ("", "add/", f"{ada.pk}/change/"):
        page = shown(browser.get(f"/admin/auth/user/{path}"))
        heading = re.sub("<[^>]*>", "", re.search("<h1.*?</h1>", page)[0])  # type: ignore[index]
        assert re.search("Hub chevron_right Operators", heading) and "Authentication and" not in page, path
    add = shown(browser.get("/admin/auth/user/"))
    assert "Add operator" in add and "Add user" not in add


def test_it_makes_an_operator_who_can_do_everything(team: Ids, browser: Client, settings: Any) -> None:
    form = {"username": "bea", "password1": "correct horse battery", "password2": "correct horse battery"}
    browser.post("/admin/auth/user/add/", form)
    bea = User.objects.get(username="bea")
    assert (bea.is_active, bea.is_staff, bea.is_superuser) == (True, True, True)
    settings.NEXUS_TRUSTS_LOCAL = False
    assert browser.login(username="bea", password="correct horse battery")
    assert browser.get("/admin/inbox/message/").status_code == 200


def test_it_takes_all_rights_from_an_operator_who_may_not_enter(team: Ids, browser: Client) -> None:
    ada = User.objects.create_superuser("ada", password="correct horse")
    browser.post(f"/admin/auth/user/{ada.pk}/change/", {"username": "ada", "is_active": "on"})
    ada.refresh_from_db()
    assert (ada.is_staff, ada.is_superuser) == (False, False)


def test_it_gives_nobody_the_account_of_local_requests(team: Ids, browser: Client) -> None:
    browser.get("/admin/")
    local = User.objects.get(username="local")
    assert browser.get(f"/admin/auth/user/{local.pk}/password/").status_code == 404
    assert f"/auth/user/{local.pk}/" not in shown(browser.get("/admin/auth/user/"))


def test_it_offers_a_local_operator_no_login_to_end(team: Ids, browser: Client, settings: Any) -> None:
    page = shown(browser.get("/admin/"))
    assert "Log out" not in page and "You are here without a login" in page
    answer = browser.post("/admin/logout/")
    assert answer.headers["Location"] == "/admin/"
    settings.NEXUS_TRUSTS_LOCAL = False
    User.objects.create_superuser("ada", password="correct horse")
    browser.login(username="ada", password="correct horse")
    assert "Log out" in shown(browser.get("/admin/"))
    browser.post("/admin/logout/")
    assert browser.get("/admin/").status_code == 302


# What a person looks for first


def test_an_agents_page_says_first_what_it_works_on_and_tells_no_signs_of_life(team: Ids, browser: Client) -> None:
    opened = do("session_open", agent_id="builder-1", workspace_id=team["workspace"])
    for _ in range(12):
        do("session_heartbeat", session_id=opened["session_id"])
    page = shown(browser.get("/admin/agents/builder-1/"))
    works = page[page.index("Works on") : page.index("Latest events")]
    assert f"/admin/handoffs/handoff/{team['claimed']}/change/" in works and "left" in works
    assert page.index("Works on") < page.index("Latest events") < page.index("Metadata") < page.index("API key")
    latest = page[page.index("Latest events") : page.index("Metadata")]
    assert "took" in latest and "is alive" not in latest


def test_an_agents_page_says_what_it_handed_over(team: Ids, browser: Client) -> None:
    page = shown(browser.get("/admin/agents/planner/"))
    handed = page[page.index("Handed over, not finished") : page.index("Last act")]
    assert all(f"/admin/handoffs/handoff/{team[which]}/change/" in handed for which in ("open", "claimed", "orphan"))
    assert re.search(r"with\s+<[^>]*>builder-1<", handed) and "12 files" not in handed


def test_the_help_names_each_page_of_the_sidebar(db: None, browser: Client) -> None:
    page = shown(browser.get("/admin/help/"))
    helped = page[page.index("The pages") : page.index("The words")]
    listed = [entry for app in nexus_apps() for entry in app.pages() if entry.title and entry.name != "help"]
    assert listed and all(entry.about for entry in listed)
    for entry in listed:
        assert f">{entry.title}</a></dt> <dd>{html.unescape(entry.about)}</dd>" in helped
