"""What people type into the dashboard: its shape, its line ends, and where it is told what is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.core.exceptions import ValidationError
from django.test import Client
from hypothesis import example, given
from hypothesis import strategies as st

from coordination.forms import ProfileForm
from coordination.log.sentences import lines
from coordination.models import Agent, AgentLimits, Event
from coordination.routing import capability_set
from coordination.toolset import run
from handoffs.models import Handoff
from nexus.core.config import TABLE
from nexus.core.operations.caller import Caller
from nexus.web.forms import LinesField, NumberField
from tests.browser import scene
from tests.conftest import does
from tests.dashboard.test_dashboard import filled, letter
from tests.pages import Ids, do


@pytest.fixture
def team(db: None, tmp_path: Path) -> Ids:
    """A small team at work."""
    return {**scene.play(do, tmp_path), "root": str(tmp_path)}


NEW, ACT = "/admin/coordination/agent/add/", "/admin/act/"
PROFILE = f"{ACT}?do=agent_update&on=planner"


def change(browser: Client, profile: dict[str, str]) -> Any:
    """Submit the form of an agent's profile."""
    return browser.post(ACT, {**profile, "do": "agent_update planner", "asked": "1"})


def told(page: Any) -> dict[str, str]:
    """What a page says is wrong, by field."""
    found = re.findall(r'<p class="nx-wrong" id="(?:id_|set-)(\w+?)_error" role="alert">(.*?)</p>', page.text, re.S)
    return {field: said.strip() for field, said in found}


def work(team: Ids, **more: str) -> dict[str, str]:
    """The form of Compose, filled with a handoff."""
    return letter(team, what="handoff", to="builder-2", visibility="public", **more)


def test_it_stores_lines_as_everybody_else_ends_them(team: Ids, browser: Client) -> None:
    browser.post("/admin/speak/", letter(team, to="builder-2", body="- one\r\n- two\rthree\n"))
    assert do("inbox_peek", agent_id="builder-2")["messages"][-1]["body"] == "- one\n- two\nthree\n"
    browser.post("/admin/speak/", work(team, payload="dig\r\n\r\nfill"))
    assert Handoff.objects.latest("created_event_id").payload == "dig\n\nfill"
    shown = browser.get("/admin/inbox/message/?agent=operator").text
    assert "U+000D" not in shown


def test_it_gives_a_handoff_a_title_that_its_page_shows_as_text(team: Ids, browser: Client) -> None:
    browser.post("/admin/speak/", work(team, title="Fix <b>it</b>", payload="dig"))
    handoff = Handoff.objects.latest("created_event_id")
    assert handoff.title == "Fix <b>it</b>"
    page = browser.get(f"/admin/handoffs/handoff/{handoff.pk}/change/").text
    assert "Fix &lt;b&gt;it&lt;/b&gt;" in page and "Fix <b>" not in page
    browser.post("/admin/speak/", work(team, payload="dig\ndeeper"))
    assert Handoff.objects.latest("created_event_id").title == "dig"


@given(st.text(st.sampled_from("a\r\n ")))
def test_it_keeps_every_line_of_a_text(text: str) -> None:
    kept = LinesField(required=False).clean(text)
    assert "\r" not in kept and kept.split("\n") == re.split("\r\n|\r|\n", text)


@given(st.text(), st.integers(0, 2**63 - 1))
def test_it_reads_numbers_in_ascii_digits_alone(text: str, number: int) -> None:
    field = NumberField(required=False)
    assert field.clean(f" {number:025} ") == number
    try:
        read = field.clean(text)
    except ValidationError:
        return
    assert not text.strip() if read is None else re.fullmatch("[0-9]+", text.strip())


@pytest.mark.django_db
@example("NaN")
@given(st.one_of(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps)))
def test_it_takes_metadata_that_is_json_and_says_of_other_that_it_is_none(text: str) -> None:
    form = ProfileForm({"metadata": text})
    if form.is_valid() and text.strip():
        assert form.cleaned_data["metadata"] == json.loads(text)
    assert form.is_valid() or list(form.errors) == ["metadata"]


def test_it_says_at_the_field_that_metadata_is_no_json(team: Ids, browser: Client) -> None:
    for text in ["{a: 1}", "[" * 100_000, "{", "nul", "NaN", "[-Infinity]"]:
        for path, more in ((NEW, {"agent_id": "scout"}), (ACT, {"do": "agent_update planner", "asked": "1"})):
            answer = browser.post(path, {**more, "role": "guide", "metadata": text})
            assert told(answer).keys() == {"metadata"} and "no JSON" in told(answer)["metadata"]
            assert 'value="guide"' in answer.text
        assert not Agent.everyone.filter(pk="scout").exists()
        assert Agent.objects.get(pk="planner").metadata is None


