"""The dashboard's pages, asked as a browser on this machine asks."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import time_machine
from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth.models import User
from django.http import StreamingHttpResponse
from django.test import Client, RequestFactory

from coordination import presence
from coordination.models import Agent, Event, Session
from coordination.rows import EventRow, event_row
from handoffs.models import Handoff
from inbox import monitoring
from inbox.models import Message
from nexus.control.agents import questions
from nexus.control.models import PoolAgent, Role, Turn
from nexus.core.clock import now
from nexus.core.coding_clients import CLIENTS
from nexus.dashboard.admin import AgentAdmin
from nexus.dashboard.urls import pages
from nexus.planning.models import Issue, Task
from nexus.reservations.models import Reservation
from nexus.web import records
from nexus.web.theme import navigation
from tests.browser import scene
from tests.conftest import streamed
from tests.control.playing import say
from tests.pages import LOCAL, Ids, act, do, queries, shown
from tests.topics.conftest import Client as Peer

PROFILE = "/admin/act/?do=agent_update&on=planner"
HARM = "</title><script>alert(1)</script> <b>x [x](javascript:alert(2)) \u202etxt"

EVENTS = "/admin/coordination/event/"


def addresses(ids: Ids) -> list[str]:
    """Every page a person can open."""
    first = Event.objects.earliest("event_id").pk
    return [
        *(
            "/admin/",
            "/admin/attention/",
            "/admin/graph/",
            "/admin/graph/?agent=planner",
            "/admin/graph/?from=planner&to=builder-1",
        ),
        *(
            "/admin/board/",
            f"/admin/handoffs/handoff/{ids['open']}/change/",
            "/admin/inbox/message/",
            f"/admin/inbox/message/{ids['reply']}/change/",
        ),
        *(f"/admin/inbox/message/?status={status}" for status in ("unread", "delivered", "read", "parked", "nobody")),
        *(
            "/admin/find/?q=parser",
            "/admin/search/?s=parser&extended=1",
            "/admin/coordination/event/",
            "/admin/coordination/event/?q=parser",
        ),
        *(
            "/admin/coordination/event/?type=handoff.*",
            f"/admin/coordination/event/{first}/change/",
            "/admin/coordination/agent/",
            "/admin/agents/planner/",
        ),
        *(
            "/admin/inbox/message/?agent=planner",
            "/admin/inbox/message/?agent=reviewer&status=nobody",
            "/admin/coordination/agent/add/",
        ),
        *("/admin/coordination/agentlimits/", "/admin/coordination/agentlimits/add/?role=worker"),
        *("/admin/act/?do=agent_update&on=planner", "/admin/speak/", f"/admin/speak/?reply={ids['reply']}"),
        *(
            "/admin/settings/",
            "/admin/retention/",
            "/admin/help/",
            "/admin/reference/",
            "/admin/reference/errors.md",
            "/admin/auth/user/",
        ),
        *("/admin/topics/topic/", "/admin/topics/topic/add/", f"/admin/topics/{ids['topic']}/"),
        f"/admin/topics/{ids['topic']}/tail/?after=0",
        f"/admin/act/?do=topic_delete&on={ids['topic']}",
        f"/admin/act/?do=topic_message_delete&on={ids['said']}",
        "/admin/control/question/",
        *(
            "/admin/control/budget/",
            "/admin/spending/",
            "/admin/control/worktreemerge/",
            "/admin/control/poolworktree/",
            "/admin/review/",
            f"/admin/review/{ids['pool_agent']}/",
            "/admin/control/machine/",
            "/admin/control/outage/",
            "/admin/checks/",
            "/admin/control/permissionrule/",
            "/admin/control/turn/",
            f"/admin/control/turn/{ids['run']}/change/",
            f"/admin/runs/{ids['run']}/trace/",
        ),
        *("/admin/control/poolagent/", f"/admin/pool/{ids['pool_agent']}/"),
        f"/admin/pool/{ids['pool_agent']}/tail/?after=0",
        *("/admin/files/reservation/", f"/admin/files/reservation/{ids['reservation']}/change/"),
        *("/admin/timeline/", f"/admin/timeline/?span={ids['open']}.1"),
        *("/admin/plan/", f"/admin/plan/?workspace={ids['workspace']}"),
        f"/admin/plan/{ids['workspace']}/close/",
        f"/admin/plan/issues/{ids['issue']}/",
        *(f"/admin/planning/{what}/{ids[what]}/change/" for what in ("task", "cycle")),
        *("/admin/planning/task/", "/admin/planning/cycle/", f"/admin/planning/cycle/{ids['cycle']}/change/"),
        *("/admin/hooks/noticeaddress/", "/admin/forges/forge/", "/admin/hooks/webhook/"),
        *(f"/admin/coordination/{model}/" for model in ("workspace", "session", "channel", "artifact", "event")),
        *("/admin/inbox/message/", "/admin/inbox/delivery/", "/admin/handoffs/handoff/"),
        f"/admin/coordination/workspace/{ids['workspace']}/change/",
        f"/admin/coordination/artifact/{ids['artifact']}/change/",
        f"/admin/inbox/message/{ids['message']}/change/",
        f"/admin/handoffs/handoff/{ids['open']}/change/",
    ]


def harmed(team: Ids) -> list[str]:
    """Let everything that agents write mean harm; the pages that show it, beside those of a team."""
    place = {"project_root": team["root"], "from_agent_id": "planner"}
    do("agent_register", agent_id="planner", role=HARM, metadata={HARM: HARM})
    letter = do("message_create", **place, subject=HARM, body=HARM, target={"strategy": "role", "role": HARM})
    work = do("handoff_create", **place, visibility="public", title=HARM, payload=HARM,
              target={"strategy": "role", "role": HARM})  # fmt: skip
    Handoff.objects.filter(pk=team["claimed"]).update(title=HARM)
    question = questions.ask(agent_id="lead", kind="permission", title=HARM, detail=HARM, subject=HARM)
    Turn.objects.update(content=HARM, answer=HARM, why=HARM, status="failed", needs_person_since=now())
    PoolAgent.objects.update(runner="<b>x")
    turn = Turn.objects.get()
    say(turn, Role.ASSISTANT, HARM, meta={"tool_calls": [{"id": "<b>x", "name": HARM, "arguments": {"x": HARM}}]})
    say(turn, Role.TOOL, HARM, tool_call_id="<b>x")
    paths = (f"mail/?m={letter['message_id']}", f"handoffs/handoff/{work['handoff_id']}/change/",
             f"questions/{question.pk}/",
             f"timeline/?span={turn.pk}", f"timeline/?span={team['claimed']}.1")  # fmt: skip
    return [f"/admin/{path}" for path in paths]


def test_it_answers_every_page_without_a_login_on_this_machine_and_shows_what_means_harm_as_text(
    committed: None, team: Ids, browser: Client
) -> None:
    written = harmed(team)
    for url in [*written, *addresses(team)]:
        answer = browser.get(url, follow=True)
        assert answer.status_code == 200, url
        page = answer.content.decode()
        assert not [harm for harm in ("<script>alert", "<b>x", 'href="javascript') if harm in page], url
        typed = re.sub(r'<textarea.*?</textarea>|value="[^"]*"', "", page, flags=re.DOTALL)  # as it is, to be changed
        assert "\u202e" not in typed, url
        assert url not in written or "&lt;script&gt;alert(1)" in page, url


def test_it_tells_in_the_browsers_tab_what_a_page_is_of(team: Ids, browser: Client) -> None:
    Message.objects.filter(pk=team["message"]).update(subject="a\u202eb")
    pattern = Reservation.objects.get(pk=team["reservation"]).pattern
    titles = {
        f"/admin/handoffs/handoff/{team['open']}/change/": Handoff.objects.get(pk=team["open"]).title,
        f"/admin/files/reservation/{team['reservation']}/change/": pattern,
        f"/admin/planning/task/{team['task']}/change/": Task.objects.get(pk=team["task"]).title,
        f"/admin/plan/issues/{team['issue']}/": f"{Issue.objects.get(pk=team['issue']).title} | Issue",
        f"/admin/inbox/message/{team['message']}/change/": "a⟨U+202E⟩b",
        f"/admin/topics/{team['topic']}/": "Topic ",
        "/admin/agents/planner/": "planner | ",
        "/admin/board/": "Handoffs",
    }
    for path, begins in titles.items():
        found = re.search(r"<title>\s*(.*?)\s*</title>", browser.get(path).text, re.DOTALL)
        assert found is not None and " ".join(unescape(found[1]).split()).startswith(begins), path


def test_the_navigation_begins_with_what_people_look_for_and_few_of_it() -> None:
    top, *groups = navigation()
    assert [entry["title"] for entry in top["items"]] == [
        *("Home", "Agents", "Handoffs", "Inbox", "Plan", "Review", "Timeline")
    ]
    assert [group["title"] for group in groups] == ["Work", "Pool", "Rules", "Records", "Hub"]
    assert all(group["collapsible"] for group in groups)
    titles = [entry["title"] for group in (top, *groups) for entry in group["items"]]
    assert len(titles) == len(set(titles))


def test_the_navigation_leaves_out_what_is_not_in_use(db: None, browser: Client, project: str) -> None:
    def shown_in_it() -> set[str]:
        entries = [entry for group in navigation() for entry in group["items"]]
        return {entry["title"] for entry in entries if entry["permission"](None)}

    rare = {"Topics", "Forges", "Machines", "Pool", "Runs", "Budgets"}
    assert shown_in_it() & rare == set()
    assert ">Topics<" in browser.get("/admin/help/").text
    Peer().call("topic_create", name="cache")
    assert shown_in_it() & rare == {"Topics"}


def test_old_addresses_lead_to_the_new_pages(db: None, browser: Client) -> None:
    moved = {
        "board/hnd_1/": "handoffs/handoff/hnd_1/change/",
        "events/?type=a.b&agent=ann": "coordination/event/?type=a.b&agent=ann",
        "events/7/": "coordination/event/7/change/",
        "mail/?m=msg_1&alone=1": "inbox/message/msg_1/change/",
        "mail/?status=unread": "inbox/message/?status=unread",
        "mail/msg_1/": "inbox/message/msg_1/change/",
        "plan/tasks/tsk_1/": "planning/task/tsk_1/change/",
        "plan/cycles/1/": "planning/cycle/1/change/",
        "about/": "help/",
    }
    found = {old: browser.get(f"/admin/{old}").headers["Location"] for old in moved}
    assert found == {old: f"/admin/{new}" for old, new in moved.items()}


def test_the_navigation_counts_what_waits_for_the_operator(team: Ids, rf: RequestFactory) -> None:
    def counts() -> dict[str, int]:
        entries = [entry for group in navigation(rf.get("/")) for entry in group["items"]]
        return {entry["title"]: entry["badge"] for entry in entries if entry.get("badge")}

    do("agent_register", agent_id="operator")
    before = counts()
    to_me = {"project_root": team["root"], "target": {"strategy": "direct", "agent_id": "operator"}}
    do("message_create", **to_me, from_agent_id="planner", subject="May I?", body="?")
    assert counts() == {**before, "Inbox": before.get("Inbox", 0) + 1}


def test_it_lists_every_page_of_the_dashboard_in_these_tests(team: Ids) -> None:
    from django.contrib import admin

    opened = {re.sub(r"\?.*", "", url) for url in addresses(team)}
    acts = set(
        "reset act act_minutes bell question pool_turn pool_approve plan_comment topic_export topic_message".split()
    )
    paths = [url.removeprefix("/admin/") for url in opened]
    seen = {page.name for page in pages(admin.site) if any(page.pattern.match(path) for path in paths)}
    assert {page.name for page in pages(admin.site)} - seen <= acts


def test_it_asks_for_a_login_beyond_loopback(team: Ids, browser: Client, settings: Any) -> None:
    settings.NEXUS_TRUSTS_LOCAL = False
    answers = {browser.get(url).headers.get("Location", "")[:13] for url in addresses(team)}
    assert answers == {"/admin/login/"}
    assert "password" in browser.get("/admin/login/").content.decode()


def test_it_asks_for_a_login_when_a_request_is_not_direct(db: None) -> None:
    for header in [{"x-forwarded-for": "10.0.0.1"}, {"forwarded": "for=1"}, {"origin": "http://evil.test"}]:
        answer = Client(headers={**LOCAL, **header}).get("/admin/")
        assert answer.status_code == 302


@pytest.mark.parametrize("url", ["https://evil.test/", "//evil.test", "javascript:alert(1)"])
def test_a_login_with_a_refused_next_leads_to_the_first_page(team: Ids, settings: Any, url: str) -> None:
    settings.NEXUS_TRUSTS_LOCAL = False
    User.objects.create_superuser("ada", password="correct horse")
    form = {"username": "ada", "password": "correct horse", "next": url}
    answer = Client(headers=LOCAL).post(f"/admin/login/?next={url}", form, follow=True)
    assert (answer.redirect_chain, answer.status_code) == ([("/admin/", 302)], 200)


def test_it_opens_to_an_operator_who_logs_in(team: Ids, settings: Any) -> None:
    settings.NEXUS_TRUSTS_LOCAL = False
    User.objects.create_superuser("ada", password="correct horse")
    browser = Client(headers=LOCAL)
    browser.login(username="ada", password="correct horse")
    assert browser.get("/admin/").status_code == 200
    browser.post("/admin/act/", {"do": f"handoff_withdraw {team['open']}", "asked": "1"})
    assert Event.objects.filter(type="handoff.cancelled").get().payload["operator"] == "ada"


def test_it_leaves_no_session_behind_for_a_local_operator(team: Ids, browser: Client) -> None:
    browser.get("/admin/")
    assert settings.SESSION_COOKIE_NAME not in browser.cookies


def test_it_refuses_a_post_without_the_forms_token(team: Ids) -> None:
    strict = Client(headers=LOCAL, enforce_csrf_checks=True)
    assert strict.post("/admin/act/", {"do": f"handoff_withdraw {team['open']}", "asked": "1"}).status_code == 403
    assert strict.post("/admin/retention/reset/", {"confirm": "reset"}).status_code == 403


def test_it_sends_a_policy_that_allows_nothing_from_elsewhere_and_no_inline_script(team: Ids, browser: Client) -> None:
    answer = browser.get("/admin/")
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self' 'unsafe-eval'"
    assert not any("http" in value or "*" in value for value in policy.values())


GROWING = [
    *(
        "/admin/",
        "/admin/attention/",
        "/admin/graph/",
        "/admin/board/",
        "/admin/inbox/message/",
        "/admin/coordination/agent/",
        "/admin/coordination/event/",
        "/admin/speak/",
    ),
    *("/admin/find/?q=planner", "/admin/agents/planner/", "/admin/inbox/message/?agent=planner"),
    *("/admin/coordination/session/", "/admin/coordination/event/", "/admin/coordination/artifact/"),
    *("/admin/inbox/message/", "/admin/inbox/delivery/", "/admin/handoffs/handoff/"),
]


def test_it_asks_no_more_queries_of_more_rows(team: Ids, browser: Client) -> None:
    more(team, 3)  # of every kind of thing that the newest events name: each kind's names are one query
    few = {page: queries(partial(browser.get, page)) for page in GROWING}
    more(team, 12)
    for page in GROWING:
        kinds = page == "/admin/agents/planner/"  # of things that its newest events name there is one more by now
        assert queries(partial(browser.get, page)) <= few[page] + kinds, page


def more(team: Ids, times: int) -> None:
    """More of everything."""
    place = {"project_root": team["root"]}
    for i in range(times):
        do("agent_register", agent_id=f"more-{i}", role=f"role {i}", capabilities=[f"skill {i}"])
        do("session_open", agent_id=f"more-{i}", workspace_id=team["workspace"])
        do("message_create", **place, from_agent_id=f"more-{i}", subject="more", body="more")
        do("message_create", **place, from_agent_id="planner", subject="more", body="more",
           target={"strategy": "direct", "agent_id": f"more-{i}"})  # fmt: skip
        target = {"strategy": "direct", "agent_id": f"more-{i}"}
        do("handoff_create", **place, from_agent_id="planner", visibility="public", target=target)
        do("artifact_put", **place, artifact_type="text", name=f"more {i}", content="more")


def test_it_lets_nobody_change_history(team: Ids, browser: Client) -> None:
    for model in ["coordination/event", "inbox/message", "inbox/delivery", "handoffs/handoff", "coordination/session"]:
        app, _, name = model.partition("/")
        from django.apps import apps

        row = apps.get_model(app, name).objects.first()
        assert browser.post(f"/admin/{model}/add/", {}).status_code == 403
        assert browser.post(f"/admin/{model}/{row.pk}/change/", {"subject": "forged"}).status_code == 403
        assert browser.post(f"/admin/{model}/{row.pk}/delete/", {"post": "yes"}).status_code == 403


def test_it_shows_a_new_agents_key_once_and_in_every_clients_form(db: None, browser: Client) -> None:
    made = browser.post(
        "/admin/coordination/agent/add/", {"agent_id": "scout", "capabilities": "maps, roads", "metadata": '{"a": 1}'}
    )
    text = made.content.decode()
    key = re.search(r"nxs_[0-9a-f]{48}", text)
    assert key and made.headers["Cache-Control"].startswith("max-age=0")
    for client in (known.title for known in CLIENTS.values()):
        assert client.lower() in text.lower()
    assert key[0] not in browser.get("/admin/agents/scout/").content.decode()
    assert do("agent_get", agent_id="scout")["capabilities"] == ["maps", "roads"]


def test_it_deactivates_and_deletes_an_agent(db: None, browser: Client) -> None:
    browser.post("/admin/coordination/agent/add/", {"agent_id": "scout"})
    page = act(browser, do="agent_key_set_active:off scout", next="/admin/agents/scout/")
    assert "deactivated" in page and 'value="agent_key_set_active:on scout"' in page
    assert "active, issued" in act(browser, do="agent_key_set_active:on scout", next="/admin/agents/scout/")
    assert "agent_delete" in act(browser, do="agent_delete scout"), "it is asked for once more"
    assert ">deleted<" in act(browser, do="agent_delete scout", asked="1", next="/admin/agents/scout/")
    assert do("agent_list")["agents"] == []


def test_it_shows_the_key_that_it_issues_to_one_agent_alone(team: Ids, browser: Client) -> None:
    assert "nxs_" not in act(browser, do="agent_key_issue planner")
    assert re.search("nxs_[0-9a-f]{48}", act(browser, do="agent_key_issue planner", asked="1"))
    page = shown(browser.post("/admin/act/", {"do": "agent_key_issue", "on": ["planner", "archivist"], "asked": "1"}))
    assert "nxs_" not in page


def letter(team: Ids, **more: str) -> dict[str, str]:
    """The form of Compose, filled."""
    form = {"what": "message", "strategy": "direct", "subject": "Hi", "body": "*you*"}
    return {"workspace": team["workspace"], **form, **more}


def test_it_sends_what_an_operator_writes_into_the_inbox(team: Ids, browser: Client) -> None:
    sent = browser.post("/admin/speak/", letter(team, to="builder-2"))
    assert sent.status_code == 302 and "/admin/inbox/message/msg_" in sent.headers["Location"]
    assert do("inbox_peek", agent_id="builder-2")["messages"][-1]["from_agent_id"] == "operator"


@pytest.mark.parametrize("what", ["message", "handoff"])
def test_it_sends_a_form_once_that_is_sent_twice(team: Ids, browser: Client, what: str) -> None:
    shown = filled(browser.get("/admin/speak/").text)["form"]
    form = letter(team, what=what, to="builder-2", payload="dig", form=shown)
    sent = [browser.post("/admin/speak/", each).headers["Location"] for each in (form, form)]
    assert "there is no second one" in browser.get(sent[0]).text
    again = browser.post("/admin/speak/", {**form, "subject": "Ho", "title": "Ho"}).headers["Location"]
    another = browser.post("/admin/speak/", {**form, "form": filled(browser.get("/admin/speak/").text)["form"]})
    assert sent[0] == sent[1] and len({*sent, again, another.headers["Location"]}) == 3


def test_it_answers_a_message_in_its_thread(team: Ids, browser: Client) -> None:
    browser.post("/admin/speak/", letter(team, to="builder-1", reply=team["reply"], subject="Re: Plan"))
    opened = browser.get(f"/admin/inbox/message/{team['reply']}/change/").content.decode()
    assert "Re: Plan" in opened.split(" Thread ")[-1] and "this message" in opened


def test_it_keeps_what_was_typed_when_sending_fails(team: Ids, browser: Client) -> None:
    answer = browser.post("/admin/speak/", letter(team, to="nobody", body="kept text"))
    assert "kept text" in answer.content.decode() and "NOT_FOUND" in answer.content.decode()


def test_it_exports_exactly_what_is_filtered(team: Ids, browser: Client) -> None:
    answer = browser.get("/admin/coordination/event/?type=handoff.created&export=ndjson")
    lines = streamed(answer).splitlines()
    assert len(lines) == Event.objects.filter(type="handoff.created").count()
    table = browser.get("/admin/coordination/event/?type=handoff.created&export=csv")
    assert len(streamed(table).splitlines()) == len(lines) + 1


def test_it_exports_what_words_find_with_the_other_filters(team: Ids, browser: Client) -> None:
    answer = browser.get("/admin/coordination/event/?q=decisions&type=artifact.created&export=ndjson")
    assert streamed(answer).count("\n") == 1


def test_it_closes_a_session(team: Ids, browser: Client) -> None:
    session = Session.objects.get(agent_id="planner")
    assert f"session_close {session.pk}" in browser.get(f"/admin/coordination/session/{session.pk}/change/").text
    act(browser, do=f"session_close {session.pk}")
    session.refresh_from_db()
    assert session.status == "closed"
    assert Event.objects.latest("event_id").payload["operator"] == "local"


def test_it_finds_reserved_files_by_path_reason_and_agent(team: Ids, browser: Client) -> None:
    for words in ("grammar.py", "file of their own", "BUILDER-1"):
        page = browser.get(f"/admin/files/reservation/?q={words}").text
        assert "src/grammar.py" in page and "docs/</" not in page, words


def test_it_lists_sends_that_reached_nobody(team: Ids, browser: Client) -> None:
    for path in ("/admin/inbox/message/?status=nobody", "/admin/inbox/message/?agent=reviewer&status=nobody"):
        page = browser.get(path).text
        assert "Is there a translator?" in page and "Keep the minutes" not in page, path


def test_home_tells_which_agent_is_offline_with_unread_mail(team: Ids, browser: Client) -> None:
    page = browser.get("/admin/").text
    assert "archivist is offline with unread mail" in page and "Nobody may take it" in page


def test_it_finds_who_cites_an_artifact(team: Ids, browser: Client) -> None:
    cites = {"project_root": team["root"], "from_agent_id": "planner", "subject": "See", "body": "the file"}
    do("message_create", **cites, artifacts=[team["artifact"]])
    found = browser.get(f"/admin/find/?q={team['artifact']}").content.decode()
    assert "planner: the file" in found


def test_it_writes_no_formula_into_a_csv(team: Ids, browser: Client) -> None:
    do("agent_register", agent_id="=cmd()")
    do("session_open", agent_id="=cmd()", workspace_id=team["workspace"])
    table = browser.get("/admin/coordination/event/?export=csv")
    assert ",=cmd()" not in streamed(table)


def test_it_stores_a_setting_and_shows_why_one_is_refused(committed: None, browser: Client, settings: Any) -> None:
    browser.post("/admin/settings/", {"handoff_lease_ttl_seconds": "120"})
    assert settings.NEXUS.handoff_lease_ttl_seconds == 120
    refused = browser.post("/admin/settings/", {"handoff_lease_ttl_seconds": "0"}).content.decode()
    assert re.findall(r'<input[^>]*name="(\w+)"[^>]* autofocus', refused) == ["handoff_lease_ttl_seconds"]
    assert "use a number of 1 or more" in refused and 'aria-invalid="true"' in refused
    for text in ("+-5", "--5", "-", "9" * 5000, "1.5"):
        assert 'aria-invalid="true"' in browser.post("/admin/settings/", {"handoff_lease_ttl_seconds": text}).text
    browser.post("/admin/settings/", {"default": "handoff_lease_ttl_seconds"})
    assert settings.NEXUS.handoff_lease_ttl_seconds == 300


def test_it_stores_a_setting_that_is_a_text_and_asks_for_none(committed: None, browser: Client, settings: Any) -> None:
    field = re.search(r"<input[^>]*embedding_model[^>]*>", browser.get("/admin/settings/?q=embedding").text)
    assert field and 'type="text"' in field[0] and "required" not in field[0]
    browser.post("/admin/settings/", {"embedding_model": "a-model", "handoff_lease_ttl_seconds": "300"})
    assert settings.NEXUS.embedding_model == "a-model"
    browser.post("/admin/settings/", {"embedding_model": "", "initial-embedding_model": "a-model"})
    assert settings.NEXUS.embedding_model == ""


def filled(page: str) -> dict[str, str]:
    """What the inputs of a page hold, as a browser sends them."""
    found = re.findall(r'<input[^>]* name="([^"]+)" value="([^"]*)"', page)
    return {name: unescape(value) for name, value in found}


def test_it_leaves_alone_what_another_set_while_the_settings_were_open(
    committed: None, browser: Client, settings: Any
) -> None:
    shown = filled(browser.get("/admin/settings/?q=_").text)
    browser.post("/admin/settings/", {"limit_recipients": "7"})
    said = browser.post("/admin/settings/", {**shown, "handoff_lease_ttl_seconds": "120"}, follow=True).text
    assert "Stored: handoff_lease_ttl_seconds." in said
    assert (settings.NEXUS.handoff_lease_ttl_seconds, settings.NEXUS.limit_recipients) == (120, 7)


def test_it_takes_what_is_no_number_in_a_query_for_none(team: Ids, browser: Client) -> None:
    for number in ["9" * 5000, "²", "-1", "+1", "x", "9" * 19]:
        assert (
            browser.get(f"/admin/coordination/event/?agent=planner&event_id__lt={number}", follow=True).status_code
            == 200
        )


def test_it_leads_back_to_the_form_who_comes_without_one(team: Ids, browser: Client) -> None:
    """As the login does whom it interrupted in sending it."""
    for form, page in (("retention/reset", "retention"),):
        assert browser.get(f"/admin/{form}/").headers["Location"] == f"/admin/{page}/"


def test_it_says_why_it_takes_no_form_of_before_the_login(team: Ids) -> None:
    answer = Client(headers=LOCAL, enforce_csrf_checks=True).post("/admin/speak/", {"subject": "s"})
    assert answer.status_code == 403
    assert "Nothing was changed" in answer.text and 'href="/admin/"' in answer.text


def test_it_resets_only_when_the_word_is_typed(committed: None, team: Ids, browser: Client) -> None:
    browser.post("/admin/retention/reset/", {"confirm": "rest", "keep_agents": "on"})
    assert Event.objects.count() > 1
    last = Event.objects.latest("event_id").event_id
    browser.post("/admin/retention/reset/", {"confirm": "reset", "keep_agents": "on"})
    event = Event.objects.get()
    assert event.type == "database.reset" and event.event_id > last
    assert len(do("agent_list")["agents"]) == len(scene.TEAM)
    assert do("workspace_resolve", project_root=team["root"])


def test_it_gives_an_inline_artifact_as_a_download_and_never_a_files_bytes(team: Ids, browser: Client) -> None:
    Path(team["root"], "secret.txt").write_text("do not show")
    by_path = do("artifact_put", project_root=team["root"], artifact_type="file", path="secret.txt")["artifact_id"]
    inline = browser.get(f"/admin/coordination/artifact/{team['artifact']}/download/")
    assert inline.content == b"# Decisions\n\n1. Split" and "attachment" in inline.headers["Content-Disposition"]
    assert browser.get(f"/admin/coordination/artifact/{by_path}/download/").status_code == 404
    page = browser.get(f"/admin/coordination/artifact/{by_path}/change/").content.decode()
    assert "secret.txt" in page and "do not show" not in page


def test_it_offers_to_mark_as_read_what_the_operator_has_not_read(team: Ids, browser: Client) -> None:
    browser.post("/admin/speak/", letter(team, to="builder-1"))
    answer = {"project_root": team["root"], "from_agent_id": "builder-1", "subject": "Yes", "body": "done"}
    sent = do("message_create", **answer, target={"strategy": "direct", "agent_id": "operator"})["message_id"]
    page = f"/admin/inbox/message/{sent}/change/"
    assert f'value="inbox_ack {sent}"' in browser.get(page).text
    assert (
        "was marked as read" in browser.post("/admin/act/", {"do": f"inbox_ack {sent}", "next": page}, follow=True).text
    )
    assert 'value="inbox_ack' not in browser.get(page).text
    assert 'value="inbox_ack' not in browser.get(f"/admin/inbox/message/{team['message']}/change/").text


def test_it_counts_all_that_needs_a_person_and_leads_to_all_of_it(team: Ids, browser: Client) -> None:
    rust = {"strategy": "capability", "capability": "rust"}
    offer = {"project_root": team["root"], "from_agent_id": "planner", "target": rust, "visibility": "public"}
    orphans = [team["orphan"], *(do("handoff_create", **offer)["handoff_id"] for _ in range(11))]
    for i in range(7):
        do("agent_register", agent_id=f"away-{i}")
        to = {"strategy": "direct", "agent_id": f"away-{i}"}
        do("message_create", project_root=team["root"], from_agent_id="planner", subject="?", body="?", target=to)
    with time_machine.travel(now() + timedelta(days=1), tick=False):
        home, everything = browser.get("/admin/").text, browser.get("/admin/attention/").text
    shown = [f"/admin/handoffs/handoff/{orphan}/change/" in home for orphan in orphans]
    assert sum(shown[:3]) == 3 and "/admin/attention/#orphans" in home and "All 12" in home
    assert "/admin/attention/#silent" in home and "All 12" in home
    assert all(f"/admin/handoffs/handoff/{orphan}/change/" in everything for orphan in orphans)
    assert all(f"/admin/agents/away-{i}/" in everything for i in range(7))
    assert 'id="orphans"' in everything and "All 12" not in everything


def test_it_keeps_the_toolsets_that_are_chosen_for_an_agent(team: Ids, browser: Client) -> None:
    def choose(text: str) -> str:
        form = {**filled(browser.get(PROFILE).text), "role": "lead", "toolsets": text, "asked": "1"}
        return browser.post("/admin/act/", {**form, "do": "agent_update planner"}, follow=True).content.decode()

    def chosen() -> Any:
        return Agent.objects.get(pk="planner").toolsets

    assert 'placeholder="coordination"' in browser.get(PROFILE).text
    choose(" coordination ,")
    assert 'value="coordination"' in browser.get(PROFILE).text and chosen() == ["coordination"]
    assert "No such toolset: &#x27;bogus&#x27;; there are coordination" in choose("bogus")
    assert chosen() == ["coordination"]
    choose("")
    assert chosen() is None


async def test_it_makes_an_export_while_it_is_taken_and_no_further(
    committed: None, project: str, browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def speak() -> None:
        place = do("workspace_resolve", project_root=project)["workspace_id"]
        moment = datetime.now(UTC)
        Event.objects.bulk_create(
            Event(workspace_id=place, stream="workspace", type="test.made", created_at=moment) for _ in range(100)
        )

    made: list[Event] = []

    def counted(row: Event) -> EventRow:
        made.append(row)
        return event_row(row)

    monkeypatch.setattr(records, "AT_ONCE", 5)
    monkeypatch.setattr("coordination.admin.event_row", counted)
    await sync_to_async(speak)()
    for kind in ("csv", "ndjson"):
        made.clear()
        answer = await sync_to_async(browser.get)(f"/admin/coordination/event/?export={kind}")
        assert isinstance(answer, StreamingHttpResponse)
        pieces: Any = aiter(answer)
        assert await anext(pieces)
        assert len(made) <= 10, "the rest is made when it is asked for"


def test_it_lists_an_agents_handoffs_however_many_older_ones_others_have(team: Ids, browser: Client) -> None:
    model = Handoff.objects.get(pk=team["claimed"])
    Handoff.objects.bulk_create(
        Handoff(
            handoff_id=f"hnd_{number}", workspace=model.workspace, from_agent_id="other", title="Other work",
            target=model.target, visibility="public", created_event_id=-number, created_at=model.created_at,
            updated_at=model.created_at,
        )
        for number in range(1, 502)
    )  # fmt: skip
    page = browser.get(f"/admin/agents/{model.claimed_by}/").content.decode()
    assert page.count(f'href="/admin/handoffs/handoff/{model.pk}/change/"') >= 2  # it works on it, and owes it


def test_it_lists_agents_a_page_at_a_time(team: Ids, browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    names = sorted(Agent.objects.values_list("pk", flat=True))
    monkeypatch.setattr(AgentAdmin, "list_per_page", 2)

    def listed(query: str) -> list[str]:
        text = browser.get(f"/admin/coordination/agent/{query}").content.decode()
        return re.findall(r'href="/admin/agents/([^/"]+)/"', text.split('id="result_list"')[1])

    assert listed("") == names[:2]
    assert listed(f"?p={-(-len(names) // 2)}") == names[(len(names) - 1) // 2 * 2 :]
    assert listed(f"?q={names[2]}") == [names[2]]
    do("agent_register", agent_id="a-scout", capabilities=["map reading"])
    assert listed("?q=MAP+reading") == ["a-scout"] and "a-scout" not in listed(f"?workspace={team['workspace']}")


def test_it_looks_at_the_agents_of_a_page_alone(team: Ids, browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    names = sorted(Agent.objects.values_list("pk", flat=True))
    monkeypatch.setattr(AgentAdmin, "list_per_page", 1)
    states, inboxes = Mock(wraps=presence.states_of), Mock(wraps=monitoring.inboxes)
    monkeypatch.setattr(presence, "states_of", states)
    monkeypatch.setattr(monitoring, "inboxes", inboxes)
    monkeypatch.setattr(presence, "agent_states", pytest.fail)

    browser.get("/admin/coordination/agent/?p=2")

    assert [row.pk for row in states.call_args.args[0]] == names[1:2]
    assert inboxes.call_args.args[1] == names[1:2]
