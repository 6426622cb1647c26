"""What an operator does, as a person does it."""

from __future__ import annotations

import asyncio
import json
import re
from concurrent.futures import ThreadPoolExecutor

from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from playwright.sync_api import Page, expect

from tests.acceptance.hub import Hub
from tests.browser.conftest import Ids
from tests.browser.scene import Does


def test_it_shows_times_in_the_viewers_zone_and_utc_on_hover(page: Page, team: Ids, do: Does) -> None:
    page.goto(f"/admin/inbox/message/{team['reply']}/change/")
    time = page.locator(".readonly time").first
    utc = time.get_attribute("title") or ""
    assert utc.endswith(" UTC")
    shown = int(re.search(r"(\d+):\d\d:\d\d", time.inner_text())[1]) % 12  # type: ignore[index]
    assert shown == (int(utc[11:13]) + 9) % 12  # the window is in Tokyo


def test_it_cancels_a_handoff_only_after_a_confirmation(page: Page, team: Ids) -> None:
    page.goto("/admin/board/")
    page.get_by_role("link", name="port it").click()
    page.get_by_role("button", name="Cancel…").click()
    dialog = page.get_by_role("dialog", name="Cancel: 1 handoff")
    dialog.get_by_role("link", name="Back").click()
    expect(dialog).to_have_count(0)
    page.get_by_role("button", name="Cancel…").click()
    dialog.get_by_label("Reason").fill("nobody knows rust")
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("was cancelled.")).to_be_visible()
    expect(page.get_by_text("nobody knows rust").first).to_be_visible()


def test_it_inspects_an_agent_and_a_line_of_the_graph(page: Page, team: Ids) -> None:
    page.goto("/admin/graph/")
    page.get_by_role("link", name=re.compile("^builder-1: present")).focus()
    page.keyboard.press("Enter")
    inspected = page.get_by_label("Inspected")
    expect(inspected).to_contain_text("builder-1")
    expect(inspected).to_contain_text("worker")
    page.locator("a[href*='from=builder-1']").first.dispatch_event("click")
    expect(inspected).to_contain_text("Re: Plan for the parser")
    page.get_by_label("Traffic of the last").select_option("168")
    expect(page).to_have_url(re.compile("hours=168"))
    expect(page.locator(".nx-map .node")).to_have_count(5)


def test_it_skips_the_navigation_and_lists_the_keys(page: Page, team: Ids) -> None:
    page.goto("/admin/board/")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys")
    expect(keys).to_contain_text("search everything")
    page.keyboard.press("Escape")
    expect(keys).to_be_hidden()


def test_it_chooses_a_workspace_by_a_few_letters_and_every_page_follows(page: Page, team: Ids) -> None:
    page.goto("/admin/graph/")
    menu = page.locator("#switcher")
    menu.locator("summary").click()
    expect(menu.get_by_label("Find a workspace")).to_be_focused()
    page.keyboard.type("pars")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"graph/[?]workspace={team['workspace']}"))
    expect(menu.locator("summary")).to_contain_text("parser")
    page.locator("#nav-sidebar").get_by_role("link", name="Handoffs", exact=True).click()
    expect(page).to_have_url(re.compile(f"board/[?]workspace={team['workspace']}"))
    menu.locator("summary").click()
    page.keyboard.press("Escape")
    expect(menu.get_by_role("link", name="All workspaces")).to_be_hidden()
    expect(menu.locator("summary")).to_be_focused()
    menu.locator("summary").click()
    menu.get_by_role("link", name="All workspaces").click()
    expect(menu.locator("summary")).to_contain_text("All workspaces")


def test_it_moves_through_the_inbox_with_keys(page: Page, team: Ids) -> None:
    page.goto("/admin/inbox/message/")
    letters = page.locator("#result_list .field-title a")
    page.keyboard.press("j")
    expect(letters.nth(0)).to_be_focused()
    page.keyboard.press("j")
    expect(letters.nth(1)).to_be_focused()
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="Reply", exact=True)).to_be_visible()
    page.keyboard.press("r")
    expect(page.get_by_label("Message (Markdown)")).to_be_focused()


