"""The timeline by keys: from the picture to a span and what it was, nearer and earlier."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.conftest import Ids


def test_it_is_read_by_keys(page: Page, team: Ids) -> None:
    page.goto("/admin/timeline/")
    chart = page.locator("#chart")
    chart.focus()
    page.keyboard.press("ArrowDown")
    span = page.locator("[data-lane] a:focus")
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


def test_it_zooms_where_the_pointer_is(page: Page, team: Ids) -> None:
    page.goto("/admin/timeline/")
    page.locator("#chart").hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    expect(page).to_have_url(re.compile("since=.*until="))
    expect(page.get_by_role("link", name="1 hour", exact=True)).not_to_have_attribute("aria-current", "page")
