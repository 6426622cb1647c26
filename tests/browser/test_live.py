"""Pages that follow what happens: they move, they pause, they come back, and they do not grow."""

from __future__ import annotations

import asyncio
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from nexus_site import demo
from tests.acceptance.hub import START_SECONDS, Hub, start
from tests.browser import scene
from tests.browser.conftest import Ids, live, watch
from tests.browser.scene import Does
from tests.conftest import Furnish
from tests.ports import free_port

SHOWN, POSTED = 50, 300  # events on the page; messages
AT_ONCE = 50  # messages in a call


def shown(page: Page) -> list[int]:
    """The ids of the events in the tail, newest first."""
    ids = page.locator("#result_list .field-number a").all_inner_texts()
    return [int(number) for number in ids]


def missed(page: Page) -> set[int]:
    """The ids of events that the tail should show and does not; what an operator did, other events tell."""
    ids = shown(page)
    lines = page.request.get("/admin/coordination/event/?export=ndjson").text().splitlines()
    told = {event["event_id"] for event in map(json.loads, lines) if event["type"] != "operator.acted"}
    return {event_id for event_id in told if ids[-1] <= event_id <= ids[0]} - {*ids}


def say(do: Does, root: str, subject: str) -> None:
    do("message_create", project_root=root, from_agent_id="planner", subject=subject, body="x")


@pytest.mark.long  # test_demo.py plays the demo, and the tests below move the pages
def test_it_moves_while_the_demo_plays_on_the_hub(page: Page, hub: Hub, tmp_path: Path) -> None:
    watch(page, "/admin/board/")
    with ThreadPoolExecutor(1) as beside:
        playing = beside.submit(asyncio.run, demo.play(hub.url, str(tmp_path), 3, 0.05))
        expect(page.get_by_role("region", name="Finished").locator("header .nx-badge")).to_have_text("3")
        playing.result()
    page.goto("/admin/")
    minutes = page.locator(".nx-bars title").filter(has_text=re.compile(r"^[1-9]\d* messages?, [01] min ago"))
    expect(minutes).not_to_have_count(0)  # the last minute's, or the one's before where it ended meanwhile


def test_it_updates_the_picture_without_a_reload(page: Page, team: Ids, do: Does) -> None:
    page.goto("/admin/")
    figure = page.get_by_role("link", name="Unread")
    before = int(figure.locator("strong").inner_text())
    page.evaluate("window.stayed = true")
    do("message_create", project_root=team["root"], from_agent_id="planner", subject="one more", body="x",
       target={"strategy": "direct", "agent_id": "reviewer"})  # fmt: skip
    expect(figure.locator("strong")).to_have_text(str(before + 1))
    assert page.evaluate("window.stayed")


def test_it_keeps_the_focus_while_it_updates(page: Page, team: Ids, do: Does) -> None:
    page.goto("/admin/board/")
    card = page.locator(f"#card-{team['open']}")
    card.focus()
    offer = {"project_root": team["root"], "from_agent_id": "planner", "visibility": "public"}
    do("handoff_create", **offer, target={"strategy": "role", "role": "fresh"}, payload="x")
    expect(page.get_by_text("role fresh")).to_be_visible()
    expect(card).to_be_focused()


def test_it_updates_nothing_under_a_button_that_is_down(page: Page, team: Ids, do: Does) -> None:
    page.goto("/admin/board/")
    page.locator(f"#card-{team['open']}").hover()
    with page.expect_response(lambda answer: "x-requested-with" in answer.request.headers) as update:
        page.mouse.down()
        offer = {"project_root": team["root"], "from_agent_id": "planner", "visibility": "public"}
        do("handoff_create", **offer, target={"strategy": "role", "role": "late"}, payload="x")
    update.value.finished()
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    page.mouse.up()
    expect(page).to_have_url(re.compile(f"/admin/handoffs/handoff/{team['open']}/change/"))