def test_it_reads_a_thread_with_its_deliveries_as_markdown(page: Page, team: Ids) -> None:
    page.goto("/admin/inbox/message/?q=parser")
    page.get_by_role("link", name=re.compile("Re: Plan for the parser")).click()
    expect(page.get_by_role("cell", name="grammar.py")).to_be_visible()
    expect(page.locator(".nx-prose a")).to_have_attribute("rel", "noopener noreferrer nofollow")
    page.get_by_role("link", name="Plan for the parser", exact=True).last.click()
    for lane in ("read", "being handled", "unread"):
        expect(page.locator(".nx-badge", has_text=re.compile(f"^{lane}$"))).to_have_count(1)


def test_it_filters_and_opens_events(page: Page, team: Ids) -> None:
    page.goto("/admin/coordination/event/?type=handoff.created")
    rows = page.locator("#result_list .field-number a")
    expect(rows).to_have_count(4)
    page.keyboard.press("j")
    expect(rows.first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_text("handoff_id").first).to_be_visible()
    expect(page.locator(".readonly .nx-told a").first).to_be_visible()


def test_it_creates_an_agent_and_sees_its_first_call_arrive(page: Page, hub: Hub, team: Ids) -> None:
    page.goto("/admin/coordination/agent/")
    page.get_by_role("link", name="Add agent").click()
    page.get_by_label("Agent id").fill("newcomer")
    page.get_by_role("button", name="Add", exact=True).click()
    key = page.locator("#api-key").inner_text()
    page.locator("[data-copy=api-key]").click()
    expect(page.locator("[data-copy=api-key]")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == key
    configuration = json.loads(page.locator("#snippet-cursor").inner_text())
    server = configuration["mcpServers"]["nexus"]
    expect(page.locator("#row")).to_contain_text("offline")

    async def first_call() -> None:
        transport = streamable_http_client(server["url"], http_client=create_mcp_http_client(headers=server["headers"]))
        async with Client(transport) as client:
            await client.call_tool("agent_register", {"agent_id": "newcomer", "role": "guest"})

    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, first_call()).result()
    expect(page.locator("#row")).to_contain_text("present")
    expect(page.locator("#api-key")).to_have_text(key)


def test_it_writes_to_a_role(page: Page, team: Ids) -> None:
    page.goto("/admin/speak/")
    page.locator("select[name=workspace]").select_option("parser")
    page.get_by_label("A role").check()
    page.get_by_label("Role", exact=True).fill("worker")
    page.get_by_label("Subject").fill("Stand-up")
    page.get_by_label("Message (Markdown)").fill("What do you **do**?")
    page.get_by_label("Message (Markdown)").press("Control+Enter")
    expect(page).to_have_title(re.compile("^Stand-up"))
    expect(page.get_by_text("How far it came")).to_have_count(2)


def test_it_checks_a_setting_as_one_types_and_stores_it(page: Page, team: Ids) -> None:
    page.goto("/admin/settings/?q=handoff_lease_ttl_seconds")
    field = page.get_by_label("handoff_lease_ttl_seconds")
    field.fill("0")
    assert field.evaluate("input => input.validity.rangeUnderflow")
    expect(field).to_have_attribute("aria-invalid", "true")
    field.fill("120")
    page.get_by_role("button", name="Store changes").click()
    row = page.get_by_role("row").filter(has_text="handoff_lease_ttl_seconds")
    expect(row).to_contain_text("stored")
    row.get_by_role("button", name="Use the default").click()
    expect(page.get_by_role("row").filter(has_text="handoff_lease_ttl_seconds")).not_to_contain_text("stored")


def test_it_counts_prunes_and_arms_the_reset_only_by_a_typed_word(page: Page, team: Ids) -> None:
    page.goto("/admin/retention/")
    page.get_by_role("button", name="Count what is past its window").click()
    expect(page.get_by_text("A run would delete 0 rows.")).to_be_visible()
    reset = page.get_by_role("button", name="Reset the database")
    expect(reset).to_be_disabled()
    page.get_by_label("Type reset to confirm").fill("rese")
    expect(reset).to_be_disabled()
    page.get_by_label("Type reset to confirm").fill("reset")
    expect(reset).to_be_enabled()


