"""A review in a browser: comments by keys and by touch, at 390 pixels too, and what is approved is what was seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser import scene
from tests.browser.conftest import live
from tests.control.test_worktrees import git

RUNNERS = """
default = "play"

[runners.play]
kind = "rehearsal"

[[runners.play.script]]
say = "I did **it**."
"""


@pytest.fixture(scope="module")
def runners() -> str:
    return RUNNERS


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "main.py").write_text("".join(f"line = {n}\n" for n in range(40)))
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "Begin")
    return tmp_path


def test_a_person_reviews_by_keys_and_at_390_pixels(page: Page, pool: scene.Does, repository: Path) -> None:
    made = pool("pool_create_agent", agent_id="smith", cwd=str(repository), worktree=True)
    place = Path(pool("pool_worktree_diff", agent_id="smith")["path"])
    (place / "main.py").write_text("".join(f"line = {n if n != 20 else 'x' * 200}\n" for n in range(40)))
    (place / "new.md").write_text("# New\n")
    assert made["agent_id"] == "smith"
    pool("pool_send", agent_id="smith", content="Do it.", timeout_seconds=30)
    page.goto("/admin/review/")
    expect(page.get_by_role("link", name="nexus/smith")).to_be_visible()
    page.get_by_role("link", name="nexus/smith").click()
    expect(page.get_by_role("region", name="What the agent says")).to_contain_text("I did it.")
    page.locator("ins[data-line='21'] > a").click()
    page.get_by_role("textbox", name="Comment").fill("Too long.")
    page.get_by_role("button", name="Add the comment").click()
    expect(page.locator("ins[data-line='21'] .nx-comment")).to_contain_text("Too long.")
    live(page)
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("c")
    expect(page.get_by_role("textbox", name="Comment")).to_be_focused()
    page.keyboard.type("And a test.")
    page.get_by_role("button", name="Add the comment").click()
    expect(page.locator("#comments .nx-comment")).to_have_count(2)
    live(page)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("j")
    expect(page.locator(".nx-comment").first).to_be_focused()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.keyboard.press("s")
    page.keyboard.press("Enter")
    expect(page.get_by_text("sent back with the comments")).to_be_visible()
    pool("pool_send", agent_id="smith", content="Done?", timeout_seconds=30)
    page.goto("/admin/review/")
    page.get_by_role("link", name="nexus/smith").click()
    expect(page.get_by_role("button", name="Approve")).to_be_visible()
    live(page)
    page.keyboard.press("a")
    expect(page.get_by_role("button", name="Approve")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url("/admin/lane/")