def test_a_list_updates_without_losing_what_is_chosen_in_it(page: Page, team: Ids, do: Does) -> None:
    def new(title: str) -> None:
        do("handoff_create", project_root=team["root"], from_agent_id="planner", title=title, payload={"x": 1},
           visibility="public", target={"strategy": "capability", "capability": "live"})  # fmt: skip

    watch(page, "/admin/handoffs/handoff/")
    new("first of two")
    rows = page.locator("#result_list")
    expect(rows).to_contain_text("first of two")
    chosen = rows.get_by_role("row").filter(has_text="first of two").locator("input.action-select")
    chosen.check()
    expect(page.locator(".action-counter")).to_contain_text("1 of")
    new("second of two")
    page.locator("select[name=action]").select_option("handoff_withdraw")
    expect(chosen).to_be_checked()
    page.get_by_role("button", name="Run").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("“first of two” was cancelled.")).to_be_visible()
    expect(rows).to_contain_text("second of two")


def test_it_tails_only_what_is_filtered(page: Page, team: Ids, do: Does) -> None:
    watch(page, "/admin/coordination/event/?type=artifact.created")
    rows = page.locator("#result_list tbody tr")
    count = rows.count()
    say(do, team["root"], "not this")
    do("artifact_put", project_root=team["root"], artifact_type="text", name="this", content="x")
    expect(rows).to_have_count(count + 1)


def test_it_does_not_grow_and_does_not_fall_behind(page: Page, hub: Hub, team: Ids, do: Does) -> None:
    watch(page, "/admin/coordination/event/")
    speak = scene.topics_over_rest(hub.url)
    topic = speak("topic_create", name="flood")["topic_id"]
    outbox = [{"content_markdown": f"flood {number}"} for number in range(AT_ONCE)]

    def flood(number: int) -> None:
        speak("topic_join", topic_id=topic, agent_name=f"peer-{number}")
        speak("sync", topic_id=topic, wait_seconds=0, auto_advance=False, outbox=outbox)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(flood, range(POSTED // AT_ONCE)))
    say(do, team["root"], "the last one")
    expect(page.locator("#result_list")).to_contain_text("the last one")
    assert len(shown(page)) <= SHOWN
    assert missed(page) == set()


def test_it_says_that_the_line_is_down_comes_back_and_misses_nothing(
    browser: Browser, tmp_path: Path, furnish: Furnish
) -> None:
    port = str(free_port())  # on which it comes back
    hub = start(furnish(tmp_path / "home"), "--port", port)
    try:
        root = tmp_path / "parser"
        root.mkdir()
        scene.play(scene.over_rest(hub.url), root)
        page = browser.new_page(base_url=hub.url)
        watch(page, "/admin/coordination/event/")
        hub.stop()
        expect(page.locator("[data-live]")).to_contain_text("Connection lost")
        hub = start(hub.home, "--port", port)
        say(scene.over_rest(hub.url), str(root), "after the return")
        expect(page.locator("#result_list")).to_contain_text("after the return")
        live(page)
        assert missed(page) == set()
        page.close()
    finally:
        hub.process.kill()
        hub.process.wait()


def test_it_rings_and_is_answered_on_home(page: Page, hub: Hub) -> None:
    scene.over_rest(hub.url)("agent_register", agent_id="asker")
    asked = {"agent_id": "asker", "kind": "permission", "title": "Run make?", "subject": "run make"}
    control = scene.over_rest(hub.url, "control/operations")
    watch(page, "/admin/")
    bell = page.locator(".nx-bell")
    expect(bell).to_be_hidden()
    with ThreadPoolExecutor(1) as caller:
        waits = {"detail": "It builds the parser.", "timeout_seconds": START_SECONDS}
        call = caller.submit(control, "ask_operator", **asked, **waits)
        expect(bell).to_contain_text("1")
        expect(page).to_have_title("(1) Home | Nexus")
        icon = page.locator("link[rel=icon]")
        expect(icon).to_have_attribute("href", re.compile("icon-waiting"))
        expect(page.get_by_text("It builds the parser.")).to_be_visible()
        page.get_by_role("button", name="Allow once asker asks: Run make?").click()
        answer = call.result(START_SECONDS)
    assert (answer["status"], answer["allowed"], answer["always"]) == ("allowed", True, False)
    expect(page.get_by_text("“Run make?” was allowed, this once.")).to_be_visible()
    expect(bell).to_be_hidden()
    expect(icon).to_have_attribute("href", re.compile("icon[.]svg"))
