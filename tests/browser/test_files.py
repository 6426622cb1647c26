"""The files that agents hold, as a person finds them and takes one back."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.hub import Hub
from tests.browser import scene
from tests.browser.conftest import Ids, watch
from tests.browser.scene import Does


@pytest.fixture
def files(hub: Hub) -> Does:
    """Call an operation of files on the hub."""
    return scene.files_over_rest(hub.url)


def test_it_shows_what_is_reserved_as_it_happens_and_ends_it(page: Page, team: Ids, files: Does) -> None:
    watch(page, "/admin/files/")
    mine = {"project_root": team["root"], "agent_id": "builder-2"}
    files("files_reserve", **mine, paths=["src/left_behind.py"], reason="Forgotten")
    page.get_by_role("link", name="src/left_behind.py").click()
    page.get_by_label("Reason").fill("Nobody works on it")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/admin/files/$"))
    expect(page.get_by_text("The reservation is ended.")).to_be_visible()
    expect(page.get_by_role("link", name="src/left_behind.py")).to_have_count(0)
    page.get_by_label("State").select_option("Ended")
    expect(page.get_by_role("row").filter(has_text="src/left_behind.py")).to_contain_text("Released")


def test_it_finds_files_by_path_reason_and_agent(page: Page, team: Ids) -> None:
    for words in ("grammar.py", "file of their own", "BUILDER-1"):
        page.goto(f"/admin/files/?q={words}")
        expect(page.get_by_role("link", name="src/grammar.py")).to_be_visible()
        expect(page.get_by_role("link", name="/docs/")).to_have_count(0)
