"""A login that ends while its pages are open."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.acceptance.hub import Hub, serving
from tests.acceptance.processes import nexus
from tests.browser.conftest import live, watch
from tests.conftest import Furnish


@pytest.fixture
def hub(tmp_path: Path, furnish: Furnish) -> Iterator[Hub]:
    """A hub that trusts nobody without a login."""
    with serving(furnish(tmp_path / "home"), "--host", "0.0.0.0") as served:
        yield served


def log_in(page: Page, hub: Hub) -> None:
    found = next(match for line in hub.lines if (match := re.search("as '(.+)' with '(.+)'", line)))
    page.get_by_label("Username").fill(found[1])
    page.get_by_label("Password").fill(found[2])
    page.get_by_role("button", name="Log in").click()


def test_it_says_so_and_leads_to_the_login(browser: Browser, hub: Hub, tmp_path: Path) -> None:
    def command(*arguments: str) -> None:
        done = nexus(hub.home, *arguments)
        assert done.returncode == 0, done.stderr

    command("agents", "create", "builder")
    command("send", "--to", "builder", "--project", str(tmp_path), "--subject", "Hello", "--body", "b")
    context = browser.new_context(base_url=hub.url)
    first, mail, speak = (context.new_page() for _ in range(3))
    first.goto("/admin/")
    log_in(first, hub)
    live(first)
    watch(mail, "/admin/inbox/message/")
    speak.goto("/admin/speak/?to=builder")
    first.evaluate("document.getElementById('logout-form').submit()")
    expect(first).to_have_url(re.compile("logout|login"))

    command("agents", "create", "reviewer")  # the next event is not for who is logged out
    expect(mail.locator("[data-live]")).to_have_text("You are logged out")
    mail.get_by_role("link", name=re.compile("Hello")).click()
    expect(mail).to_have_url(re.compile("/admin/login/"))
    log_in(mail, hub)
    expect(mail.get_by_role("heading", name="Hello")).to_be_visible()

    speak.locator("select[name=workspace]").select_option(index=0)
    speak.get_by_label("Subject").fill("From before")
    speak.get_by_label("Message (Markdown)").fill("b")
    speak.get_by_role("button", name="Send").click()  # the login gave out new tokens
    expect(speak.get_by_role("heading", name="Nothing was changed")).to_be_visible()
    context.close()