def test_it_switches_to_the_dark_and_stays_there(page: Page, team: Ids) -> None:
    page.goto("/admin/")
    page.locator("[x-on\\:click*=openUserLinks][role=button]").press("Enter")
    page.get_by_text("Dark", exact=True).click()
    page.goto("/admin/board/")
    expect(page.locator("html")).to_have_class(re.compile("dark"))


def test_it_opens_the_first_hit_of_control_k_with_enter(page: Page, team: Ids) -> None:
    page.goto("/admin/settings/")
    page.keyboard.press("Control+k")
    field = page.get_by_label("Search everything")
    expect(field).to_be_focused()
    page.keyboard.press("Enter")  # nothing typed, nothing opened
    page.keyboard.type("builder-2")
    page.keyboard.press("Enter")  # before any hit is there
    page.wait_for_url("**/admin/agents/builder-2/")  # and for its scripts, which hear the keys
    page.keyboard.press("Control+k")
    expect(field).to_be_focused()
    page.keyboard.type("retent")
    expect(page.locator("#command-results-list a").first).to_be_visible()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/admin/retention/$"))


def test_it_gives_the_search_the_keys_on_a_slow_machine(page: Page, team: Ids) -> None:
    slow = "const at = requestAnimationFrame; requestAnimationFrame = (draw) => setTimeout(() => at(draw), 500)"
    page = page.context.new_page()  # such a script stays with its window
    page.add_init_script(slow)  # the theme gives the focus after 20 ms, and shows the field with a frame
    page.goto("/admin/settings/")
    page.keyboard.press("Control+k")
    expect(page.get_by_label("Search everything")).to_be_focused()


def test_it_tells_what_is_wrong_beside_its_field(page: Page, team: Ids) -> None:
    page.goto("/admin/speak/?what=handoff")
    page.locator("select[name=workspace]").select_option("parser")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_label("The work", exact=True)).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_role("alert").filter(has_text="Say what the work is")).to_be_visible()


def test_it_sends_once_what_is_sent_twice(page: Page, team: Ids, do: Does) -> None:
    page.goto("/admin/speak/?to=reviewer")
    page.locator("select[name=workspace]").select_option("parser")
    page.get_by_label("Subject").fill("Only once")
    page.get_by_label("Message (Markdown)").fill("Said once.")
    page.get_by_role("button", name="Send").dblclick()
    expect(page).to_have_title(re.compile("^Only once"))
    subjects = [message["subject"] for message in do("inbox_peek", agent_id="reviewer", limit=500)["messages"]]
    assert subjects.count("Only once") == 1


def test_it_keeps_a_typed_letter_over_a_step_back(page: Page, team: Ids) -> None:
    page.goto("/admin/speak/")
    typed = {"Agent": "reviewer", "Subject": "Once more", "Message (Markdown)": "As before."}
    page.locator("select[name=workspace]").select_option("parser")
    for label, text in typed.items():
        page.get_by_label(label, exact=True).fill(text)
    page.get_by_role("button", name="Send").click()
    expect(page).to_have_title(re.compile("^Once more"))
    page.go_back()
    for label, text in typed.items():
        expect(page.get_by_label(label, exact=True)).to_have_value(text)