def test_it_brings_what_an_operation_refuses_back_to_its_field(team: Ids, browser: Client) -> None:
    before = Handoff.objects.count()
    limits = {"do": "limits_update:agent planner", "asked": "1"}
    for path, form, field in (
        (NEW, {"agent_id": "x" * 300}, "agent_id"),
        (NEW, {}, "agent_id"),
        (ACT, {"do": "agent_update planner", "asked": "1", "role": "x" * 300}, "role"),
        ("/admin/speak/", letter(team, to="nobody"), "to"),
        ("/admin/speak/", letter(team), "to"),
        ("/admin/speak/", letter(team, strategy="role"), "role"),
        ("/admin/speak/", letter(team, to="planner", subject=" "), "subject"),
        ("/admin/speak/", {**letter(team, to="planner"), "workspace": "x"}, "workspace"),
        ("/admin/speak/", work(team, payload=""), "payload"),
        ("/admin/speak/", work(team, payload=" \r\n "), "payload"),
        ("/admin/settings/", {"poll_interval_ms": "x"}, "poll_interval_ms"),
        ("/admin/retention/reset/", {"confirm": "rest"}, "confirm"),
        ("/admin/coordination/agentlimits/add/", {"unread": "4"}, "role"),
        ("/admin/coordination/agentlimits/add/", {"role": "worker", "refused": "<b>nothing"}, "refused"),
        (ACT, {**limits, "unread": "many"}, "unread"),
        (ACT, {**limits, "recipients": "9999999"}, "recipients"),
        (ACT, {**limits, "refused": "<b>nothing"}, "refused"),
    ):
        assert told(browser.post(path, form)).keys() == {field}, (path, form)
    assert Handoff.objects.count() == before and not AgentLimits.objects.exists()


LONG = "x" * 70_000
TO = {"to": "planner"}


def wrongs(team: Ids) -> list[tuple[str, dict[str, str]]]:
    """Every form, filled with what its operation refuses."""
    profile, cancel = {"do": "agent_update planner", "asked": "1"}, {"do": "handoff_withdraw", "asked": "1"}
    return [
        ("/admin/speak/", letter(team, **TO, body=LONG)),
        ("/admin/speak/", letter(team, **TO, subject=LONG)),
        ("/admin/speak/", letter(team, **TO, subject=" ")),
        ("/admin/speak/", letter(team, to=LONG)),
        ("/admin/speak/", letter(team, to="nobody")),
        ("/admin/speak/", letter(team, strategy="role", role=LONG)),
        ("/admin/speak/", letter(team, strategy="capability", capability=" ")),
        ("/admin/speak/", letter(team, **TO, reply="msg_none")),
        ("/admin/speak/", letter(team, **TO, reply=LONG)),
        ("/admin/speak/", work(team, payload=LONG)),
        (NEW, {"agent_id": LONG}),
        (NEW, {"agent_id": "planner"}),
        (NEW, {"agent_id": "scout", "metadata": json.dumps(LONG)}),
        (NEW, {"agent_id": "scout", "capabilities": ",".join("ab" * 400)}),
        (NEW, {"agent_id": "scout", "capabilities": LONG}),
        (NEW, {"agent_id": "scout", "toolsets": "bogus"}),
        (ACT, {**profile, "role": LONG}),
        (ACT, {**profile, "metadata": json.dumps({"a": LONG})}),
        (ACT, {**profile, "metadata": "[" * 65 + "]" * 65}),
        (ACT, {**profile, "toolsets": "bogus"}),
        (ACT, {"do": "agent_key_set_active:on archivist"}),
        (ACT, {"do": "session_close ses_none"}),
        (ACT, {"do": "agent_delete nobody", "asked": "1"}),
        ("/admin/act/", {**cancel, "on": team["open"], "reason": LONG}),
        ("/admin/act/", {**cancel, "on": team["orphan"]}),
        ("/admin/act/", {**cancel, "on": team["orphan"]}),
        ("/admin/hooks/webhook/add/", {"url": LONG}),
        ("/admin/hooks/webhook/add/", {"url": "http://127.0.0.1/"}),
        ("/admin/hooks/webhook/add/", {"url": "ftp://example.com"}),
        ("/admin/act/", {"do": "webhook_remove whk_none", "asked": "1"}),
        ("/admin/act/", {"do": "webhook_redeliver whk_none"}),
        ("/admin/settings/", {"poll_interval_ms": "0"}),
        ("/admin/settings/", {"default": "bogus"}),
        ("/admin/retention/reset/", {"confirm": "rest"}),
    ]


def test_it_sends_nobody_to_a_verb_that_people_do_not_have(team: Ids, browser: Client) -> None:
    known = TABLE.keys() | {"msg_none", "ses_none", "whk_none"}
    assert "let an agent register it" in told(browser.post(*wrongs(team)[0]))["body"]
    for path, form in wrongs(team):
        page = browser.post(path, form, follow=True)
        said = " ".join([*told(page).values(), *map(str, get_messages(page.wsgi_request))])
        names = set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", said))
        assert names <= known, (path, said)


