"""Names, bodies and payloads that mean harm: nothing runs, nothing is loaded, no layout breaks."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser import scene
from tests.browser.conftest import Ids
from tests.browser.scene import Does

LENGTHS = [20_000, pytest.param(1_000_000, marks=pytest.mark.long)]  # characters of the longest word
NAMES = [
    "<script>window.pwned=1</script>",
    "\"><svg onload='window.pwned=2'>",
    "{{ constructor }} ${window.pwned=3}",
    "admin\u202egpj.exe",
    "a/../../b?c#d&e=f",
    "x" * 250,
]
BODY = """<script>window.pwned=4</script> <svg/onload=window.pwned=5>
<img src=x onerror="window.pwned=6"> [click](javascript:window.pwned=7) ![i](http://evil.test/p.png)
<div x-data x-init="window.pwned=8" hx-get="/admin/" hx-trigger="load">x</div> \u202etxet desrever
[data](data:text/html,<script>window.pwned=9</script>) <a href="//evil.test" ping="//evil.test">x</a>
"""


@pytest.fixture(scope="module", params=LENGTHS)
def harm(request: pytest.FixtureRequest, hub: object, team: Ids) -> Ids:
    """Everything hostile that an agent can write."""
    word = "w" * request.param
    do: Does = scene.over_rest(hub.url)  # type: ignore[attr-defined]
    do("settings_update", values={"max_inline_bytes": 4_000_000})
    place = {"project_root": team["root"]}
    do("workspace_resolve", **place, display_name=NAMES[5])
    for agent_id in NAMES:
        do("agent_register", agent_id=agent_id, role=agent_id, capabilities=[agent_id], metadata={agent_id: BODY})
        do("session_open", agent_id=agent_id, workspace_id=team["workspace"])
    letter = do("message_create", **place, from_agent_id=NAMES[0], subject=NAMES[1] + NAMES[3], body=BODY)
    long = do("message_create", **place, from_agent_id=NAMES[5], subject=word, body=word)
    target = {"strategy": "capability", "capability": NAMES[0]}
    handoff = do(
        "handoff_create", **place, from_agent_id=NAMES[1], target=target, visibility="public", payload=BODY + word
    )
    markdown = do("artifact_put", **place, artifact_type="markdown", name=NAMES[0], content=BODY)
    say = scene.topics_over_rest(hub.url)  # type: ignore[attr-defined]
    room = say("topic_create", name=NAMES[0] + "x" * 200, metadata={NAMES[1]: BODY})["topic_id"]
    say("topic_join", topic_id=room, agent_name=NAMES[1])
    said = [{"content_markdown": BODY, "message_type": "<u>" + "w" * 29}, {"content_markdown": word[:60_000]}]
    said = say("sync", topic_id=room, wait_seconds=0, outbox=said)["sent"]
    reserve = scene.over_rest(hub.url, "files/operations")  # type: ignore[attr-defined]
    paths = [f"./{name}" for name in NAMES if ".." not in name] + ["w" * 1000]
    held = reserve("files_reserve", **place, agent_id=NAMES[1], paths=paths, reason=BODY + word)["reservations"]
    target = {"strategy": "direct", "agent_id": NAMES[1]}
    stuck = do("handoff_create", **place, from_agent_id=NAMES[0], target=target, visibility="public", payload=BODY)
    stuck = {**place, "handoff_id": stuck["handoff_id"], "agent_id": NAMES[1]}
    do("handoff_claim", **stuck)
    do("handoff_block", **stuck, reason="w" * 300)
    planning = scene.over_rest(hub.url, "planning/operations")  # type: ignore[attr-defined]
    for title in ("W" * 200, "測" * 100, NAMES[0] + NAMES[3]):
        planning("task_add", **place, title=title, context=title, deps=[1], owner=title)
    plan = httpx.get(f"{hub.url}/admin/plan/?workspace={team['workspace']}").text  # type: ignore[attr-defined]
    harmful = {
        "reservation": held[0]["reservation_id"],
        "letter": letter["message_id"],
        "long": long["message_id"],
        "handoff": handoff["handoff_id"],
        "task": re.findall(r"/admin/planning/task/(\w+)/change/", plan)[-1],
    }
    told = said[0]["message"]["message_id"]
    return {**team, **harmful, "artifact": markdown["artifact_id"], "room": room, "told": told}


PAGES = [
    *(
        "/admin/",
        "/admin/graph/",
        "/admin/board/",
        "/admin/handoffs/handoff/{handoff}/change/",
        "/admin/inbox/message/",
        "/admin/inbox/message/{letter}/change/",
    ),
    *(
        "/admin/inbox/message/{long}/change/",
        "/admin/coordination/event/",
        "/admin/find/?q=window",
        "/admin/coordination/agent/",
        "/admin/speak/?reply={letter}",
    ),
    *("/admin/topics/topic/?q=window", "/admin/topics/{room}/", "/admin/topics/{room}/?q=window"),
    *(
        "/admin/files/reservation/",
        "/admin/files/reservation/{reservation}/change/",
        "/admin/files/reservation/?q=window",
    ),
    *("/admin/plan/?workspace={workspace}", "/admin/planning/task/{task}/change/", "/admin/plan/issues/{issue}/"),
    *("/admin/topics/{room}/delete/", "/admin/topics/+message/{told}/delete/"),
    *("/admin/coordination/session/", "/admin/coordination/artifact/{artifact}/change/", "/admin/inbox/message/"),
    *("/admin/inbox/message/{letter}/change/", "/admin/handoffs/handoff/", "/admin/coordination/workspace/"),
    "/admin/coordination/workspace/{workspace}/change/",
]


def test_it_runs_nothing_loads_nothing_and_keeps_its_shape(page: Page, harm: Ids) -> None:
    too_wide = []
    for path in PAGES:
        page.set_viewport_size({"width": 400, "height": 900})
        page.goto(path.format(**harm), wait_until="load")
        for width in (400, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            if page.evaluate("document.documentElement.scrollWidth") > width:
                too_wide.append((path, width))
        assert page.evaluate("window.pwned") is None, path
    assert too_wide == []


def test_it_opens_an_agent_whatever_its_name(page: Page, harm: Ids) -> None:
    for agent_id in NAMES:
        page.goto("/admin/coordination/agent/")
        page.locator("#result_list a[href*='/admin/agents/']").filter(has_text=agent_id[:4]).first.click()
        expect(page.get_by_role("heading", name="Profile")).to_be_visible()
        assert page.evaluate("window.pwned") is None


def test_it_finds_hostile_words_in_the_palette_as_text(page: Page, harm: Ids) -> None:
    page.goto("/admin/")
    page.keyboard.press("Control+k")
    expect(page.get_by_label("Search everything")).to_be_focused()
    page.keyboard.type("<script>window", delay=10)
    expect(page.locator("#command-results-list li").first).to_be_visible()
    assert page.evaluate("window.pwned") is None


def test_it_opens_hostile_mail_without_running_it(page: Page, harm: Ids) -> None:
    page.goto("/admin/inbox/message/")
    page.locator(f"#result_list a[href*='{harm['letter']}']").click()
    expect(page.locator(".nx-prose")).to_contain_text("pwned=4")
    assert page.evaluate("window.pwned") is None


@pytest.mark.parametrize(
    "path", ["/admin/coordination/agent/", "/admin/coordination/session/", "/admin/inbox/message/"]
)
def test_it_cuts_neither_names_nor_labels_on_a_narrow_screen(page: Page, harm: Ids, path: str) -> None:
    page.set_viewport_size({"width": 400, "height": 900})
    page.goto(path)
    cut = page.locator("tbody :is(th, td)").evaluate_all(
        "cells => cells.filter((cell) => cell.getBoundingClientRect().right > 400"
        " || cell.scrollHeight > cell.clientHeight + 1).map((cell) => cell.textContent.trim().slice(0, 40))"
    )
    assert cut == []


@pytest.mark.parametrize("path", ["/admin/inbox/message/", "/admin/handoffs/handoff/"])
def test_it_leaves_room_for_the_other_columns_beside_a_long_name(page: Page, harm: Ids, path: str) -> None:
    page.goto(path)
    expect(page.locator("#result_list thead th").last).to_be_in_viewport(ratio=1)


def test_it_leaves_room_in_the_roster_beside_a_long_reason(page: Page, harm: Ids) -> None:
    page.goto("/admin/")
    expect(page.get_by_role("columnheader", name="Last act")).to_be_in_viewport(ratio=1)
