"""An agent asks, and a person answers in the browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.hub import START_SECONDS, Hub
from tests.browser import scene
from tests.browser.conftest import watch

Asks = Callable[..., Future[dict[str, Any]]]
HOSTILE = "<img src=x onerror=alert(1)>\u202e{{ title }}"


@pytest.fixture
def ask(hub: Hub) -> Any:
    """Ask as the builder over REST, in the background: what the call answers once a person has answered."""
    scene.over_rest(hub.url)("agent_register", agent_id="builder-1")
    with ThreadPoolExecutor(4) as callers:

        def asked(title: str, **more: Any) -> Future[dict[str, Any]]:
            arguments = {"agent_id": "builder-1", "title": title, "kind": "permission", **more}
            return callers.submit(_answered, hub.url, arguments)

        yield asked


def _answered(url: str, arguments: dict[str, Any]) -> dict[str, Any]:
    address = f"{url}/api/v1/control/operations/ask_operator"
    envelope = httpx.post(address, json={"timeout_seconds": START_SECONDS, **arguments}, timeout=2 * START_SECONDS)
    data: dict[str, Any] = envelope.json()["data"]
    return data


def test_it_rings_and_is_answered_on_home(page: Page, ask: Asks) -> None:
    watch(page, "/admin/")
    bell = page.locator(".nx-bell")
    expect(bell).to_be_hidden()
    call = ask("Run make?", detail="It builds the parser.", subject="run make")
    expect(bell).to_contain_text("1")
    expect(page).to_have_title("(1) Home | Nexus")
    icon = page.locator("link[rel=icon]")
    expect(icon).to_have_attribute("href", re.compile("icon-waiting"))
    expect(page.get_by_text("It builds the parser.")).to_be_visible()
    page.get_by_role("button", name="Allow once builder-1 asks: Run make?").click()
    answer = call.result(START_SECONDS)
    assert (answer["status"], answer["allowed"], answer["always"]) == ("allowed", True, False)
    expect(page.get_by_text("“Run make?” was allowed, this once.")).to_be_visible()
    expect(bell).to_be_hidden()
    expect(icon).to_have_attribute("href", re.compile("icon[.]svg"))


def test_it_is_allowed_always_until_that_is_taken_back(page: Page, ask: Asks) -> None:
    watch(page, "/admin/")
    call = ask("Run ninja?", subject="run ninja")
    page.get_by_role("button", name="Allow always builder-1 asks: Run ninja?").click()
    assert call.result(START_SECONDS)["always"]
    assert ask("Run ninja again?", subject="run ninja").result(START_SECONDS)["allowed"]
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("taken back")).to_be_visible()
    call = ask("Run ninja again?", subject="run ninja")
    page.get_by_role("button", name="Refuse builder-1 asks: Run ninja again?").click()
    assert call.result(START_SECONDS)["status"] == "refused"


def test_it_is_answered_in_words(page: Page, ask: Asks) -> None:
    watch(page, "/admin/")
    call = ask("Which colour?", kind="question")
    page.get_by_role("button", name="Answer… builder-1 asks: Which colour?").click()
    page.get_by_label("Your answer").fill("Blue.")
    page.get_by_role("dialog").get_by_role("button", name="Answer").click()
    assert call.result(START_SECONDS)["words"] == "Blue."


def test_hostile_words_do_nothing(page: Page, ask: Asks, findings: Callable[..., list[str]]) -> None:
    watch(page, "/admin/")
    call = ask(HOSTILE, detail=HOSTILE * 20, subject=HOSTILE)
    page.get_by_role("link", name="Read and answer").click()
    expect(page.get_by_text("⟨U+202E⟩").first).to_be_visible()
    assert findings(page) == []
    page.get_by_role("button", name="Refuse").click()
    assert not call.result(START_SECONDS)["allowed"]
    page.goto("/admin/questions/")
    assert findings(page) == []