def test_it_takes_a_profile_back(team: Ids, browser: Client) -> None:
    change(browser, {"role": "guide", "capabilities": "maps", "metadata": '{"a": 1}'})
    change(browser, {**filled(browser.get(PROFILE).text), "role": "", "capabilities": "", "metadata": ""})
    planner = Agent.objects.get(pk="planner")
    assert (planner.role, planner.metadata) == (None, None) and not planner.capabilities


def test_it_leaves_alone_what_an_agent_said_of_itself_while_its_page_was_open(team: Ids, browser: Client) -> None:
    do("agent_register", agent_id="planner", role="guide", capabilities=["maps"], metadata={"a": 1})
    shown = {"metadata": '{"a": 1}', **filled(browser.get(PROFILE).text)}
    do("agent_register", agent_id="planner", role="lead", capabilities=["maps", "tents"], metadata={"a": 2})
    change(browser, {**shown, "toolsets": "coordination"})
    planner = Agent.objects.get(pk="planner")
    assert (planner.role, planner.metadata, planner.toolsets) == ("lead", {"a": 2}, ["coordination"])
    assert capability_set(planner.capabilities) == {"maps", "tents"}


def set_limits(**given: Any) -> None:
    assert run(Caller(transport="test", operator="olga"), "limits_update", given)["ok"]


@pytest.mark.parametrize("whose", [{"agent_id": "planner"}, {"role": "worker"}])
def test_it_leaves_alone_limits_that_another_set_meanwhile(team: Ids, browser: Client, whose: dict[str, str]) -> None:
    page, more = f"{ACT}?do=limits_update:agent&on=planner", {"do": "limits_update:agent planner", "asked": "1"}
    if "role" in whose:
        page, more = "/admin/coordination/agentlimits/add/?role=worker", {}
    set_limits(**whose, limits={"unread": 9}, refused=["topics"])
    shown = filled(browser.get(page).text)
    set_limits(**whose, limits={"unread": 5, "recipients": 3}, refused=["topics", "files"])
    sent = {**shown, **more, "messages_per_minute": "4"}
    assert browser.post(ACT if more else page, sent).status_code == 302
    kept = AgentLimits.objects.get()
    assert kept.values == {"unread": 5, "recipients": 3, "messages_per_minute": 4}
    assert kept.refused == ["topics", "files"]


def test_it_gives_a_role_the_limits_that_are_shown_of_another(team: Ids, browser: Client) -> None:
    set_limits(role="worker", limits={"unread": 9}, refused=["topics"])
    shown = filled(browser.get("/admin/coordination/agentlimits/add/?role=worker").text)
    browser.post("/admin/coordination/agentlimits/add/?role=worker", {**shown, "role": "lead"})
    of_lead = AgentLimits.objects.get(name="lead")
    assert (of_lead.values, of_lead.refused) == ({"unread": 9}, ["topics"])


def test_it_says_which_filter_of_a_page_is_malformed(team: Ids, browser: Client) -> None:
    assert told(browser.get("/admin/board/?workspace=x")).keys() == {"workspace"}


def test_it_sets_an_agents_limits_and_takes_them_back(team: Ids, browser: Client) -> None:
    page, more = f"{ACT}?do=limits_update:agent&on=planner", {"do": "limits_update:agent planner", "asked": "1"}
    limits = {**more, "messages_per_minute": "30", "unread": "", "recipients": "0", "refused": "topics, handoff_create"}
    assert browser.post(ACT, limits).status_code == 302
    kept = AgentLimits.objects.get()
    assert (kept.scope, kept.name, kept.values) == ("agent", "planner", {"messages_per_minute": 30, "recipients": 0})
    assert (kept.allowed, kept.refused, kept.updated_by) == (None, ["topics", "handoff_create"], "local")
    shown = browser.get(page).text
    assert 'value="30"' in shown and 'value="topics, handoff_create"' in shown
    assert "Messages a minute: 30, Recipients of a message: no limit" in browser.get("/admin/agents/planner/").text

    emptied = {**more, "messages_per_minute": "", "recipients": "", "refused": ""}
    browser.post(ACT, {**filled(shown), **emptied})
    assert not AgentLimits.objects.exists()