def test_it_shows_at_once_what_can_be_done_with_what_is_chosen(page: Page, team: Ids, do: Does) -> None:
    work = {"from_agent_id": "planner", "visibility": "public", "target": {"strategy": "role", "role": "sweeper"}}
    for number in range(20):
        do("handoff_create", project_root=team["root"], **work, payload="sweep", title=f"Sweep {number}")
    for width in (400, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto("/admin/board/")
        cancel = page.get_by_role("group", name="Open").get_by_role("button", name="Cancel…")
        expect(cancel).to_be_hidden()
        page.get_by_label("Choose Sweep 19").check()
        expect(cancel).to_be_in_viewport(ratio=1)
        page.get_by_label("Choose Sweep 3", exact=True).check()
        expect(cancel).to_be_in_viewport(ratio=1)
    cancel.click()
    expect(page.get_by_role("heading", name="Cancel: 2 handoffs")).to_be_visible()


def test_it_reassigns_in_a_dialog_over_the_page_and_says_what_changed(page: Page, team: Ids, do: Does) -> None:
    target = {"strategy": "direct", "agent_id": "reviewer"}
    offered = do("handoff_create", project_root=team["root"], from_agent_id="planner", target=target,
                 visibility="public", title="Carry me over", payload="x")["handoff_id"]  # fmt: skip
    page.goto(f"/admin/handoffs/handoff/{offered}/change/")
    button = page.get_by_role("button", name="Reassign…")
    button.click()
    dialog = page.get_by_role("dialog", name="Reassign: 1 handoff")
    expect(dialog.get_by_label("To which agent")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(button).to_be_focused()
    button.click()
    dialog.get_by_label("To which agent").fill("nobody-here")
    dialog.get_by_role("button", name="Reassign").click()
    expect(dialog.get_by_label("To which agent")).to_be_focused()
    expect(dialog.get_by_label("To which agent")).to_have_attribute("aria-invalid", "true")
    expect(page).to_have_url(re.compile(f"/admin/handoffs/handoff/{offered}/change/$"))
    dialog.get_by_label("To which agent").fill("builder-2")
    dialog.get_by_role("button", name="Reassign").click()
    done = page.get_by_role("status").filter(has_text="“Carry me over” was reassigned.")
    expect(done).to_be_in_viewport()
    expect(page).to_have_url(re.compile(f"/admin/handoffs/handoff/{offered}/change/$"))
    page.go_back()
    page.go_forward()
    expect(page.get_by_role("heading", name="Handoff")).to_be_visible()
    page.goto(f"/admin/act/?do=handoff_reassign&on={offered}")
    page.get_by_label("To which agent").fill("nobody-here")
    page.get_by_role("button", name="Reassign").click()
    expect(page.get_by_label("To which agent")).to_have_attribute("aria-invalid", "true")


def test_a_phone_shows_the_whole_title_of_needs_a_person(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto("/admin/attention/")
    title = page.get_by_role("heading", level=1)
    expect(title).to_have_text("Needs a person")
    page.evaluate("document.fonts.ready.then(() => true)")  # until then its letters have another width
    assert title.evaluate("each => [...each.children].every(part => part.scrollWidth <= part.clientWidth)")
    assert title.evaluate("each => each.scrollWidth <= each.clientWidth")


def test_the_timeline_is_read_by_keys(page: Page, team: Ids) -> None:
    page.goto("/admin/timeline/")
    chart = page.locator("#chart")
    chart.focus()
    page.keyboard.press("ArrowDown")
    span = page.locator("[data-row] a:focus")
    expect(span).to_have_count(1)
    page.keyboard.press("ArrowDown")
    expect(span).to_have_attribute("id", re.compile("-claimed$"))
    page.keyboard.press("Enter")
    expect(page.locator("#inspect h2")).to_have_text(re.compile("write grammar.py|list the files"))
    page.keyboard.press("Escape")
    expect(chart).to_be_focused()
    page.keyboard.press("+")
    expect(page).to_have_url(re.compile("window=15m"))
    expect(page.get_by_role("link", name="15 minutes")).to_have_attribute("aria-current", "page")
    page.keyboard.press("ArrowLeft")
    expect(page).to_have_url(re.compile("since="))
    expect(chart).to_be_focused()


def test_the_timeline_zooms_where_the_pointer_is(page: Page, team: Ids) -> None:
    page.goto("/admin/timeline/")
    page.locator("#chart").hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    expect(page).to_have_url(re.compile("since=.*until="))
    expect(page.get_by_role("link", name="1 hour", exact=True)).not_to_have_attribute("aria-current", "page")