def test_it_shows_in_an_agents_empty_fields_what_its_role_and_all_are_held_to(
    team: Ids, browser: Client, configure: Callable[..., None]
) -> None:
    configure(limit_recipients=9)
    role = Agent.objects.get(pk="builder-1").role
    browser.post(
        "/admin/coordination/agentlimits/add/",
        {"role": role, "unread": "40", "messages_per_minute": "0", "refused": "topics"},
    )
    page = browser.get(f"{ACT}?do=limits_update:agent&on=builder-1").text
    fields = {
        name: re.search(rf'<input[^>]*name="{name}"[^>]*>', page)
        for name in ("unread", "messages_per_minute", "recipients", "refused")
    }
    shown = {name: re.search('placeholder="([^"]*)"', tag[0] if tag else "") for name, tag in fields.items()}
    assert {name: found and found[1] for name, found in shown.items()} == {
        "unread": "40",
        "messages_per_minute": "no limit",
        "recipients": "9",
        "refused": "topics",
    }


def test_it_sets_a_roles_limits_and_takes_them_back(team: Ids, browser: Client) -> None:
    page = "/admin/coordination/agentlimits/add/"
    assert '<option value="worker">' in browser.get(page).text  # two agents have it
    limits = {"role": "worker", "unread": "40", "recipients": "0", "allowed": "coordination"}
    assert browser.post(page, limits).status_code == 302
    kept = AgentLimits.objects.get()
    assert (kept.scope, kept.name, kept.values) == ("role", "worker", {"unread": 40, "recipients": 0})
    assert (kept.allowed, kept.updated_by) == (["coordination"], "local")
    shown = browser.get(page, {"role": "worker"}).text
    assert 'value="40"' in shown and 'value="coordination"' in shown

    assert f"{page}?role=worker" in browser.get("/admin/coordination/agentlimits/").text
    browser.post("/admin/act/", {"do": "limits_update role worker", "asked": "1"})
    assert not AgentLimits.objects.exists()
    stored, taken_back = lines(
        list(Event.objects.filter(payload__role="worker", type="operator.acted").order_by("event_id"))
    )
    assert "".join(part.text for part in stored.parts) == "operator local used limits_update for the role worker"
    assert taken_back.event.payload["before"] == stored.event.payload["limits"]


def test_it_lists_and_takes_back_an_agents_limits_beside_those_of_roles(team: Ids, browser: Client) -> None:
    browser.post(ACT, {"do": "limits_update:agent planner", "asked": "1", "unread": "7"})
    row = AgentLimits.objects.get()
    assert "agent planner" in browser.get("/admin/coordination/agentlimits/").text
    assert (
        'value="limits_update agent planner"' in browser.get(f"/admin/coordination/agentlimits/{row.pk}/change/").text
    )
    browser.post("/admin/act/", {"do": "limits_update agent planner", "asked": "1"})
    assert not AgentLimits.objects.exists()


def test_the_settings_are_found_by_words_and_by_what_differs(db: None, browser: Client) -> None:
    def names(query: str) -> list[str]:
        page = browser.get(f"/admin/settings/?{query}").content.decode()
        return re.findall(r'class="nx-strong" for="set-(\w+)"', page)

    every = names("q=_")
    first = names("")
    assert first and len(first) < len(every) / 2 and names("group=MCP+connections") != first
    assert {"poll_interval_ms", "inbox_lease_ttl_seconds"} < set(every)
    assert names("q=pulled+deliveries") == ["inbox_lease_ttl_seconds"]
    assert names("q=no+such+thing") == []
    browser.post("/admin/settings/?q=pulled+deliveries", {"inbox_lease_ttl_seconds": "120"})
    assert "inbox_lease_ttl_seconds" in names("changed=on")
    assert len(names("changed=on")) < len(every) / 2
    page = browser.get("/admin/settings/?group=MCP+connections").text + browser.get("/admin/settings/").text
    assert re.search(r"<h2[^>]*>MCP connections</h2>", page)
    assert "environment." in page, "why a value is fixed"


def test_it_gives_an_agent_tags_of_the_catalog(team: Ids, browser: Client) -> None:
    for value in (None, "core", "web, and more"):
        assert does("tag_create", key="team", **({"value": value} if value else {}))["ok"]
    assert 'placeholder="team=core, team=web, and more"' in browser.get(PROFILE).text
    change(browser, {**filled(browser.get(PROFILE).text), "tags": "team=core"})
    assert Agent.objects.get(pk="planner").tags == {"team": ["core"]}
    shown = filled(browser.get(PROFILE).text)
    assert shown["tags"] == "team=core"
    for wrong, why in (("team", "Write each tag as key=value"), ("{", "Write each"), ("team=cor", "VALIDATION_ERROR")):
        assert why in change(browser, {**shown, "tags": wrong}).text
    assert does("agent_update", agent_id="planner", tags={"team": ["web, and more"]})["ok"]
    shown = filled(browser.get(PROFILE).text)
    change(browser, {**shown, "role": "guide"})
    planner = Agent.objects.get(pk="planner")
    assert (planner.role, planner.tags) == ("guide", {"team": ["web, and more"]})
    change(browser, {**filled(browser.get(PROFILE).text), "tags": ""})
    assert Agent.objects.get(pk="planner").tags is None
